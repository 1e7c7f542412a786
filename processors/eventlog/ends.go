package eventlog

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/tooltape/tooltape/schemas"
	"github.com/tooltape/tooltape/schemas/event"
)

// Index says where sessions end, as far as the log was read. It holds the id of each event that was read.
type Index struct{ sessions map[string]*finding }

// Index reads partitions from the offsets given to the end that they have now. What is not named is not read.
func (l *Log) Index(ctx context.Context, decoder *schemas.Decoder, from map[int32]int64) (*Index, error) {
	bounds, err := l.Bounds(ctx)
	if err != nil {
		return nil, err
	}
	x := &Index{sessions: map[string]*finding{}}
	for _, p := range slices.Sorted(maps.Keys(from)) {
		if int(p) >= len(bounds) {
			return nil, fmt.Errorf("topic %s has %d partitions, and so no partition %d", l.topic, len(bounds), p)
		}
		b := bounds[p]
		if err := l.Read(ctx, p, max(from[p], b.Start), b.End, func(r *kgo.Record) error { return x.note(ctx, decoder, r) }); err != nil {
			return nil, err
		}
	}
	return x, nil
}

// Known is a session's last event as somebody knows it who has read what the index has not.
type Known struct {
	Seq     int64
	EventID string
}

// End is where a session ends in the log.
type End struct {
	Seq     int64
	EventID string
	// Last is the envelope of the last event, where that was read.
	Last event.Opt[event.Envelope]
	// Recorded holds the event ids that were read, by seq.
	Recorded map[int64]string
}

// End is where a session ends; Seq is 0 where neither the index nor the caller has seen anything of it. A session with a hole, or with two
// events at one place, has no end to go on from: that is an error.
func (x *Index) End(session string, known Known) (End, error) {
	end := End{Seq: known.Seq, EventID: known.EventID, Recorded: map[int64]string{}}
	f := x.sessions[session]
	if f == nil {
		return end, nil
	}
	if f.closed {
		return End{}, fmt.Errorf("session %s is purged: whatever is appended to it is ignored; begin another session", session)
	}
	last := known.Seq
	for _, seq := range slices.Sorted(maps.Keys(f.claims)) {
		ids := slices.DeleteFunc(slices.Clone(f.claims[seq]), func(id string) bool { return f.withdrawn[id] })
		switch {
		case len(ids) == 0:
			continue
		case len(ids) > 1:
			return End{}, conflict(session, seq, ids[0], ids[1])
		case seq == known.Seq && ids[0] != known.EventID:
			return End{}, conflict(session, seq, known.EventID, ids[0])
		}
		end.Recorded[seq] = ids[0]
		last = max(last, seq)
	}
	for end.Recorded[end.Seq+1] != "" {
		end.Seq++
		end.EventID = end.Recorded[end.Seq]
	}
	if last > end.Seq {
		return End{}, fmt.Errorf("session %s has a hole: seq %d is recorded, seq %d is not; append the missing event first", session, last, end.Seq+1)
	}
	if e, ok := f.last[end.EventID]; ok && e.SessionID == session {
		end.Last = event.Some(e)
	}
	return end, nil
}

func conflict(session string, seq int64, one, other string) error {
	return fmt.Errorf("session %s is in conflict: events %s and %s both claim seq %d; settle it first", session, one, other, seq)
}

// finding is what was read of one session.
type finding struct {
	claims    map[int64][]string // the ids that claim each place: one, unless there is a conflict
	withdrawn map[string]bool
	closed    bool
	// last are the envelopes of the events that claim the highest place.
	last     map[string]event.Envelope
	lastSeen int64
}

// note remembers a record. A value that cannot be read still has its place: the key says it. A marker says what no longer counts.
func (x *Index) note(ctx context.Context, decoder *schemas.Decoder, r *kgo.Record) error {
	key, err := schemas.ParseKey(r.Key)
	if err != nil || key.Marker == schemas.NoMarker && len(r.Value) == 0 {
		return nil // no event: consumers set it aside and say so
	}
	f := x.sessions[key.SessionID]
	if f == nil {
		f = &finding{claims: map[int64][]string{}, withdrawn: map[string]bool{}, last: map[string]event.Envelope{}}
		x.sessions[key.SessionID] = f
	}
	switch key.Marker {
	case schemas.NoMarker:
		return f.claim(ctx, decoder, key, r.Value)
	case schemas.ClosedMarker:
		f.closed = true
	case schemas.WithdrawnMarker:
		f.withdrawn[key.EventID] = true
	}
	return nil
}

func (f *finding) claim(ctx context.Context, decoder *schemas.Decoder, key schemas.Key, value []byte) error {
	if !slices.Contains(f.claims[key.Seq], key.EventID) {
		f.claims[key.Seq] = append(f.claims[key.Seq], key.EventID)
	}
	if key.Seq < f.lastSeen {
		return nil
	}
	if key.Seq > f.lastSeen {
		f.lastSeen = key.Seq
		clear(f.last)
	}
	e, err := decoder.Decode(ctx, value)
	if err != nil && !errors.As(err, new(*event.Error)) {
		return err
	}
	f.last[key.EventID] = e.Envelope
	return nil
}
