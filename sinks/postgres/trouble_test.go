package postgres_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tooltape/tooltape/deploy/local"
	"github.com/tooltape/tooltape/sinks"
	"github.com/tooltape/tooltape/sinks/postgres"
	"github.com/tooltape/tooltape/sinks/sinktest"
)

// onceOnly makes a note twice an error.
const onceOnly = `INSERT INTO tooltape.note (seq, session_id) SELECT * FROM unnest($1::bigint[], $2::text[])`

// isTrouble says that an error is the server's trouble, to be waited out, and not a verdict. The state is the one wanted, if any is.
func isTrouble(t *testing.T, err error, state string) {
	t.Helper()
	if err == nil || errors.As(err, new(*sinks.RefusedError)) || errors.As(err, new(*sinks.UnusableError)) ||
		errors.Is(err, sinks.ErrFenced) || errors.Is(err, sinks.ErrStale) {
		t.Fatalf("got %v", err)
	}
	if pg := (*pgconn.PgError)(nil); state != "" && (!errors.As(err, &pg) || pg.Code != state) {
		t.Fatalf("got %v, want SQLSTATE %s", err, state)
	}
}

// goesThrough says that a write of one note that had failed changed nothing, and goes through now.
func goesThrough(t *testing.T, sink *postgres.Sink, b sinks.Batch) sinks.Position {
	t.Helper()
	if now, err := sink.Refresh(t.Context(), b.At); err != nil || now != b.At {
		t.Errorf("the position is %+v (%v), want %+v", now, err, b.At)
	}
	return write(t, sink, b)
}

func TestADeadlockIsTrouble(t *testing.T) {
	sink, pool, at := open(t, notes(noteTable, onceOnly))
	b := sinks.Batch{At: at, NextOffset: 1, Events: []sinks.Projected{noted("s", 1)}}
	// The one that has waited longest notices, and is the victim: the write, unless the other comes late.
	for range 5 {
		err := deadlock(t, sink, pool, b)
		if err != nil {
			isTrouble(t, err, "40P01")
			goesThrough(t, sink, b)
			return
		}
		b = sinks.Batch{At: b.At, NextOffset: b.NextOffset + 1, Events: []sinks.Projected{noted("s", b.NextOffset+1)}}
		b.At.NextOffset, b.At.Batch = b.At.NextOffset+1, b.At.Batch+1
	}
	t.Error("the write was never the victim")
}

// deadlock writes against a transaction that holds the table of notes and then wants the position; nil where that was the victim.
func deadlock(t *testing.T, sink *postgres.Sink, pool *pgxpool.Pool, b sinks.Batch) error {
	t.Helper()
	other, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.Rollback(t.Context()) }()
	if _, err := other.Exec(t.Context(), `LOCK TABLE tooltape.note IN EXCLUSIVE MODE`); err != nil {
		t.Fatal(err)
	}
	written := make(chan error)
	go func() {
		_, err := sink.Write(t.Context(), b)
		written <- err
	}()
	await(t, pool, `SELECT count(*) > 0 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()`)
	_, _ = other.Exec(t.Context(), `UPDATE tooltape.position SET epoch = epoch`) // one of the two fails
	_ = other.Rollback(t.Context())
	return <-written
}

// Some servers default to a stricter isolation.
func TestASerializationFailureIsTrouble(t *testing.T) {
	view := notes(noteTable, onceOnly)
	address := sinktest.Database(t, view)
	pool := sinktest.Connect(t, withParameter(t, address, "default_transaction_isolation", "serializable"))
	sink := postgres.New(pool, view)
	at, err := sink.Acquire(t.Context(), 0, sinks.Topic{ID: noID, Partitions: 1})
	if err != nil {
		t.Fatal(err)
	}
	other, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.Rollback(t.Context()) }()
	if _, err := other.Exec(t.Context(), `UPDATE tooltape.position SET batch = batch + 1`); err != nil {
		t.Fatal(err)
	}
	b := sinks.Batch{At: at, NextOffset: 1, Events: []sinks.Projected{noted("s", 1)}}
	written := make(chan error)
	go func() {
		_, err := sink.Write(t.Context(), b)
		written <- err
	}()
	await(t, pool, `SELECT count(*) > 0 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()`)
	if err := other.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	isTrouble(t, <-written, "40001")
	if b.At, err = sink.Refresh(t.Context(), at); err != nil || b.At.Batch != at.Batch+1 {
		t.Errorf("the position is %+v, %v", b.At, err)
	}
	write(t, sink, b)
}

const noID = "00000000-0000-4000-8000-000000000000"

// withParameter is an address with one more parameter.
func withParameter(t *testing.T, address, name, value string) string {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	q.Set(name, value)
	u.RawQuery = q.Encode()
	return u.String()
}

// A server that takes no writes for now, as one that was failed over from: the write waits, and goes on at a server that does, though
// the connection to the old one stands.
func TestAReadOnlyServerIsTrouble(t *testing.T) {
	view := notes(noteTable, onceOnly)
	address := sinktest.Database(t, view)
	owner := sinktest.Connect(t, address)
	set := func(to string) {
		t.Helper()
		if _, err := owner.Exec(t.Context(), `DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET default_transaction_read_only = `+to+`', current_database()); END $$`); err != nil {
			t.Fatal(err)
		}
	}
	pool := sinktest.Connect(t, withParameter(t, address, "pool_max_conns", "1"))
	sink := postgres.New(pool, view)
	acquire := func() (sinks.Position, error) {
		return sink.Acquire(t.Context(), 0, sinks.Topic{ID: noID, Partitions: 1})
	}

	set("on")
	_, err := acquire()
	isTrouble(t, err, "25006")
	set("off")
	at, err := acquire()
	if err != nil {
		t.Fatal(err)
	}
	pool.Reset()
	set("on")
	b := sinks.Batch{At: at, NextOffset: 1, Events: []sinks.Projected{noted("s", 1)}}
	_, err = sink.Write(t.Context(), b)
	isTrouble(t, err, "25006")
	set("off")
	goesThrough(t, sink, b)
}

// 57P01 is what a server says that is shut down; at first the connections of the pool are those of the old one.
func TestAServerThatIsRestarted(t *testing.T) {
	dir := t.TempDir()
	for _, d := range []string{dir, filepath.Dir(dir)} { // the server may run as another user
		if err := os.Chmod(d, 0o711); err != nil {
			t.Fatal(err)
		}
	}
	start := func(port int) *local.Postgres {
		server, err := local.StartPostgres(t.Context(), local.PostgresOptions{Dir: dir, Port: port, NoSync: true, Log: os.Stderr})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = server.Stop() })
		return server
	}
	server := start(0)
	view := notes(noteTable, onceOnly)
	pool := sinktest.Connect(t, server.URL)
	migrate(t, pool, view)
	sink := postgres.New(pool, view)
	at, err := sink.Acquire(t.Context(), 0, sinks.Topic{ID: noID, Partitions: 1})
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Stop(); err != nil {
		t.Fatal(err)
	}
	b := sinks.Batch{At: at, NextOffset: 1, Events: []sinks.Projected{noted("s", 1)}}
	for range 2 { // over the old connection, then over none
		_, err := sink.Write(t.Context(), b)
		isTrouble(t, err, "")
	}
	address, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.Atoi(address.Port())
	if err != nil {
		t.Fatal(err)
	}
	start(port)
	goesThrough(t, sink, b)
}

// persist writes a note a batch until n of them are stored, as a processor would: after an error it asks where the position is. It returns
// how many errors there were, and after how many of them the batch was stored all the same.
func persist(t *testing.T, sink *postgres.Sink, at sinks.Position, n int64) (errs, took int) {
	t.Helper()
	for at.NextOffset < n {
		b := sinks.Batch{At: at, NextOffset: at.NextOffset + 1, Events: []sinks.Projected{noted("s"+strconv.FormatInt(at.NextOffset%7, 10), at.NextOffset/7+1)}}
		next, err := sink.Write(t.Context(), b)
		if err == nil {
			at = next
			continue
		}
		isTrouble(t, err, "")
		errs++
		for at, err = sink.Refresh(t.Context(), b.At); err != nil; at, err = sink.Refresh(t.Context(), b.At) {
			isTrouble(t, err, "")
		}
		switch at {
		case b.At:
		case sinks.Position{Partition: 0, Topic: at.Topic, NextOffset: b.NextOffset, Epoch: at.Epoch, Batch: b.At.Batch + 1}:
			took++
		default:
			t.Fatalf("the position is %+v after a write at %+v", at, b.At)
		}
	}
	return errs, took
}

func TestConnectionsThatAreKilledWhileWriting(t *testing.T) {
	const batches = 300
	view := notes(noteTable, onceOnly)
	address := sinktest.Database(t, view)
	killer := sinktest.Connect(t, address)
	sink := postgres.New(sinktest.Connect(t, withParameter(t, address, "application_name", "victim")), view)
	at, err := sink.Acquire(t.Context(), 0, sinks.Topic{ID: noID, Partitions: 1})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	killed := make(chan int)
	go func() {
		total := 0
		for ctx.Err() == nil {
			n := 0
			err := killer.QueryRow(ctx, `SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
				WHERE application_name = 'victim' AND datname = current_database() AND state = 'active' AND random() < 0.3`).Scan(&n)
			if err != nil && ctx.Err() == nil {
				t.Error(err)
				break
			}
			total += n
		}
		killed <- total
	}()
	errs, took := persist(t, sink, at, batches)
	stop()
	t.Logf("%d connections killed, %d writes failed, of which %d were stored", <-killed, errs, took)
	if errs == 0 {
		t.Error("no write was hit")
	}
	if n := count(t, killer, "tooltape.note"); n != batches {
		t.Errorf("%d notes, want %d", n, batches)
	}
}

// The answer to every third write is lost with its connection, when the write is stored.
func TestAnswersThatAreLost(t *testing.T) {
	const batches = 30
	view := notes(noteTable, onceOnly)
	address := sinktest.Database(t, view)
	direct := sinktest.Connect(t, address)
	through, lose := lossy(t, address)
	sink := postgres.New(sinktest.Connect(t, through), view)
	at, err := sink.Acquire(t.Context(), 0, sinks.Topic{ID: noID, Partitions: 1})
	if err != nil {
		t.Fatal(err)
	}
	for n := int64(1); n <= batches; n++ {
		lose.Store(n%3 == 0)
		errs, took := persist(t, sink, at, n)
		if lost := n%3 == 0; (errs == 1) != lost || took != errs {
			t.Fatalf("write %d: %d errors, stored all the same: %d", n, errs, took)
		}
		if at, err = sink.Refresh(t.Context(), at); err != nil {
			t.Fatal(err)
		}
	}
	if n := count(t, direct, "tooltape.note"); n != batches {
		t.Errorf("%d notes, want %d", n, batches)
	}
}

// lossy is the address of a proxy before a server. While lose is set, it cuts the next connection over which the server answers, once,
// and drops the answer.
func lossy(t *testing.T, address string) (string, *atomic.Bool) {
	t.Helper()
	config, err := pgx.ParseConfig(address)
	if err != nil {
		t.Fatal(err)
	}
	server := net.JoinHostPort(config.Host, strconv.Itoa(int(config.Port)))
	network := "tcp"
	if strings.HasPrefix(config.Host, "/") {
		network, server = "unix", config.Host+"/.s.PGSQL."+strconv.Itoa(int(config.Port))
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	lose := &atomic.Bool{}
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			upstream, err := net.Dial(network, server)
			if err != nil {
				_ = client.Close()
				continue
			}
			go func() { _, _ = io.Copy(upstream, client); _ = upstream.Close() }()
			go func() { answer(client, upstream, lose); _ = client.Close() }()
		}
	}()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	u.Host = listener.Addr().String()
	return withParameter(t, u.String(), "sslmode", "disable"), lose
}

// answer passes on what the server says, until it is to be lost.
func answer(client io.Writer, server io.Reader, lose *atomic.Bool) {
	buf := make([]byte, 64<<10)
	for {
		n, err := server.Read(buf)
		if err != nil || lose.CompareAndSwap(true, false) {
			return
		}
		if _, err := client.Write(buf[:n]); err != nil {
			return
		}
	}
}

// A server that does not take a connection has said nothing of a batch.
func TestAConnectionThatIsRefusedIsTrouble(t *testing.T) {
	view := notes(noteTable, onceOnly)
	address := sinktest.Database(t, view)
	for state, parameter := range map[string][2]string{
		"22023": {"default_transaction_isolation", "nonsense"}, "42704": {"nonsense", "1"},
	} {
		sink := postgres.New(sinktest.Connect(t, withParameter(t, address, parameter[0], parameter[1])), view)
		_, err := sink.Acquire(t.Context(), 0, sinks.Topic{ID: noID, Partitions: 1})
		isTrouble(t, err, state)
		_, err = sink.Write(t.Context(), sinks.Batch{})
		isTrouble(t, err, state)
	}
}
