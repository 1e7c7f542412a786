// Package memory is the reference sink: what every store must do, in maps under one lock, and nothing else.
package memory

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/tooltape/tooltape/processors/projection"
	"github.com/tooltape/tooltape/schemas/event"
	"github.com/tooltape/tooltape/sinks"
)

// Sink stores one projection until the process ends. Two processors that share one see each other as two processes that share a
// database do.
type Sink struct {
	// Refuse says why the store will never take an event, or is empty where it takes it. It stands for what a real store refuses;
	// nil takes everything. Set it before the first use.
	Refuse func(sinks.Projected) string

	mu         sync.Mutex
	positions  map[int32]sinks.Position
	watermarks map[string]sinks.Watermark
	parked     map[string]sinks.Parked
	markers    map[string][]sinks.Marker
	rows       map[string]map[place]Row
	setAside   map[int32]map[int64]sinks.SetAside
}

var _ sinks.Sink = (*Sink)(nil)

// Row is one stored item.
type Row struct {
	SessionID  string
	Seq        int64
	Index      int
	EventID    string
	RunID      event.Opt[string]
	OccurredAt event.Opt[time.Time]
	Item       projection.Item
}

// place is a row's key within its session.
type place struct {
	seq   int64
	index int
}

// New is an empty sink.
func New() *Sink {
	return &Sink{
		positions:  map[int32]sinks.Position{},
		watermarks: map[string]sinks.Watermark{},
		parked:     map[string]sinks.Parked{},
		markers:    map[string][]sinks.Marker{},
		rows:       map[string]map[place]Row{},
		setAside:   map[int32]map[int64]sinks.SetAside{},
	}
}

// Position is where a partition stands.
func (s *Sink) Position(ctx context.Context, partition int32) (sinks.Position, bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p, known := s.positions[partition]
	return p, known, ctx.Err()
}

// Acquire raises the partition's epoch.
func (s *Sink) Acquire(ctx context.Context, partition int32, topic sinks.Topic) (sinks.Position, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return sinks.Position{}, err
	}
	p, known := s.positions[partition]
	if !known {
		p = sinks.Position{Partition: partition, Topic: topic}
	}
	p.Epoch++
	s.positions[partition] = p
	return p, nil
}

// Refresh reads the position again.
func (s *Sink) Refresh(ctx context.Context, at sinks.Position) (sinks.Position, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return sinks.Position{}, err
	}
	p := s.positions[at.Partition]
	if p.Epoch != at.Epoch {
		return sinks.Position{}, sinks.ErrFenced
	}
	return p, nil
}

// Sessions is what the sink knows of these sessions.
func (s *Sink) Sessions(ctx context.Context, at sinks.Position, ids []string) (map[string]sinks.Session, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.check(ctx, at); err != nil {
		return nil, err
	}
	known := map[string]sinks.Session{}
	for _, id := range ids {
		if session := s.session(id); session.Watermark.Seq > 0 || session.Parked != nil || s.markers[id] != nil {
			known[id] = session
		}
	}
	return known, nil
}

// EventIDs are the ids of the events that were projected at these places, and yielded a row.
func (s *Sink) EventIDs(ctx context.Context, places []sinks.Place) (map[sinks.Place]string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ids := map[sinks.Place]string{}
	for _, p := range places {
		if r, there := s.rows[p.SessionID][place{p.Seq, 0}]; there {
			ids[p] = r.EventID
		}
	}
	return ids, ctx.Err()
}

// Due lists the sessions of a partition that should be tried again.
func (s *Sink) Due(ctx context.Context, partition int32, build string) ([]sinks.Parked, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var due []sinks.Parked
	for _, p := range s.parked {
		if p.Partition == partition && p.Code != event.Conflict && (p.Due || !slices.Contains(p.Builds, build)) {
			p.Builds = slices.Clone(p.Builds)
			due = append(due, p)
		}
	}
	slices.SortFunc(due, func(a, b sinks.Parked) int {
		return cmp.Or(cmp.Compare(a.FromOffset, b.FromOffset), cmp.Compare(a.SessionID, b.SessionID))
	})
	return due, ctx.Err()
}

// Write stores a batch whole, or nothing of it.
func (s *Sink) Write(ctx context.Context, b sinks.Batch) (sinks.Position, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if b.NextOffset < b.At.NextOffset {
		return sinks.Position{}, fmt.Errorf("a batch that stands at offset %d cannot end at %d", b.At.NextOffset, b.NextOffset)
	}
	if err := s.check(ctx, b.At); err != nil {
		return sinks.Position{}, err
	}
	for _, e := range b.Events {
		if s.Refuse == nil {
			break
		}
		if why := s.Refuse(e); why != "" {
			return sinks.Position{}, &sinks.RefusedError{Message: why}
		}
	}
	s.remember(b)
	for _, e := range b.Events {
		s.project(b.At.Partition, e)
	}
	for _, p := range b.Parked {
		s.park(p)
	}
	for _, id := range b.Unparked {
		delete(s.parked, id)
	}
	for _, a := range b.SetAside {
		s.keep(b.At.Partition, a)
	}
	next := b.At
	next.NextOffset = b.NextOffset
	next.Batch++
	s.positions[next.Partition] = next
	return next, nil
}

// remember takes the markers in and deletes what they announce.
func (s *Sink) remember(b sinks.Batch) {
	for _, id := range b.Erased {
		delete(s.rows, id)
		delete(s.watermarks, id)
		delete(s.parked, id)
	}
	for _, run := range b.ErasedRuns {
		maps.DeleteFunc(s.rows[run.SessionID], func(_ place, r Row) bool { return r.RunID == event.Some(run.RunID) })
	}
	for _, m := range b.Markers {
		if !slices.Contains(s.markers[m.SessionID], m) {
			s.markers[m.SessionID] = append(s.markers[m.SessionID], m)
		}
	}
	for _, r := range b.TakenBack {
		maps.DeleteFunc(s.setAside[b.At.Partition], func(_ int64, a sinks.SetAside) bool {
			return a.Code == event.UnannouncedRemoval && r.Matches(a.Key)
		})
	}
}

// check says whether the position is still the one that a decision was read at.
func (s *Sink) check(ctx context.Context, at sinks.Position) error {
	now := s.positions[at.Partition]
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case now.Epoch != at.Epoch:
		return sinks.ErrFenced
	case now.Batch != at.Batch:
		return sinks.ErrStale
	}
	return nil
}

// project adds an event's rows; one that is there stays. The watermark never goes back.
func (s *Sink) project(partition int32, e sinks.Projected) {
	id := e.Event.SessionID
	if s.rows[id] == nil {
		s.rows[id] = map[place]Row{}
	}
	for i, item := range e.Items {
		at := place{e.Event.Seq, i}
		if _, there := s.rows[id][at]; !there {
			s.rows[id][at] = Row{id, e.Event.Seq, i, e.Event.EventID, e.Event.RunID, e.Event.OccurredAt, item}
		}
	}
	if e.Event.Seq > s.watermarks[id].Seq {
		s.watermarks[id] = sinks.Watermark{Seq: e.Event.Seq, EventID: e.Event.EventID, Partition: partition}
	}
}

// park replaces a session's parked row, but never raises its from_offset.
func (s *Sink) park(p sinks.Parked) {
	if old, there := s.parked[p.SessionID]; there {
		p.FromOffset = min(p.FromOffset, old.FromOffset)
	}
	p.Builds = slices.Clone(p.Builds)
	s.parked[p.SessionID] = p
}

// keep sets a record aside; one that is there stays.
func (s *Sink) keep(partition int32, a sinks.SetAside) {
	if s.setAside[partition] == nil {
		s.setAside[partition] = map[int64]sinks.SetAside{}
	}
	if _, there := s.setAside[partition][a.Offset]; !there {
		a.Key, a.Value = bytes.Clone(a.Key), bytes.Clone(a.Value)
		s.setAside[partition][a.Offset] = a
	}
}

func (s *Sink) session(id string) sinks.Session {
	session := sinks.Session{Watermark: s.watermarks[id]}
	if p, there := s.parked[id]; there {
		p.Builds = slices.Clone(p.Builds)
		session.Parked = &p
	}
	for _, m := range s.markers[id] {
		switch m.Kind {
		case sinks.ClosedMarker:
			session.Markers.Closed = true
		case sinks.RunMarker:
			session.Markers.Runs = append(session.Markers.Runs, m.ID)
		case sinks.WithdrawnMarker:
			session.Markers.Withdrawn = append(session.Markers.Withdrawn, m.ID)
		}
	}
	return session
}

// Session is what the sink knows of a session, whatever its partition's position.
func (s *Sink) Session(id string) sinks.Session {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.session(id)
}

// Rows are a session's items in order.
func (s *Sink) Rows(sessionID string) []Row {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.SortedFunc(maps.Values(s.rows[sessionID]), func(a, b Row) int {
		if a.Seq != b.Seq {
			return cmp.Compare(a.Seq, b.Seq)
		}
		return a.Index - b.Index
	})
}

// Watermarks are the sessions that have one.
func (s *Sink) Watermarks() map[string]sinks.Watermark {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.watermarks)
}

// Parked are the sessions that wait.
func (s *Sink) Parked() map[string]sinks.Parked {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.parked)
}

// SetAside are a partition's records that belong to no session, by offset.
func (s *Sink) SetAside(partition int32) []sinks.SetAside {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.SortedFunc(maps.Values(s.setAside[partition]), func(a, b sinks.SetAside) int { return cmp.Compare(a.Offset, b.Offset) })
}

// Positions are the partitions that were ever acquired.
func (s *Sink) Positions() map[int32]sinks.Position {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.positions)
}
