package simulation

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/tooltape/tooltape/processors/projection"
	"github.com/tooltape/tooltape/schemas/event"
	"github.com/tooltape/tooltape/sinks"
	"github.com/tooltape/tooltape/sinks/memory"
)

// network is the connections of one instance, so that they can be cut.
type network struct {
	virtual *kfake.VirtualNetwork
	mu      sync.Mutex
	cut     bool
	open    []net.Conn
}

var errUnreachable = errors.New("simulated: the network is cut")

func (n *network) dial(ctx context.Context, proto, addr string) (net.Conn, error) {
	select { // who dials again at once must not do so for ever: the clock moves only while all wait
	case <-time.After(time.Millisecond):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	c, err := n.virtual.DialContext(ctx, proto, addr)
	if err != nil {
		return nil, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.cut {
		return nil, errors.Join(errUnreachable, c.Close())
	}
	n.open = append(n.open, c)
	return c, nil
}

// set cuts the network or mends it.
func (n *network) set(cut bool) {
	n.mu.Lock()
	open := n.open
	n.cut, n.open = cut, nil
	n.mu.Unlock()
	for _, c := range open {
		_ = c.Close()
	}
}

var (
	errStore      = errors.New("simulated: the store is away")
	errRegistry   = errors.New("simulated: the schema registry is away")
	errLostAnswer = errors.New("simulated: the store's answer was lost")
)

// store is the tables as one instance reaches them: slowly, not always, and now and then only after it was taken for dead.
type store struct {
	*world
	sinks.Sink // as it is, for what is not disturbed below
	name       string
	build      string
	inner      *memory.Sink
	net        *network
	mu         sync.Mutex
	rng        *rand.Rand
}

var _ sinks.Sink = (*store)(nil)

func (s *store) roll(n int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rng.IntN(n)
}

// before is what happens on the way to the store.
func (s *store) before(ctx context.Context) error {
	if s.calm.Load() {
		return nil
	}
	slow := 40
	if s.roll(12) == 0 {
		slow = 1500
	}
	select {
	case <-time.After(time.Duration(s.roll(slow)) * time.Millisecond):
	case <-ctx.Done():
		return ctx.Err()
	}
	if s.roll(30) == 0 {
		return errStore
	}
	return nil
}

// after is what happens on the way back.
func (s *store) after(err error) error {
	if err == nil && !s.calm.Load() && s.roll(30) == 0 {
		return errLostAnswer
	}
	return err
}

func (s *store) Position(ctx context.Context, partition int32) (sinks.Position, bool, error) {
	if err := s.before(ctx); err != nil {
		return sinks.Position{}, false, err
	}
	return s.inner.Position(ctx, partition)
}

func (s *store) Acquire(ctx context.Context, partition int32, topic sinks.Topic) (sinks.Position, error) {
	if err := s.before(ctx); err != nil {
		return sinks.Position{}, err
	}
	at, err := s.rules.acquire(s.name, partition, func() (sinks.Position, error) { return s.inner.Acquire(ctx, partition, topic) })
	return at, s.after(err)
}

func (s *store) Refresh(ctx context.Context, at sinks.Position) (sinks.Position, error) {
	if err := s.before(ctx); err != nil {
		return sinks.Position{}, err
	}
	return s.inner.Refresh(ctx, at)
}

func (s *store) Sessions(ctx context.Context, at sinks.Position, ids []string) (map[string]sinks.Session, error) {
	if err := s.before(ctx); err != nil {
		return nil, err
	}
	return s.inner.Sessions(ctx, at, ids)
}

func (s *store) EventIDs(ctx context.Context, places []sinks.Place) (map[sinks.Place]string, error) {
	if err := s.before(ctx); err != nil {
		return nil, err
	}
	return s.inner.EventIDs(ctx, places)
}

func (s *store) Due(ctx context.Context, partition int32, build string) ([]sinks.Parked, error) {
	if err := s.before(ctx); err != nil {
		return nil, err
	}
	return s.inner.Due(ctx, partition, build)
}

func (s *store) Write(ctx context.Context, b sinks.Batch) (sinks.Position, error) {
	if s.stalls() {
		ctx = s.stall(ctx)
	}
	if err := s.before(ctx); err != nil { // a write that fails
		return sinks.Position{}, err
	}
	if s.build == oldBuild && slices.ContainsFunc(b.Events, isNewThing) {
		return sinks.Position{}, &sinks.RefusedError{Message: "it holds a " + newThing}
	}
	at, err := s.rules.write(s.name, s.inner, b, func() (sinks.Position, error) { return s.inner.Write(ctx, b) })
	return at, s.after(err)
}

// stall is SIGSTOP: no heartbeat for longer than the session timeout, and then the write goes on as if nothing had been. It does not know
// of a context that ended meanwhile.
func (s *store) stall(ctx context.Context) context.Context {
	d := 30*time.Second + time.Duration(s.roll(30_000))*time.Millisecond
	s.note("%s stalls before a write for %s, its connections cut", s.name, d)
	s.net.set(true)
	time.Sleep(d)
	s.net.set(false)
	s.note("%s goes on", s.name)
	return context.WithoutCancel(ctx)
}

func isNewThing(e sinks.Projected) bool {
	return slices.ContainsFunc(e.Items, func(i projection.Item) bool { return strings.HasPrefix(textOf(i), newThing) })
}

func textOf(i projection.Item) string {
	var content []event.Part
	switch i := i.(type) {
	case projection.User:
		content = i.Content
	case projection.Assistant:
		content = i.Content
	}
	if len(content) != 1 {
		return "not one part"
	}
	return content[0].(event.Text).Text
}

// rules are what must hold at every write, whatever happened before it.
type rules struct {
	mu     sync.Mutex
	holder map[int32]string // who took each partition over last
	fail   func(format string, args ...any)
	sent   func(session string, id string) bool
	// log is what is acknowledged, as far as it is known, by partition and offset.
	log func(partition int32, from, to int64) []entry
}

func (r *rules) acquire(who string, partition int32, do func() (sinks.Position, error)) (sinks.Position, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	at, err := do()
	if err == nil {
		r.holder[partition] = who
	}
	return at, err
}

// write lets one writer at a time in, and compares what was with what is then.
func (r *rules) write(who string, tables *memory.Sink, b sinks.Batch, do func() (sinks.Position, error)) (sinks.Position, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	before := map[string]sinks.Session{}
	for _, id := range sessionsOf(b) {
		before[id] = tables.Session(id)
	}
	was := tables.Positions()[b.At.Partition]
	at, err := do()
	if err != nil {
		return at, err
	}
	if at.NextOffset < was.NextOffset {
		r.fail("the position of partition %d went back from %d to %d", at.Partition, was.NextOffset, at.NextOffset)
	}
	if holder := r.holder[at.Partition]; holder != who {
		r.fail("%s has written on partition %d, which %s has taken over", who, at.Partition, holder)
	}
	for id, was := range before {
		r.session(tables, b, id, was)
	}
	for _, e := range r.log(at.Partition, was.NextOffset, at.NextOffset) {
		r.accounted(tables, e)
	}
	return at, nil
}

func sessionsOf(b sinks.Batch) []string {
	var ids []string
	for _, e := range b.Events {
		ids = append(ids, e.Event.SessionID)
	}
	for _, p := range b.Parked {
		ids = append(ids, p.SessionID)
	}
	for _, m := range b.Markers {
		ids = append(ids, m.SessionID)
	}
	return append(ids, b.Unparked...)
}

// session: its watermark goes back only where a marker says so, skips nothing, and nothing that waits is forgotten.
func (r *rules) session(tables *memory.Sink, b sinks.Batch, id string, was sinks.Session) {
	is := tables.Session(id)
	erased := slices.Contains(b.Erased, id)
	if is.Watermark.Seq < was.Watermark.Seq && !erased {
		r.fail("the watermark of %s went back from %d to %d", id, was.Watermark.Seq, is.Watermark.Seq)
	}
	if was.Parked != nil && is.Parked != nil && is.Parked.FromOffset > was.Parked.FromOffset && !erased {
		r.fail("%s is parked from offset %d, was from %d", id, is.Parked.FromOffset, was.Parked.FromOffset)
	}
	next := was.Watermark.Seq + 1
	if erased {
		next = 1
	}
	for _, e := range b.Events {
		if e.Event.SessionID != id {
			continue
		}
		if e.Event.Seq != next {
			r.fail("seq %d of %s was projected, %d was next", e.Event.Seq, id, next)
		}
		next = e.Event.Seq + 1
		if !r.sent(id, e.Event.EventID) {
			r.fail("event %s of %s was projected and never sent", e.Event.EventID, id)
		}
	}
}

// accounted: what the position has passed is projected, waits, was announced to go, or is set aside. Of a purged run the processor may
// have written the event again, further on, and compaction may have taken this one.
func (r *rules) accounted(tables *memory.Sink, e entry) {
	if e.kind != good && e.kind != purgedCopy && e.kind != poison {
		return
	}
	s := tables.Session(e.session)
	if s.Watermark.Seq < e.seq && s.Parked == nil && !s.Markers.Closed && !slices.Contains(s.Markers.Withdrawn, e.id) &&
		!slices.Contains(s.Markers.Runs, e.run) {
		r.fail("the position passed offset %d of partition %d, but seq %d of %s is neither projected nor parked: %+v", e.offset, e.partition, e.seq, e.session, s)
	}
}
