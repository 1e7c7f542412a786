package postgres_test

import (
	"errors"
	"slices"
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

// firstRelease is what a database held that the first release had migrated.
const firstRelease = `
INSERT INTO tooltape.position VALUES ('history', 0, '6f0d4f9e-6e6c-4a0c-9f56-0a8a3c1c2d11', 4, 17, 3, 9, 1),
    ('history', 1, '6f0d4f9e-6e6c-4a0c-9f56-0a8a3c1c2d11', 4, 0, 1, 0, 1);
INSERT INTO tooltape.watermark SELECT 'history', 's' || n, n, gen_random_uuid(), 0 FROM generate_series(1, 1000) n;
INSERT INTO tooltape.parked SELECT 'history', 's' || n, 0, 16, 16, n + 1, 'tool.call.denied', 2, code, 'why', now(), 0, '{old}', false
    FROM unnest(ARRAY['bad_frame', 'gap', 'conflict', 'store_refused']) WITH ORDINALITY AS t (code, n);
INSERT INTO tooltape.set_aside SELECT 'history', 0, n, convert_to('s' || n || '/1/e', 'UTF8'), NULL, code, 'why', now()
    FROM unnest(ARRAY['bad_key', 'empty_value', 'unannounced_removal', 'wrong_partition', 'unannounced_removal']) WITH ORDINALITY AS t (code, n);
INSERT INTO tooltape.set_aside VALUES ('history', 0, 9, decode(repeat('ff', 9000), 'hex'), '\x', 'bad_key', 'why', now());
INSERT INTO tooltape.history_item (seq, item_index, builder_version, event_id, session_id, run_id, item)
    SELECT 1, 0, 1, gen_random_uuid(), 's' || n, 'r', '{"a": "\u0000"}' FROM generate_series(1, 1000) n;
INSERT INTO tooltape.history_fork VALUES ('s1', 's2', 1);`

func TestAnUpgradeKeepsWhatThePreviousReleaseStored(t *testing.T) {
	pool := sinktest.Connect(t, sinktest.EmptyDatabase(t))
	if err := postgres.MigrateTo(t.Context(), pool, map[string]int{"postgres": 1, "history": 2}, history.View()); err != nil {
		t.Fatal(err)
	}
	if _, err := pool.Exec(t.Context(), firstRelease, pgx.QueryExecModeSimpleProtocol); err != nil {
		t.Fatal(err)
	}
	if err := postgres.Check(t.Context(), pool, history.View()); !errors.Is(err, postgres.ErrNotMigrated) {
		t.Errorf("before the upgrade Check gives %v", err)
	}
	tables := []string{"tooltape.position", "tooltape.watermark", "tooltape.parked", "tooltape.set_aside", "tooltape.history_item",
		"(SELECT session_id, parent_session_id, parent_seq FROM tooltape.history_fork)"}
	before := dump(t, pool, tables)
	migrate(t, pool, history.View())
	if after := dump(t, pool, tables); !slices.Equal(after, before) || len(before) < 2000 {
		t.Errorf("of %d rows there are %d, or they are others", len(before), len(after))
	}
	goesOn(t, pool)
}

// goesOn says that this build works with what is there.
func goesOn(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	sink := postgres.New(pool, history.View())
	at, err := sink.Acquire(t.Context(), 0, sinks.Topic{ID: noID, Partitions: 4})
	if err != nil || at.NextOffset != 17 {
		t.Fatalf("the position is %+v, %v", at, err)
	}
	known, err := sink.Sessions(t.Context(), at, []string{"s3", "s1000", "s1001"})
	if err != nil || len(known) != 2 || known["s3"].Parked.Code != event.Conflict || known["s1000"].Watermark.Seq != 1000 {
		t.Errorf("known are %+v, %v", known, err)
	}
	b := sinks.Batch{At: at, NextOffset: 18, Erased: []string{"s1"}, Markers: []sinks.Marker{{SessionID: "s1", Kind: sinks.ClosedMarker}},
		TakenBack: []sinks.Removal{{KeyPrefix: "s3/"}}}
	if _, err := sink.Write(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	for what, want := range map[string]int{"set_aside": 5, "history_item": 999, "history_fork": 0, "watermark": 999, "parked": 3} {
		if n := count(t, pool, "tooltape."+what); n != want {
			t.Errorf("%s has %d rows, want %d", what, n, want)
		}
	}
}

// dump is every row of these tables as a text.
func dump(t *testing.T, pool *pgxpool.Pool, tables []string) (all []string) {
	t.Helper()
	for _, table := range tables {
		rows, err := pool.Query(t.Context(), `SELECT r::text FROM `+table+` r ORDER BY 1`)
		if err != nil {
			t.Fatal(err)
		}
		texts, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, texts...)
	}
	return all
}

func TestResume(t *testing.T) {
	sink, pool, zero := open(t, notes(noteTable, insertNote))
	one, err := sink.Acquire(t.Context(), 1, zero.Topic)
	if err != nil {
		t.Fatal(err)
	}
	waits := func(partition int32, id string, fromOffset int64, code event.Code, due bool) sinks.Parked {
		return sinks.Parked{SessionID: id, Partition: partition, FromOffset: fromOffset, Code: code, Since: time.Now(), Builds: []string{"b"}, Due: due}
	}
	zero = write(t, sink, sinks.Batch{At: zero, Parked: []sinks.Parked{
		waits(0, "c", 5, event.Gap, false), waits(0, "a", 9, event.BadEvent, false), waits(0, "conflict", 0, event.Conflict, false),
		waits(0, "d", 6, event.Gap, true),
	}})
	one = write(t, sink, sinks.Batch{At: one, Parked: []sinks.Parked{waits(1, "b", 5, event.Gap, false), waits(1, "%", 7, event.Gap, false)}})

	resume := func(f postgres.ResumeFilter, dryRun bool) (ids string) {
		t.Helper()
		all, err := postgres.Resume(t.Context(), pool, f, dryRun)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range all {
			ids += p.SessionID
		}
		return ids
	}
	last := &postgres.ParkedSession{Projection: "notes", Parked: sinks.Parked{SessionID: "b", FromOffset: 5}}
	for _, c := range []struct {
		f    postgres.ResumeFilter
		want string
	}{
		{postgres.ResumeFilter{}, "bc%a"}, {postgres.ResumeFilter{Limit: 2}, "bc"}, {postgres.ResumeFilter{After: last, Limit: 2}, "c%"},
		{postgres.ResumeFilter{Code: event.Gap}, "bc%"}, {postgres.ResumeFilter{Code: event.Conflict}, ""}, {postgres.ResumeFilter{SessionID: "%"}, "%"},
		{postgres.ResumeFilter{Projection: "notes", SessionID: "a"}, "a"}, {postgres.ResumeFilter{Projection: "history"}, ""},
		{postgres.ResumeFilter{SessionID: "conflict"}, ""},
	} {
		if got := resume(c.f, true); got != c.want {
			t.Errorf("%+v would mark %q, want %q", c.f, got, c.want)
		}
	}
	if n := count(t, pool, "tooltape.parked WHERE due"); n != 1 {
		t.Errorf("a dry run has marked %d", n-1)
	}
	if got := resume(postgres.ResumeFilter{Limit: 3}, false) + " " + resume(postgres.ResumeFilter{Limit: 3}, false) + " " + resume(postgres.ResumeFilter{}, false); got != "bc% a " {
		t.Errorf("in pieces it marks %q", got)
	}
	if n := count(t, pool, "tooltape.parked WHERE due AND code <> 'conflict'"); n != 5 {
		t.Errorf("%d sessions are due, want 5", n)
	}
	// What the holders have read of their sessions holds no longer.
	for _, at := range []sinks.Position{zero, one} {
		if _, err := sink.Write(t.Context(), sinks.Batch{At: at}); !errors.Is(err, sinks.ErrStale) {
			t.Errorf("partition %d: got %v, want ErrStale", at.Partition, err)
		}
	}
}

func write(t *testing.T, sink *postgres.Sink, b sinks.Batch) sinks.Position {
	t.Helper()
	at, err := sink.Write(t.Context(), b)
	if err != nil {
		t.Fatal(err)
	}
	return at
}
