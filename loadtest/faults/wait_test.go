package faults_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tooltape/tooltape/sinks/history"
	"github.com/tooltape/tooltape/sinks/postgres"
)

// until waits for a condition, two minutes at most.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !ok(); <-time.After(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not in two minutes: %s", what)
		}
	}
}

func parkedAre(t *testing.T, pool *pgxpool.Pool, ok func([]postgres.ParkedSession) bool) {
	t.Helper()
	until(t, "the parked sessions that were expected", func() bool {
		parked, err := postgres.ParkedSessions(t.Context(), pool, postgres.ParkedFilter{})
		if err != nil {
			t.Fatal(err)
		}
		return ok(parked)
	})
}

func totals(t *testing.T, pool *pgxpool.Pool) history.Totals {
	t.Helper()
	sum, err := history.ReadTotals(t.Context(), pool)
	if err != nil {
		t.Fatal(err)
	}
	return sum
}
