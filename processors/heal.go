package processors

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/tooltape/tooltape/schemas"
	"github.com/tooltape/tooltape/schemas/event"
	"github.com/tooltape/tooltape/sinks"
)

const (
	// lookForDue is how often the second reader asks the store whether someone else has made a session due (tooltape resume).
	lookForDue = 3 * time.Second
	// healRecords and healBytes bound what one turn of the second reader takes through a partition's lock.
	healRecords = 500
	healBytes   = 1 << 20
	// catchUp is how many offsets before the position the second reader stops taking turns with the live flow, and reads the rest while
	// it holds the lock: the live flow would else stay ahead of it for ever.
	catchUp = 4000
	// yield is how many times its own turn the second reader leaves to the live flow.
	yield = 4
)

// healing is one scan of the second reader: the sessions of a partition that are due, each on its way.
type healing struct {
	*partition
	sessions map[string]*patient
}

// patient is a session that is tried again.
type patient struct {
	from int64 // the first offset to read for it
	pass progress
}

// progress is how far a session came in one pass over the log.
type progress struct {
	took int64 // events that were projected
	left int64 // records that could not be taken yet: what they follow had not been read, or a bad one stands before them
	// first is the offset of the first one left, where the next pass begins; next the one of the lowest seq.
	first int64
	next  *record
	// failed is the record that this build cannot project either; nothing behind it is tried.
	failed *record
	fault  *event.Error
}

// leave notes a record that cannot be taken in this pass.
func (p *progress) leave(r *record) {
	if p.left++; p.left == 1 {
		p.first = r.offset
	}
	if p.next == nil || r.place.Seq < p.next.place.Seq {
		p.next = &record{offset: r.offset, place: r.place} // without its value: there may be many
	}
}

// heal is the second reader: beside the live flow, it projects what parked sessions have waited for. It returns when the assignment ends.
func (p *partition) heal() error {
	p.wake() // every assignment starts with the rows that are due
	tick := time.NewTicker(lookForDue)
	defer tick.Stop()
	for {
		select {
		case <-p.ctx.Done():
			return context.Cause(p.ctx)
		case <-p.due:
		case <-tick.C:
		}
		if err := p.healDue(); err != nil {
			return err
		}
	}
}

// healDue scans for all sessions that are due now, until a scan has ended. What passes by itself is waited out.
func (p *partition) healDue() error {
	wait := p.backoff()
	for {
		err := p.scanDue(p.ctx)
		switch {
		case err == nil, errors.Is(err, sinks.ErrFenced):
			return err
		case p.ctx.Err() != nil:
			return context.Cause(p.ctx)
		case errors.As(err, new(*sinks.UnusableError)):
			return &fatalError{fmt.Errorf("topic %s partition %d: %w", p.topic, p.id, err)}
		}
		if !errors.Is(err, sinks.ErrStale) {
			p.trouble(p.id, err)
			if !wait(p.ctx) {
				return context.Cause(p.ctx)
			}
		}
		if err := p.refresh(p.ctx); errors.Is(err, sinks.ErrFenced) {
			return err
		}
	}
}

func (p *partition) scanDue(ctx context.Context) error {
	p.mu.Lock()
	clear(p.erased)
	p.mu.Unlock()
	due, err := p.cfg.Sink.Due(ctx, p.id, p.cfg.Build)
	if err != nil || len(due) == 0 {
		return err
	}
	h := healing{partition: p, sessions: map[string]*patient{}}
	for _, s := range due {
		h.sessions[s.SessionID] = &patient{from: s.FromOffset}
	}
	for len(h.sessions) > 0 {
		if err := h.pass(ctx); err != nil {
			return err
		}
	}
	return nil
}

// pass reads the log once, from the first offset that may hold what a session waits for up to the position. The sessions that are through
// then, or for which it took nothing, are no longer in the scan.
func (h *healing) pass(ctx context.Context) error {
	for _, s := range h.sessions {
		s.pass = progress{}
	}
	at := h.start()
	for {
		to := h.position()
		if to-at <= catchUp {
			return h.finish(ctx, at)
		}
		if err := h.read(ctx, at, to, h.turn); err != nil {
			return err
		}
		at = to
	}
}

// finish reads the rest up to the position while nothing can move it, and says of each session how its try has ended.
func (h *healing) finish(ctx context.Context, at int64) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.read(ctx, at, h.at.NextOffset, h.take); err != nil {
		return err
	}
	// In parts: what is loaded for one must outlive it in the cache.
	for ids := range slices.Chunk(slices.Sorted(maps.Keys(h.sessions)), healRecords) {
		if err := h.endTries(ctx, ids); err != nil {
			return err
		}
	}
	return nil
}

// endTries ends the try of those of these sessions for which another pass would take nothing.
func (h *healing) endTries(ctx context.Context, ids []string) error {
	if err := h.loadSessions(ctx, ids); err != nil {
		return err
	}
	d := newDecision(h.at, h.partition.sessions.get, h.cfg.Build, time.Now())
	var ended []string
	for _, id := range ids {
		if h.erased[id] { // it is due again, from another offset: that is for another scan
			delete(h.sessions, id)
			continue
		}
		patient, s := h.sessions[id], d.session(id)
		if s.Parked != nil && patient.pass.took > 0 && patient.pass.left > 0 && patient.pass.failed == nil {
			patient.from = patient.pass.first // what came may have made room for what was left
			continue
		}
		ended = append(ended, id)
		d.endTry(id, s, patient.pass)
	}
	if err := h.write(ctx, d); err != nil {
		return err
	}
	for _, id := range ended {
		delete(h.sessions, id)
	}
	h.reportHealed(d)
	return nil
}

// reportHealed says what came of the sessions that were tried again.
func (h *healing) reportHealed(d *decision) {
	if n := len(d.batch.Unparked); n > 0 {
		h.log.Info("sessions go on", "partition", h.id, "sessions", n)
	}
	for _, s := range d.batch.Parked {
		h.log.Warn("session stays parked", "session_id", s.SessionID, "seq", s.Seq, "code", s.Code, "reason", s.Message, "partition", h.id,
			"offset", s.Offset, "held", s.Held)
	}
}

// start is where the next pass begins.
func (h *healing) start() int64 {
	first := h.position()
	for _, s := range h.sessions {
		first = min(first, s.from)
	}
	return max(first, h.logStart)
}

func (h *healing) position() int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.at.NextOffset
}

// read hands on, in turns, the records of these sessions from one offset to another.
func (h *healing) read(ctx context.Context, from, to int64, turn func(context.Context, []record) error) error {
	var records []record
	size := 0
	flush := func() error {
		err := turn(ctx, records)
		records, size = nil, 0
		return err
	}
	err := h.scan.Read(ctx, h.id, from, to, func(r *kgo.Record) error {
		place, err := schemas.ParseKey(r.Key)
		if err != nil || place.Marker != schemas.NoMarker || len(r.Value) == 0 {
			return nil
		}
		if s := h.sessions[place.SessionID]; s == nil || r.Offset < s.from {
			return nil
		}
		records = append(records, record{offset: r.Offset, time: r.Timestamp, key: r.Key, value: r.Value, place: place})
		if size += len(r.Value); len(records) < healRecords && size < healBytes {
			return nil
		}
		return flush()
	})
	if err != nil || len(records) == 0 {
		return err
	}
	return flush()
}

// turn takes some records through the lock, and then leaves the live flow its time.
func (h *healing) turn(ctx context.Context, records []record) error {
	started := time.Now()
	h.mu.Lock()
	err := h.take(ctx, records)
	h.mu.Unlock()
	if err != nil {
		return err
	}
	pause := time.NewTimer(yield * time.Since(started))
	defer pause.Stop()
	select {
	case <-pause.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// take decides about these records and stores what came of them. The caller holds mu. What the store refuses is halved, as in the live
// flow, until the one event is known that it refuses.
func (h *healing) take(ctx context.Context, records []record) error {
	if err := h.load(ctx, records); err != nil {
		return err
	}
	before := map[string]progress{}
	d := newDecision(h.at, h.partition.sessions.get, h.cfg.Build, time.Now())
	for i := range records {
		id := records[i].place.SessionID
		if _, ok := before[id]; !ok {
			before[id] = h.sessions[id].pass
		}
		if err := h.takeOne(ctx, d, &records[i]); err != nil {
			return err
		}
	}
	if len(d.batch.Events) == 0 && len(d.batch.SetAside) == 0 {
		return nil
	}
	err := h.write(ctx, d)
	refused := (*sinks.RefusedError)(nil)
	if !errors.As(err, &refused) {
		return err
	}
	for id, pass := range before {
		h.sessions[id].pass = pass
	}
	if len(records) == 1 {
		records[0].fault = &event.Error{Code: event.StoreRefused, Message: refused.Message}
		return h.take(ctx, records)
	}
	if err := h.take(ctx, records[:len(records)/2]); err != nil {
		return err
	}
	return h.take(ctx, records[len(records)/2:])
}

func (h *healing) takeOne(ctx context.Context, d *decision, r *record) error {
	pass, s := &h.sessions[r.place.SessionID].pass, d.session(r.place.SessionID)
	switch {
	case s.Parked == nil || h.erased[r.place.SessionID] || isProjected(r, s.Watermark) || isIgnored(r, s.Markers):
		return nil
	case pass.failed != nil && r.place != pass.failed.place || r.place.Seq > s.Watermark.Seq+1:
		pass.leave(r)
		return nil
	}
	if err := h.decode(ctx, r); err != nil {
		return err
	}
	switch fault := d.project(r, s); {
	case fault == nil: // also where the same event was bad before, and is now written as it should be
		pass.took, pass.failed = pass.took+1, nil
	case fault.Code == event.WrongPartition:
		d.setAside(r, fault.Code, fault.Message)
	default:
		pass.failed, pass.fault = r, fault
	}
	return nil
}

// endTry says how a try has ended: the session goes on, or stays parked for what stands in its way now, and this build has tried.
func (d *decision) endTry(id string, s sinks.Session, pass progress) {
	if s.Parked == nil { // someone else has unparked it
		return
	}
	was := *s.Parked
	now := was
	now.Due = false
	if !slices.Contains(now.Builds, d.build) {
		now.Builds = append(slices.Clone(now.Builds), d.build)
	}
	switch {
	case pass.failed != nil:
		now.Held = pass.left
		describe(&now, pass.failed, pass.fault)
	case pass.left > 0:
		now.Held = pass.left - 1
		describe(&now, pass.next, &event.Error{Code: event.Gap, Message: fmt.Sprintf("seq %d came, seq %d has not", pass.next.place.Seq, s.Watermark.Seq+1)})
	default:
		s.Parked = nil
		d.changed[id] = s
		d.batch.Unparked = append(d.batch.Unparked, id)
		return
	}
	if now.Code != was.Code || now.Seq != was.Seq {
		now.Since = d.now
	}
	s.Parked = &now
	d.changed[id] = s
}
