package history_test

import (
	"fmt"
	"testing"

	"github.com/google/uuid"

	"github.com/tooltape/tooltape/sinks"
	"github.com/tooltape/tooltape/sinks/history"
	"github.com/tooltape/tooltape/sinks/postgres"
	"github.com/tooltape/tooltape/sinks/sinktest"
)

// BenchmarkSessions looks up the sessions of a batch, half of which are known, among 20,000.
func BenchmarkSessions(b *testing.B) {
	pool := sinktest.Connect(b, sinktest.Database(b, history.View()))
	sink := postgres.New(pool, history.View())
	at, err := sink.Acquire(b.Context(), 0, sinks.Topic{ID: uuid.NewString(), Partitions: 1})
	if err != nil {
		b.Fatal(err)
	}
	if _, err := pool.Exec(b.Context(), `INSERT INTO tooltape.watermark
		SELECT 'history', 'session-' || n, 1, gen_random_uuid(), 0 FROM generate_series(1, 20000) n`); err != nil {
		b.Fatal(err)
	}
	for _, n := range []int{1, 100, 2000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			ids := make([]string, n)
			for i := range ids {
				ids[i] = fmt.Sprintf("session-%d", 20_000-n/2+i)
			}
			for b.Loop() {
				if known, err := sink.Sessions(b.Context(), at, ids); err != nil || len(known) != n/2+1 {
					b.Fatal(len(known), err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/float64(n), "µs/session")
		})
	}
}
