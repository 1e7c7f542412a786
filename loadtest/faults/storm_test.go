package faults_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/tooltape/tooltape/loadtest/faults"
	"github.com/tooltape/tooltape/loadtest/tooltapetest"
	"github.com/tooltape/tooltape/processors/topics/topicstest"
	"github.com/tooltape/tooltape/producer"
	"github.com/tooltape/tooltape/schemas"
	"github.com/tooltape/tooltape/schemas/event"
	"github.com/tooltape/tooltape/sinks/sinktest"
)

const stormPartitions = 8

var storm = flag.Int("storm", 1, "how many times the ordinary number of faults; 10 is what a release is held to")

// fault is one way to break things, and how often a storm of size 1 does it.
type fault struct {
	name  string
	times int
	// strike breaks something, and mends what would not mend itself.
	strike func(*weather)
	// needs is a service that must be the test's own; empty: none.
	needs string
}

var faultList = []fault{
	{name: "kill at a random moment", times: 3, strike: func(w *weather) { w.pause(1000); w.replace() }},
	{name: "kill while a partition is taken over", times: 1, strike: func(w *weather) { w.replace(); w.await(epochMoved); w.replace() }},
	{name: "kill in a transaction", times: 1, strike: func(w *weather) { w.await(inTransaction); w.replace() }},
	{name: "rebalance", times: 2, strike: func(w *weather) { w.rebalance() }},
	{name: "zombie", times: 1, strike: func(w *weather) { w.zombie() }},
	{name: "terminated backends", times: 5, strike: func(w *weather) { w.terminate() }},
	{name: "restart of PostgreSQL", times: 1, needs: "postgres", strike: func(w *weather) { w.crash("postgres") }},
	{name: "hard restart of the broker", times: 1, needs: "kafka", strike: func(w *weather) { w.crash("kafka") }},
}

// weather is a storm over an installation: two processors, of which one after the other is struck.
type weather struct {
	*testing.T
	in     tooltapetest.Install
	pool   *pgxpool.Pool
	random *rand.Rand
	procs  [2]*tooltapetest.Process
	next   int
}

func (w *weather) pause(upToMillis int) {
	<-time.After(time.Duration(w.random.IntN(upToMillis)) * time.Millisecond)
}

func (w *weather) start(i int) *tooltapetest.Process {
	return tooltapetest.Start(w, w.in.Env, "run", "history", "--instance-id", fmt.Sprint("instance-", i), "--batch-records", "200")
}

// replace kills a processor and starts it again.
func (w *weather) replace() {
	i := w.next % len(w.procs)
	w.next++
	w.procs[i].Kill()
	w.procs[i] = w.start(i)
}

// await waits for a moment that the database shows, a few seconds at most: it may not come again.
func (w *weather) await(moment string) {
	for deadline := time.Now().Add(3 * time.Second); time.Now().Before(deadline); {
		var is bool
		if err := w.pool.QueryRow(w.Context(), moment).Scan(&is); err == nil && is {
			return
		}
	}
}

const (
	epochMoved    = `SELECT pg_sleep(0.002) IS NOT NULL AND EXISTS (SELECT FROM pg_stat_activity WHERE query LIKE '%tooltape.position AS p%' AND datname = current_database() AND pid <> pg_backend_pid())`
	inTransaction = `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE backend_xid IS NOT NULL AND datname = current_database() AND pid <> pg_backend_pid())`
)

// rebalance lets a third processor come and go.
func (w *weather) rebalance() {
	p := tooltapetest.Start(w, w.in.Env, "run", "history")
	<-time.After(time.Second) // one that has not even begun would be ended by the signal
	w.pause(3000)
	if err := p.Stop(); err != nil {
		w.Errorf("the third processor did not stop well: %s", err)
	}
}

// zombie stalls a processor until the group has given it up, and then lets it go on.
func (w *weather) zombie() {
	p := w.procs[w.next%len(w.procs)]
	w.next++
	if err := p.Stall(); err != nil {
		w.Logf("nothing to stall: %s", err)
		return
	}
	<-time.After(8 * time.Second) // longer than its session lasts
	if err := p.Wake(); err != nil {
		w.Fatal(err)
	}
}

// terminate ends every connection that the processors have to the database.
func (w *weather) terminate() {
	_, err := w.pool.Exec(w.Context(), `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
		WHERE datname = current_database() AND application_name = 'tooltape' AND pid <> pg_backend_pid()`)
	if err != nil {
		w.Logf("terminating backends: %s", err) // it may have ended its own kin
	}
	w.pause(500)
}

// crash ends a real service at once and starts it again on its data.
func (w *weather) crash(service string) {
	for _, script := range []string{"kill", "up"} {
		cmd := exec.CommandContext(w.Context(), filepath.Join("..", "..", "deploy", "local", script), "--dir", os.Getenv("TOOLTAPE_TEST_SERVICES"), service)
		if out, err := cmd.CombinedOutput(); err != nil {
			w.Fatalf("%s %s: %s\n%s", script, service, err, out)
		}
	}
}

func TestAStormLosesNothingAndDoublesNothing(t *testing.T) {
	if topicstest.Real() && *storm == 1 {
		*storm = 10
	}
	in := tooltapetest.NewInstall(t, stormPartitions)
	w := &weather{T: t, in: in, pool: sinktest.Connect(t, in.Database), random: rand.New(rand.NewPCG(*seed, 2))}
	ledger := faults.NewLedger()
	loaded, enough := make(chan error, 1), make(chan struct{})
	appends := writer(t, in)
	go func() { loaded <- ledger.Load(t.Context(), appends, *seed, 2000, 10*time.Millisecond, enough) }()
	for i := range w.procs {
		w.procs[i] = w.start(i)
	}
	t.Cleanup(w.tell)
	var poisoned []string
	poisoning := make(chan struct{})
	go func() { defer close(poisoning); poisoned = poison(t, in, ledger, appends, 100**storm) }()
	t.Cleanup(func() { <-poisoning })
	struck := w.strikeAll()
	<-poisoning
	close(enough)
	if err := <-loaded; err != nil {
		t.Fatal(err)
	}
	sound(t, ledger, w.pool)
	t.Logf("%d events of %d sessions, %d poison records; faults: %v", ledger.Events(), ledger.Sessions(), len(poisoned), struck)

	withdraw(t, appends, poisoned)
	ledger.Cured()
	sound(t, ledger, w.pool)
	for _, p := range w.procs {
		if err := p.Stop(); err != nil {
			t.Error(err)
		}
	}
}

// supervise starts again what has ended by itself, as whatever runs processors does: one that starts in the middle of a fault may refuse to.
func (w *weather) supervise() {
	for i, p := range w.procs {
		select {
		case <-p.Ended():
			w.Logf("instance %d ended by itself and is started again: %s", i, p.Said())
			w.procs[i] = w.start(i)
		default:
		}
	}
}

// tell shows, where the test has failed, what the processors said to the end.
func (w *weather) tell() {
	if !w.Failed() {
		return
	}
	for i, p := range w.procs {
		select {
		case <-p.Ended():
			w.Logf("instance %d had ended by itself", i)
		default:
		}
		p.Kill()
		w.Logf("instance %d said: %s", i, p.Said())
	}
}

// strikeAll strikes with every fault as often as the storm is strong, in a random order.
func (w *weather) strikeAll() map[string]int {
	var order []fault
	for _, f := range faultList {
		if f.needs != "" && os.Getenv("TOOLTAPE_TEST_SERVICES") == "" {
			continue
		}
		for range f.times * *storm {
			order = append(order, f)
		}
	}
	w.random.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	struck := map[string]int{}
	defer w.supervise()
	rare := map[string]int{"restart of PostgreSQL": 5, "hard restart of the broker": 3, "zombie": 5}
	for _, f := range order {
		if most, ok := rare[f.name]; ok && struck[f.name] == most {
			continue
		}
		f.strike(w)
		w.supervise()
		struck[f.name]++
	}
	return struck
}

// poison ends sessions with records that no build can read, of every kind in turn.
func poison(t *testing.T, in tooltapetest.Install, ledger *faults.Ledger, w *producer.Writer, n int) []string {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(topicstest.Brokers(t)...), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Error(err)
		return nil
	}
	defer client.Close()
	kinds := []struct {
		code event.Code
		make func(good []byte) []byte
	}{
		{event.BadFrame, func([]byte) []byte { return []byte("not Avro at all") }},
		{event.BadPayload, func(good []byte) []byte { return good[:len(good)-2] }},
		{event.LeftOverBytes, func(good []byte) []byte { return append(good, 0) }},
		{event.UnknownSchema, func(good []byte) []byte { return append([]byte{0, 0, 0, 0, 1}, good[10:]...) }},
		{event.BadEnvelope, func(good []byte) []byte { return append(good[:10:10], 0xfe, 0xff, 0xff, 0xff, 0x0f) }},
		{event.KeyMismatch, nil},
		{event.Gap, nil},
	}
	var ids []string
	for i := range n {
		id, kind := fmt.Sprint("poisoned-", i), kinds[i%len(kinds)]
		recorded, err := faults.Append(t.Context(), w, id, message("good"), message("good too"))
		if t.Context().Err() != nil { // the test has failed elsewhere
			return ids
		}
		if err != nil {
			t.Error(err)
			return ids
		}
		ledger.Add(recorded)
		next := recorded[1]
		next.Seq, next.PrevEventID, next.EventID = 3, event.Some(recorded[1].EventID), poisonID(i)
		key := schemas.EventKey(id, 3, next.EventID)
		switch kind.code {
		case event.KeyMismatch:
			next.EventID = recorded[0].EventID
		case event.Gap:
			next.Seq = 5
			key = schemas.EventKey(id, 5, next.EventID)
		}
		value := encoded(t, next)
		if kind.make != nil {
			value = kind.make(value)
		}
		r := &kgo.Record{Topic: in.Topics.Events(), Partition: schemas.Partition(id, stormPartitions), Key: []byte(key), Value: value}
		if err := client.ProduceSync(t.Context(), r).FirstErr(); err != nil {
			t.Error(err)
			return ids
		}
		ledger.Poisoned(id, kind.code)
		ids = append(ids, id)
		<-time.After(100 * time.Millisecond) // among the others, not all at once: that would be a bad build's doing
	}
	return ids
}

func poisonID(i int) string { return fmt.Sprintf("018f0000-0000-7000-8000-%012d", i) }

func encoded(t *testing.T, e event.Event) []byte {
	t.Helper()
	stored, err := schemas.StoredOf(e)
	if err != nil {
		t.Fatal(err)
	}
	value, err := schemas.NewEncoder().Encode(nil, stored)
	if err != nil {
		t.Fatal(err)
	}
	return value
}

// withdraw takes the poison back, as tooltape settle --withdraw does.
func withdraw(t *testing.T, w *producer.Writer, ids []string) {
	t.Helper()
	for i, id := range ids {
		for _, seq := range []int64{3, 5} {
			key := schemas.Key{SessionID: id, Seq: seq, EventID: poisonID(i)}
			marker := schemas.Key{SessionID: id, Marker: schemas.WithdrawnMarker, EventID: poisonID(i)}
			at := producer.Erasure{Partition: schemas.Partition(id, stormPartitions), Key: key}
			if err := w.Erase(context.WithoutCancel(t.Context()), "poison", []schemas.Key{marker}, []producer.Erasure{at}); err != nil {
				t.Fatal(err)
			}
		}
	}
}
