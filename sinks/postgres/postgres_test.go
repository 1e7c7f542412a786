package postgres_test

import (
	"context"
	"errors"
	"os"
	"reflect"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tooltape/tooltape/schemas/event"
	"github.com/tooltape/tooltape/sinks"
	"github.com/tooltape/tooltape/sinks/postgres"
	"github.com/tooltape/tooltape/sinks/sinktest"
)

func TestMain(m *testing.M) { os.Exit(sinktest.Main(m)) }

// notes is a view with a table of its own.
func notes(table, insert string) postgres.View {
	return postgres.View{
		Name: "notes", BuilderVersion: 1,
		Migrations: fstest.MapFS{"migrations/0001_note.sql": {Data: []byte(table)}},
		Rows: func(s *postgres.Statements, events []*sinks.Projected) {
			sessions, seqs := s.Texts(), s.Bigints()
			for _, e := range events {
				sessions.Text(e.Event.SessionID)
				seqs.Bigint(e.Event.Seq)
			}
			s.Add(insert, seqs, sessions)
		},
		Erase: func(s *postgres.Statements, sessions []string) {
			s.Add(`DELETE FROM tooltape.note WHERE session_id = ANY ($1::text[])`, s.TextsOf(sessions))
		},
		EraseRuns: func(*postgres.Statements, []sinks.RunRef) {},
	}
}

const (
	noteTable  = `CREATE TABLE tooltape.note (session_id text NOT NULL, seq bigint NOT NULL CHECK (seq < 1000), PRIMARY KEY (session_id, seq))`
	insertNote = `INSERT INTO tooltape.note (seq, session_id) SELECT * FROM unnest($1::bigint[], $2::text[]) ON CONFLICT DO NOTHING`
)

func noted(sessionID string, seq int64) sinks.Projected {
	return sinks.Projected{Event: event.Event{Envelope: event.Envelope{SessionID: sessionID, Seq: seq, EventID: uuid.NewString()}}}
}

func open(t *testing.T, v postgres.View) (*postgres.Sink, *pgxpool.Pool, sinks.Position) {
	t.Helper()
	pool := sinktest.Connect(t, sinktest.Database(t, v))
	sink := postgres.New(pool, v)
	at, err := sink.Acquire(t.Context(), 0, sinks.Topic{ID: uuid.NewString(), Partitions: 4})
	if err != nil {
		t.Fatal(err)
	}
	return sink, pool, at
}

func count(t *testing.T, pool *pgxpool.Pool, what string) (n int) {
	t.Helper()
	if err := pool.QueryRow(t.Context(), `SELECT count(*) FROM `+what).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestWhatTheDatabaseRefusesIsRefusedAndChangesNothing(t *testing.T) {
	const secret = "classified"
	for name, c := range map[string]struct{ table, insert string }{
		"a check": {noteTable, insertNote},
		"a number too large": {noteTable,
			`INSERT INTO tooltape.note (seq, session_id) SELECT (s*s)::integer, i FROM unnest($1::bigint[], $2::text[]) AS t (s, i)`},
		"a value that reads as nothing": {noteTable,
			`INSERT INTO tooltape.note (seq, session_id) SELECT i::bigint, i FROM unnest($1::bigint[], $2::text[]) AS t (s, i)`},
		"a row twice": {noteTable,
			`INSERT INTO tooltape.note (seq, session_id) SELECT 1, '' FROM unnest($1::bigint[], $2::text[]), generate_series(1, 2)
			ON CONFLICT (session_id, seq) DO UPDATE SET seq = 2`},
		"a key too long": {noteTable,
			`INSERT INTO tooltape.note (seq, session_id) SELECT 1, (SELECT string_agg(md5(n::text), i) FROM generate_series(1, 5000) n)
			FROM unnest($1::bigint[], $2::text[]) AS t (s, i)`},
	} {
		t.Run(name, func(t *testing.T) {
			sink, pool, at := open(t, notes(c.table, c.insert))
			b := sinks.Batch{At: at, NextOffset: 1, Events: []sinks.Projected{noted(secret, 100_000)}}
			b.SetAside = []sinks.SetAside{{Code: event.BadKey, Since: time.Now()}}
			_, err := sink.Write(t.Context(), b)
			refused := &sinks.RefusedError{}
			if !errors.As(err, &refused) {
				t.Fatalf("got %v, want a RefusedError", err)
			}
			if strings.Contains(err.Error(), secret) || strings.Contains(err.Error(), "100000") {
				t.Errorf("%q shows the value", err)
			}
			if n := count(t, pool, "tooltape.note") + count(t, pool, "tooltape.watermark") + count(t, pool, "tooltape.set_aside"); n != 0 {
				t.Errorf("%d rows are there", n)
			}
			if now, err := sink.Refresh(t.Context(), at); err != nil || now != at {
				t.Errorf("the position is %+v (%v), want %+v", now, err, at)
			}
		})
	}
}

func TestAnUnknownCodeIsRefused(t *testing.T) {
	sink, _, at := open(t, notes(noteTable, insertNote))
	p := sinks.Parked{SessionID: "s", Code: "no_such_code", Since: time.Now()}
	_, err := sink.Write(t.Context(), sinks.Batch{At: at, Parked: []sinks.Parked{p}})
	if refused := (&sinks.RefusedError{}); !errors.As(err, &refused) || !strings.Contains(err.Error(), "parked_code") {
		t.Errorf("got %v", err)
	}
}

// A server that dies in the middle of a write is trouble, not a verdict; and nothing of the batch is there.
func TestAServerThatGoesAwayInAWrite(t *testing.T) {
	sink, pool, at := open(t, notes(noteTable, insertNote))
	holder, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = holder.Rollback(t.Context()) }()
	if _, err := holder.Exec(t.Context(), `LOCK TABLE tooltape.note IN EXCLUSIVE MODE`); err != nil {
		t.Fatal(err)
	}
	b := sinks.Batch{At: at, NextOffset: 1, Events: []sinks.Projected{noted("s", 1)}}
	written := make(chan error)
	go func() {
		_, err := sink.Write(t.Context(), b)
		written <- err
	}()
	await(t, pool, `SELECT count(pg_terminate_backend(pid)) > 0 FROM pg_stat_activity
		WHERE wait_event_type = 'Lock' AND datname = current_database()`)
	err = <-written
	if err == nil || errors.As(err, new(*sinks.RefusedError)) || errors.Is(err, sinks.ErrFenced) || errors.Is(err, sinks.ErrStale) {
		t.Errorf("got %v", err)
	}
	if err := holder.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if now, err := sink.Refresh(t.Context(), at); err != nil || now != at {
		t.Errorf("the position is %+v (%v), want %+v", now, err, at)
	}
	if _, err := sink.Write(t.Context(), b); err != nil {
		t.Error(err)
	}
}

// A holder whose write waits for the lock while another takes over must find that out behind the lock.
func TestAWriteThatWaitsWhileThePartitionIsTakenOver(t *testing.T) {
	sink, pool, at := open(t, notes(noteTable, insertNote))
	successor, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = successor.Rollback(t.Context()) }()
	if _, err := successor.Exec(t.Context(), `UPDATE tooltape.position SET epoch = epoch + 1`); err != nil {
		t.Fatal(err)
	}
	written := make(chan error)
	go func() {
		_, err := sink.Write(t.Context(), sinks.Batch{At: at, NextOffset: 1, Events: []sinks.Projected{noted("s", 1)}})
		written <- err
	}()
	await(t, pool, `SELECT count(*) > 0 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()`)
	if err := successor.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-written; !errors.Is(err, sinks.ErrFenced) {
		t.Errorf("got %v, want ErrFenced", err)
	}
	if n := count(t, pool, "tooltape.note"); n != 0 {
		t.Errorf("%d rows are there", n)
	}
}

// await asks until the answer is true.
func await(t *testing.T, pool *pgxpool.Pool, question string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for yes := false; !yes; {
		if err := pool.QueryRow(ctx, question).Scan(&yes); err != nil {
			t.Fatal(err)
		}
	}
}

func TestRowsOfAnotherBuilderVersion(t *testing.T) {
	view := notes(noteTable, insertNote)
	_, pool, at := open(t, view)
	view.BuilderVersion++
	_, err := postgres.New(pool, view).Acquire(t.Context(), 0, at.Topic)
	if !errors.As(err, new(*sinks.UnusableError)) || !strings.Contains(err.Error(), "builder version 2") {
		t.Errorf("got %v", err)
	}
	if n := count(t, pool, "tooltape.position WHERE epoch = 1"); n != 1 {
		t.Error("the epoch moved")
	}
}

// A second projection in the same database has positions and watermarks of its own.
func TestProjectionsApart(t *testing.T) {
	view := notes(noteTable, insertNote)
	first, pool, at := open(t, view)
	view.Name = "others"
	second := postgres.New(pool, view)
	other, err := second.Acquire(t.Context(), 0, at.Topic)
	if err != nil || other.Epoch != 1 {
		t.Fatalf("got %+v, %v", other, err)
	}
	if _, err := first.Write(t.Context(), sinks.Batch{At: at, NextOffset: 1, Events: []sinks.Projected{noted("s", 1)}}); err != nil {
		t.Fatal(err)
	}
	if known, err := second.Sessions(t.Context(), other, []string{"s"}); err != nil || len(known) != 0 {
		t.Errorf("got %v, %v", known, err)
	}
}

func TestLists(t *testing.T) {
	sink, pool, at := open(t, notes(noteTable, insertNote))
	since := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	b := sinks.Batch{At: at, NextOffset: 7}
	for _, id := range []string{"b", "a", "c"} {
		b.Parked = append(b.Parked, sinks.Parked{SessionID: id, Code: event.Gap, Message: "why", Since: since, Builds: []string{}})
	}
	b.Parked[2].Code = event.BadEvent
	for offset := range int64(3) {
		b.SetAside = append(b.SetAside, sinks.SetAside{Offset: 2 - offset, Value: []byte("v"), Code: event.BadKey, Since: since})
	}
	next, err := sink.Write(t.Context(), b)
	if err != nil {
		t.Fatal(err)
	}

	listParked := func(f postgres.ParkedFilter) (ids string) {
		all, err := postgres.ParkedSessions(t.Context(), pool, f)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range all {
			ids += p.SessionID
		}
		return ids
	}
	for want, f := range map[string]postgres.ParkedFilter{
		"abc": {}, "ab": {Code: event.Gap}, "b": {SessionID: "b"}, "": {Projection: "history"}, "a": {Projection: "notes", Limit: 1},
		"bc": {After: &postgres.ParkedSession{Projection: "notes", Parked: sinks.Parked{SessionID: "a"}}},
	} {
		if got := listParked(f); got != want {
			t.Errorf("%+v lists %q, want %q", f, got, want)
		}
	}
	aside, err := postgres.SetAside(t.Context(), pool, postgres.SetAsideFilter{Limit: 2})
	if err != nil || len(aside) != 2 || aside[0].Offset != 0 {
		t.Fatalf("set aside are %+v, %v", aside, err)
	}
	rest, err := postgres.SetAside(t.Context(), pool, postgres.SetAsideFilter{Projection: "notes", After: &aside[1]})
	want := []postgres.SetAsideRecord{{Projection: "notes", SetAside: b.SetAside[0]}}
	if err != nil || !reflect.DeepEqual(rest, want) {
		t.Errorf("the rest is %+v (%v), want %+v", rest, err, want)
	}
	positions, err := postgres.Positions(t.Context(), pool, "")
	if err != nil || !reflect.DeepEqual(positions, []postgres.ProjectionPosition{{"notes", 1, next}}) {
		t.Errorf("positions are %+v, %v", positions, err)
	}
}

// Every kind of column arrives as pgx itself would send it.
func TestColumns(t *testing.T) {
	pool := sinktest.Connect(t, sinktest.EmptyDatabase(t))
	at := time.Date(1987, 6, 5, 4, 3, 2, 1000, time.UTC)
	id := uuid.NewString()
	view := postgres.View{Name: "notes", BuilderVersion: 1, Migrations: fstest.MapFS{"migrations/0001_all.sql": {Data: []byte(
		`CREATE TABLE tooltape.everything (a text, b bigint, c integer, d boolean, e uuid, f timestamptz, g json, h bytea, i text)`)}},
		Rows: func(s *postgres.Statements, _ []*sinks.Projected) {
			a, b, c, d, e, f, g, h := s.Texts(), s.Bigints(), s.Integers(), s.Booleans(), s.UUIDs(), s.Times(), s.JSONs(), s.Bytes()
			a.Text("ä")
			b.Bigint(-1 << 63)
			c.Integer(-1 << 31)
			d.Boolean(true)
			e.UUID(id)
			f.Time(at)
			g.Text("[ 1 ]")
			h.Bytes([]byte{0})
			for _, column := range []*postgres.Column{a, b, c, d, e, f, g, h} {
				column.Null()
			}
			s.Add(`INSERT INTO tooltape.everything SELECT *, $9 FROM unnest($1::text[], $2::bigint[], $3::integer[], $4::boolean[], $5::uuid[],
				$6::timestamptz[], $7::json[], $8::bytea[])`, a, b, c, d, e, f, g, h, "scalar")
			s.Add(`INSERT INTO tooltape.everything (a) SELECT * FROM unnest($1::text[])`, s.Texts())
		}}
	if err := postgres.Migrate(t.Context(), pool, view); err != nil {
		t.Fatal(err)
	}
	sink := postgres.New(pool, view)
	p, err := sink.Acquire(t.Context(), 0, sinks.Topic{ID: id, Partitions: 1})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := sink.Write(t.Context(), sinks.Batch{At: p, Events: []sinks.Projected{noted("s", 1)}}); err != nil {
		t.Fatal(err)
	}
	rows, err := pool.Query(t.Context(), `
		SELECT a, b, c, d, e::text, extract(epoch FROM f)::text, g::text, h, i FROM tooltape.everything ORDER BY a`)
	if err != nil {
		t.Fatal(err)
	}
	got, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) ([]any, error) { return row.Values() })
	want := [][]any{
		{"ä", int64(-1 << 63), int32(-1 << 31), true, id, "549864182.000001", "[ 1 ]", []byte{0}, "scalar"},
		{nil, nil, nil, nil, nil, nil, nil, nil, "scalar"},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got  %v (%v)\nwant %v", got, err, want)
	}
}
