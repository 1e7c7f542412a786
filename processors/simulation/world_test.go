package simulation

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tooltape/tooltape/processors"
	"github.com/tooltape/tooltape/schemas"
	"github.com/tooltape/tooltape/sinks/memory"
)

const (
	oldBuild = "old"
	newBuild = "new"

	// patience is how much virtual time the processors have, once all is calm, to bring the tables to where they must be.
	patience = 5 * time.Minute
)

// world is one seed's brokers, tables, processors and faults.
type world struct {
	t          *testing.T
	seed       uint64
	began      time.Time
	virtual    kfake.VirtualNetwork
	cluster    *kfake.Cluster
	topics     schemas.Topics
	partitions int32
	tables     *memory.Sink
	rules      *rules
	load       []entry

	calm      atomic.Bool // no more faults
	deploy    time.Time   // from then on, the new build is started
	writes    atomic.Int64
	stallAt   map[int64]bool // the writes that stall
	processes sync.WaitGroup
	running   sync.Map // the names of those that run
	instances atomic.Int64
	static    bool
	kip848    bool

	mu       sync.Mutex
	schedule []string
	failures []string
	sentIDs  map[string]bool
	log      map[int32][]entry // what is acknowledged, in the order of its offsets
}

// random is a source of its own for each actor: what one of them draws does not depend on when the others do.
func random(seed uint64, actor int64) *rand.Rand { return rand.New(rand.NewPCG(seed, uint64(actor))) }

// note writes the schedule of faults down.
func (w *world) note(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.schedule = append(w.schedule, fmt.Sprintf("%9s %s", time.Since(w.began).Round(time.Millisecond), fmt.Sprintf(format, args...)))
}

func (w *world) fail(format string, args ...any) {
	w.note("WRONG: "+format, args...)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.failures = append(w.failures, fmt.Sprintf(format, args...))
}

// simulate runs one seed and says what was wrong, and what had been done to it.
func simulate(t *testing.T, seed uint64) (failures, schedule []string) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, seed)
		if seed == badBuildSeed {
			w.badBuild()
		} else if w.live(); len(w.failures) == 0 {
			w.rebuild()
		}
		failures, schedule = w.failures, w.schedule
	})
	return failures, schedule
}

func newWorld(t *testing.T, seed uint64) *world {
	r := random(seed, 0)
	w := &world{
		t: t, seed: seed, began: time.Now(), partitions: 2 + r.Int32N(3), tables: memory.New(), stallAt: map[int64]bool{int64(2 + r.IntN(12)): true},
		sentIDs: map[string]bool{}, log: map[int32][]entry{}, static: r.IntN(3) == 0, kip848: r.IntN(3) == 0,
	}
	if seed != badBuildSeed {
		w.load = newLoad(r, w.partitions)
	}
	for _, e := range w.load {
		w.sentIDs[e.session+"/"+e.id] = true
	}
	for range 1 + r.IntN(4) {
		w.stallAt[int64(10+r.IntN(80))] = true
	}
	w.rules = &rules{holder: map[int32]string{}, fail: w.fail, log: w.acknowledged,
		sent: func(session, id string) bool { return w.sentIDs[session+"/"+id] }}
	var err error
	w.cluster, err = kfake.NewCluster(kfake.NumBrokers(2), kfake.Ports(9092, 9093), kfake.ListenFn(w.virtual.Listen),
		kfake.BrokerConfigs(map[string]string{"group.consumer.heartbeat.interval.ms": "1500", "group.consumer.session.timeout.ms": "6000"}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		w.cluster.Close()
		time.Sleep(time.Second) // answers that are still delayed end
	})
	if err := w.cluster.CreateTopic(w.topics.Events(), w.partitions, map[string]string{"cleanup.policy": "compact", "delete.retention.ms": "604800000"}); err != nil {
		t.Fatal(err)
	}
	w.delay(random(seed, 4))
	w.note("%d records on %d partitions, static members %t, KIP-848 %t", len(w.load), w.partitions, w.static, w.kip848)
	return w
}

// delay makes each answer take its time. Without it, whoever asks again at once would ask for ever: the clock moves only while all wait.
func (w *world) delay(r *rand.Rand) {
	w.cluster.Control(func(kmsg.Request) (kmsg.Response, error, bool) {
		w.cluster.KeepControl()
		d := time.Duration(1+r.IntN(20)) * time.Millisecond
		if r.IntN(15) == 0 {
			d *= 30
		}
		w.cluster.SleepControl(func() { time.Sleep(d) })
		return nil, nil, false
	})
}

// acknowledged is the part of the log that is known, and that no compaction may have taken.
func (w *world) acknowledged(partition int32, from, to int64) []entry {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []entry
	for _, e := range compacted(w.log[partition]) {
		if e.offset >= from && e.offset < to {
			out = append(out, e)
		}
	}
	return out
}

func (w *world) stalls() bool { return w.stallAt[w.writes.Add(1)] && !w.calm.Load() }

// live writes the load while the processors run and everything that can fails, then lets the new build come to rest, and compares.
func (w *world) live() {
	r := random(w.seed, 1)
	w.deploy = w.began.Add(time.Duration(r.IntN(60_000)) * time.Millisecond)
	alive, stop := context.WithCancel(w.t.Context())
	var slots sync.WaitGroup
	defer slots.Wait()
	defer stop()
	for slot := range 2 + r.Int64N(2) {
		slots.Go(func() { w.keep(alive, slot, random(w.seed, 10+slot)) })
	}
	var trouble sync.WaitGroup
	over, end := context.WithCancel(alive)
	trouble.Go(func() { w.trouble(over, random(w.seed, 2)) })
	w.write(random(w.seed, 3))
	time.Sleep(max(0, time.Until(w.deploy)) + time.Duration(r.IntN(20_000))*time.Millisecond)
	end()
	trouble.Wait()
	w.calm.Store(true)
	w.note("calm")
	if !w.rests(w.tables) {
		w.fail("after %s of calm the processors have not come to rest: %s", patience, w.state(w.tables))
		return
	}
	stop()
	slots.Wait()
	w.processes.Wait()
	w.compare("live", w.tables, expect(w.wholeLog()))
}

// wholeLog is what was acknowledged, partition by partition.
func (w *world) wholeLog() []entry {
	w.mu.Lock()
	defer w.mu.Unlock()
	var all []entry
	for p := range w.partitions {
		all = append(all, w.log[p]...)
	}
	return all
}

// write sends the load, some records at a time.
func (w *world) write(r *rand.Rand) {
	client := w.client()
	defer client.Close()
	w.send(client, w.nobodys("first"))
	pause := []int{200, 1000, 4000}[r.IntN(3)] // in milliseconds, at most
	for rest := w.load; len(rest) > 0; {
		if r.IntN(6) == 0 {
			w.abort(r)
		}
		n := min(len(rest), 1+r.IntN(12))
		w.send(client, rest[:n])
		rest = rest[n:]
		time.Sleep(time.Duration(r.IntN(pause)) * time.Millisecond)
	}
}

func (w *world) client() *kgo.Client {
	return must(kgo.NewClient(kgo.SeedBrokers(w.cluster.ListenAddrs()...), kgo.Dialer(w.virtual.DialContext), kgo.MetadataMinAge(100*time.Millisecond),
		kgo.RecordPartitioner(kgo.ManualPartitioner())))
}

// nobodys are records of no session, one on each partition. As the first, it keeps kfake's compaction from moving the log's start, which
// Kafka's does not move, and which a processor takes for a loss. As the last, it lets kfake compact all before it.
func (w *world) nobodys(key string) []entry {
	var out []entry
	for p := range w.partitions {
		out = append(out, entry{kind: badKey, key: key, value: []byte("x"), partition: p})
	}
	return out
}

// abort writes events in a transaction that does not take: nobody may ever see them. Whether the brokers even heard of it does not matter.
func (w *world) abort(r *rand.Rand) {
	client := must(kgo.NewClient(kgo.SeedBrokers(w.cluster.ListenAddrs()...), kgo.Dialer(w.virtual.DialContext), kgo.MetadataMinAge(100*time.Millisecond),
		kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.TransactionalID("aborts"), kgo.TransactionTimeout(5*time.Second)))
	defer client.Close()
	if err := client.BeginTransaction(); err != nil {
		w.fail("the harness could not begin a transaction: %s", err)
		return
	}
	ids := 1 << 40 // none of the load's
	a := &author{Rand: r, session: fmt.Sprintf("session-%d", r.IntN(8)), ids: &ids}
	var records []*kgo.Record
	for range 1 + r.IntN(3) {
		e := a.event(1+int64(r.IntN(5)), "", "")
		records = append(records, &kgo.Record{Topic: w.topics.Events(), Partition: schemas.Partition(a.session, w.partitions), Key: []byte(e.key), Value: e.value})
	}
	err := client.ProduceSync(w.t.Context(), records...).FirstErr()
	w.note("a transaction of %d events of %s is aborted (%v, %v)", len(records), a.session, err, client.EndTransaction(w.t.Context(), kgo.TryAbort))
}

// send waits for the brokers' word, and writes down where each record lies.
func (w *world) send(client *kgo.Client, entries []entry) {
	var records []*kgo.Record
	var sent []entry
	for _, e := range entries {
		if e.after > 0 && w.tables.Session(e.session).Watermark.Seq < e.after {
			continue
		}
		sent = append(sent, e)
		records = append(records, &kgo.Record{Topic: w.topics.Events(), Partition: e.partition, Key: []byte(e.key), Value: e.value})
	}
	if err := client.ProduceSync(w.t.Context(), records...).FirstErr(); err != nil {
		w.fail("the harness could not write: %s", err)
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, r := range records {
		sent[i].offset = r.Offset
		w.log[r.Partition] = append(w.log[r.Partition], sent[i])
	}
}

// keep keeps one processor running, as an orchestrator does: it is killed, stopped, and started again, as the build of the day.
func (w *world) keep(alive context.Context, slot int64, r *rand.Rand) {
	for alive.Err() == nil {
		build := newBuild
		until := time.Duration(r.IntN(90_000)) * time.Millisecond
		if time.Now().Before(w.deploy) {
			build, until = oldBuild, min(until, time.Until(w.deploy))
		}
		if w.calm.Load() {
			until = time.Hour
		}
		i := w.start(alive, slot, build, w.tables, "history")
		timer := time.NewTimer(until)
		select {
		case <-timer.C:
		case <-i.ended:
		case <-alive.Done():
		}
		timer.Stop()
		if alive.Err() == nil && r.IntN(2) == 0 {
			w.note("%s is killed", i.name)
			i.net.set(true) // for good: it does not even leave the group
		}
		i.cancel()
		select {
		case <-alive.Done():
		case <-time.After(time.Duration(r.IntN(3000)) * time.Millisecond):
		}
	}
}

// instance is a running processor.
type instance struct {
	name      string
	processor *processors.Processor
	net       *network
	cancel    context.CancelFunc
	ended     chan struct{}
}

func (w *world) start(ctx context.Context, slot int64, build string, tables *memory.Sink, projection string) *instance {
	n := w.instances.Add(1)
	ctx, cancel := context.WithCancel(ctx)
	i := &instance{name: fmt.Sprintf("%s#%d of slot %d", build, n, slot), net: &network{virtual: &w.virtual}, cancel: cancel, ended: make(chan struct{})}
	s := &store{world: w, Sink: tables, name: i.name, build: build, inner: tables, net: i.net, rng: random(w.seed, 1000+n)}
	cfg := processors.Config{
		Projection: projection, Topics: w.topics, Sink: s, Decoder: s.decoder(), Build: build, ServerSideGroup: w.kip848,
		BatchRecords: w.batch(s.rng),
		Kafka: []kgo.Opt{kgo.SeedBrokers(w.cluster.ListenAddrs()...), kgo.Dialer(i.net.dial), kgo.MetadataMinAge(100 * time.Millisecond),
			kgo.ClientID(i.name)},
	}
	if w.static {
		cfg.InstanceID = fmt.Sprint("slot-", slot)
	}
	p := must(processors.New(cfg))
	i.processor = p
	w.note("%s starts", i.name)
	inCalm := w.calm.Load()
	w.running.Store(i.name, true)
	w.processes.Go(func() {
		defer close(i.ended)
		defer w.running.Delete(i.name)
		if err := p.Run(ctx); err != nil {
			w.note("%s ended: %s", i.name, err)
			if inCalm && ctx.Err() == nil {
				w.fail("%s ended though all was calm: %s", i.name, err)
			}
		}
	})
	return i
}

// batch bounds the transactions: small ones meet each other more often.
func (w *world) batch(r *rand.Rand) int {
	if w.seed == badBuildSeed {
		return 0
	}
	return 1 + r.IntN(1+r.IntN(40))
}

// decoder reads what the build knows; the registry is away now and then.
func (s *store) decoder() *schemas.Decoder {
	return schemas.NewDecoder(func(_ context.Context, id uint32) (string, error) {
		text, known := schemaTexts[id]
		switch {
		case !s.calm.Load() && s.roll(10) == 0:
			return "", errRegistry
		case !known, s.build == oldBuild:
			return "", schemas.ErrUnknownID
		}
		return text, nil
	})
}

// trouble is what happens to the brokers and the log.
func (w *world) trouble(ctx context.Context, r *rand.Rand) {
	var faults []*kfake.FaultHandle
	defer func() {
		for _, f := range faults {
			f.Remove()
		}
	}()
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Duration(r.IntN(8000)) * time.Millisecond):
		}
		switch r.IntN(6) {
		case 0:
			w.note("the coordinators move")
			w.cluster.RehashCoordinators()
		case 1:
			p, n := r.Int32N(w.partitions), r.Int32N(2)
			w.note("partition %d moves to broker %d", p, n)
			if err := w.cluster.MoveTopicPartition(w.topics.Events(), p, n); err != nil {
				w.fail("moving a partition: %s", err)
			}
		case 2, 3:
			w.note("the log is compacted")
			w.cluster.Compact()
		default:
			f := brokerFaults[r.IntN(len(brokerFaults))]
			f.Count = 1 + r.IntN(4)
			w.note("the next %d requests %v end with %v", f.Count, f.Keys[0].Name(), f.Err.Message)
			faults = append(faults, w.cluster.Fault(f))
		}
	}
}

// brokerFaults are answers that a broker gives in its worse hours.
var brokerFaults = []kfake.Fault{
	{Keys: []kmsg.Key{kmsg.Fetch}, Err: kerr.NotLeaderForPartition},
	{Keys: []kmsg.Key{kmsg.Fetch}, Err: kerr.UnknownServerError},
	{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.NotEnoughReplicasAfterAppend},
	{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.RequestTimedOut},
	{Keys: []kmsg.Key{kmsg.ListOffsets}, Err: kerr.LeaderNotAvailable},
	{Keys: []kmsg.Key{kmsg.FindCoordinator}, Err: kerr.CoordinatorNotAvailable},
	{Keys: []kmsg.Key{kmsg.Heartbeat}, Err: kerr.RebalanceInProgress},
	{Keys: []kmsg.Key{kmsg.Heartbeat}, Err: kerr.UnknownMemberID},
	{Keys: []kmsg.Key{kmsg.OffsetFetch}, Err: kerr.CoordinatorLoadInProgress},
	{Keys: []kmsg.Key{kmsg.OffsetCommit}, Err: kerr.NotCoordinator},
	{Keys: []kmsg.Key{kmsg.JoinGroup}, Err: kerr.UnknownMemberID},
	{Keys: []kmsg.Key{kmsg.SyncGroup}, Err: kerr.RebalanceInProgress},
}

// rests waits until the tables stand at the end of the log and nothing in them is due.
func (w *world) rests(tables *memory.Sink) bool {
	begun := time.Now()
	for i := 1; time.Since(begun) < patience; i++ {
		time.Sleep(500 * time.Millisecond)
		if i%100 == 0 {
			w.sendGhostsAway()
		}
		if w.atRest(tables) {
			time.Sleep(4 * time.Second) // longer than a second reader takes to look for what is due
			if w.atRest(tables) {
				return true
			}
		}
	}
	return false
}

// sendGhostsAway ends memberships that nobody has: kfake keeps some whose connection was cut during a rebalance, for ever, where Kafka's
// session timeout ends them. It comes long after any such timeout, and leaves the living alone.
func (w *world) sendGhostsAway() {
	group := w.topics.Group("history")
	g := w.cluster.GroupInfo(group)
	if g == nil || w.kip848 {
		return
	}
	of := map[string]int{}
	for _, m := range g.Members {
		of[m.ClientID]++
	}
	client := w.client()
	defer client.Close()
	for _, m := range g.Members {
		if _, runs := w.running.Load(m.ClientID); runs && of[m.ClientID] == 1 {
			continue
		}
		w.note("the group still has a member of %s, %d of that name: it is sent away", m.ClientID, of[m.ClientID])
		req := kmsg.NewPtrLeaveGroupRequest()
		req.Group, req.MemberID = group, m.MemberID
		leaves := kmsg.NewLeaveGroupRequestMember()
		leaves.MemberID, leaves.InstanceID = m.MemberID, m.InstanceID
		req.Members = append(req.Members, leaves)
		if _, err := req.RequestWith(w.t.Context(), client); err != nil {
			w.fail("the harness could not send a member away: %s", err)
		}
	}
}

func (w *world) atRest(tables *memory.Sink) bool {
	positions := tables.Positions()
	for _, p := range w.cluster.PartitionInfos(w.topics.Events()) {
		if positions[p.Partition].NextOffset != p.HighWatermark {
			return false
		}
	}
	for _, p := range tables.Parked() {
		if p.Code != conflict && (p.Due || !slices.Contains(p.Builds, newBuild)) {
			return false
		}
	}
	return true
}

func (w *world) state(tables *memory.Sink) string {
	var b strings.Builder
	for _, p := range w.cluster.PartitionInfos(w.topics.Events()) {
		fmt.Fprintf(&b, "partition %d at %+v of %d; ", p.Partition, tables.Positions()[p.Partition], p.HighWatermark)
	}
	if g := w.cluster.GroupInfo(w.topics.Group("history")); g != nil {
		fmt.Fprintf(&b, "the group is %s; ", g.State)
		for _, m := range g.Members {
			fmt.Fprintf(&b, "%s has %v; ", m.ClientID, m.Assignment)
		}
	}
	for id, p := range tables.Parked() {
		fmt.Fprintf(&b, "%s parked at %d for %s (%s), due %t, tried by %v; ", id, p.Seq, p.Code, p.Message, p.Due, p.Builds)
	}
	return b.String()
}

// rebuild projects what compaction has left of the log into empty tables.
func (w *world) rebuild() {
	client := w.client()
	w.send(client, w.nobodys("last"))
	client.Close()
	w.cluster.Compact()
	scratch := memory.New()
	ctx, cancel := context.WithCancel(w.t.Context())
	defer w.processes.Wait()
	defer cancel()
	w.start(ctx, 0, newBuild, scratch, "rebuild")
	if !w.rests(scratch) {
		w.fail("the rebuild has not come to rest: %s", w.state(scratch))
		return
	}
	cancel()
	w.processes.Wait()
	w.compare("rebuild", scratch, expect(compacted(w.wholeLog())))
	w.erased()
}

// badBuild is the world of the build that would park all: it must stop and change nothing, and the next one must project all.
func (w *world) badBuild() {
	a := &author{Rand: random(w.seed, 5), session: "fine", ids: new(int)}
	for i := range 60 {
		a.session = fmt.Sprintf("session-%d", i)
		e := a.event(1, "", "")
		for e.value[0] != 0 { // until it is one that the old build cannot read
			e = a.event(1, "", "")
		}
		e.partition = schemas.Partition(a.session, w.partitions)
		w.load = append(w.load, e)
		w.sentIDs[e.session+"/"+e.id] = true
	}
	client := w.client()
	w.send(client, w.load)
	client.Close()
	w.calm.Store(true)
	ctx, cancel := context.WithCancel(w.t.Context())
	defer w.processes.Wait()
	defer cancel()
	old := w.start(ctx, 0, oldBuild, w.tables, "history")
	time.Sleep(time.Minute)
	var stopped *processors.BadBuildError
	if err := old.processor.Ready(); !errors.As(err, &stopped) {
		w.fail("the old build says it is well: %v", err)
	}
	if n := len(w.tables.Parked()) + len(w.tables.Watermarks()); n > 0 {
		w.fail("the old build has touched %d sessions", n)
	}
	old.cancel()
	<-old.ended
	w.start(ctx, 0, newBuild, w.tables, "history")
	if !w.rests(w.tables) {
		w.fail("the new build has not come to rest: %s", w.state(w.tables))
	}
	w.compare("live", w.tables, expect(w.wholeLog()))
}
