package history_test

import (
	"os"
	"testing"
	"time"

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
