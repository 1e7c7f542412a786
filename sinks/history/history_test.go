package history_test

import (
	"os"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tooltape/tooltape/schemas/event"
	"github.com/tooltape/tooltape/sinks"
	"github.com/tooltape/tooltape/sinks/history"
	"github.com/tooltape/tooltape/sinks/postgres"
	"github.com/tooltape/tooltape/sinks/sinktest"
)

func TestMain(m *testing.M) { os.Exit(sinktest.Main(m)) }

func TestSink(t *testing.T) {
	// One database, emptied before each case: making one takes longer than all cases.
	runSuite(t, sinktest.Connect(t, sinktest.Database(t, history.View())))
}

func runSuite(t *testing.T, pool *pgxpool.Pool) {
	sinktest.Run(t, func(t *testing.T) sinktest.Store {
		if _, err := pool.Exec(t.Context(), `TRUNCATE tooltape.position, tooltape.watermark, tooltape.parked, tooltape.set_aside,
			tooltape.marker, tooltape.history_item, tooltape.history_fork`); err != nil {
			t.Fatal(err)
		}
		return sinktest.Store{
			Sink:     postgres.New(pool, history.View()),
			Rows:     func(t testing.TB, id string) []sinktest.Row { return rows(t, pool, id) },
			SetAside: func(t testing.TB, partition int32) []sinks.SetAside { return setAside(t, pool, partition) },
		}
	})
}

func TestItemsAreCompressedWithLZ4WhereTheServerHasIt(t *testing.T) {
	pool := sinktest.Connect(t, sinktest.Database(t, history.View()))
	var has, uses bool
	if err := pool.QueryRow(t.Context(), `
		SELECT (SELECT 'lz4' = ANY (enumvals) FROM pg_settings WHERE name = 'default_toast_compression'),
			(SELECT attcompression = 'l' FROM pg_attribute WHERE attrelid = 'tooltape.history_item'::regclass AND attname = 'item')`).
		Scan(&has, &uses); err != nil {
		t.Fatal(err)
	}
	if has != uses {
		t.Errorf("the server has lz4: %v; items use it: %v", has, uses)
	}
}

func rows(t testing.TB, pool *pgxpool.Pool, sessionID string) []sinktest.Row {
	t.Helper()
	found, err := pool.Query(t.Context(), `
		SELECT seq, item_index, event_id::text, run_id, occurred_at, item::text FROM tooltape.history_item
		WHERE session_id = $1 ORDER BY seq, item_index`, sessionID)
	if err != nil {
		t.Fatal(err)
	}
	all, err := pgx.CollectRows(found, func(row pgx.CollectableRow) (sinktest.Row, error) {
		var r sinktest.Row
		var run *string
		var at *time.Time
		err := row.Scan(&r.Seq, &r.Index, &r.EventID, &run, &at, &r.JSON)
		if run != nil {
			r.RunID = event.Some(*run)
		}
		if at != nil {
			r.OccurredAt = event.Some(*at)
		}
		return r, err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func setAside(t testing.TB, pool *pgxpool.Pool, partition int32) []sinks.SetAside {
	t.Helper()
	found, err := pool.Query(t.Context(), `
		SELECT at_offset, key, value, code, message, since FROM tooltape.set_aside WHERE partition = $1 ORDER BY at_offset`, partition)
	if err != nil {
		t.Fatal(err)
	}
	all, err := pgx.CollectRows(found, func(row pgx.CollectableRow) (a sinks.SetAside, err error) {
		err = row.Scan(&a.Offset, &a.Key, &a.Value, &a.Code, &a.Message, &a.Since)
		a.Since = a.Since.UTC()
		return a, err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestErasingTakesForksAlong(t *testing.T) {
	b := newBench(t)
	forked := func(id string, run event.Opt[string]) sinks.Projected {
		p := sinks.Projected{Event: event.Event{Envelope: event.Envelope{SessionID: id, Seq: 1, EventID: uuid.NewString(), RunID: run}}}
		p.Event.Payload = event.SessionCreated{ForkedFrom: event.Some(event.SessionRef{SessionID: "parent", Seq: 3})}
		return p
	}
	run, none := event.Some("r"), event.Opt[string]{}
	b.write([]sinks.Projected{forked("closed", none), forked("of run", run), forked("other's run", run), forked("no run", none), forked("other", none)})
	erase := sinks.Batch{At: b.at, NextOffset: b.at.NextOffset, Erased: []string{"closed"}, ErasedRuns: []sinks.RunRef{
		{SessionID: "of run", RunID: "r"}, {SessionID: "no run", RunID: "r"}, {SessionID: "other's run", RunID: "another"},
	}}
	if _, err := b.sink.Write(t.Context(), erase); err != nil {
		t.Fatal(err)
	}
	left := ""
	if err := b.pool.QueryRow(t.Context(), `SELECT string_agg(session_id, ', ' ORDER BY session_id) FROM tooltape.history_fork`).Scan(&left); err != nil {
		t.Fatal(err)
	}
	if left != "no run, other, other's run" {
		t.Errorf("left are the forks of %s", left)
	}
}
