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
	end.Recorded = f.ids
	if id := f.ids[known.Seq]; known.Seq > 0 && id != "" && id != known.EventID {
		return End{}, conflict(session, known.Seq, known.EventID, id)
	}
	for _, seq := range slices.Sorted(maps.Keys(f.rival)) {
		return End{}, conflict(session, seq, f.ids[seq], f.rival[seq])
	}
	for f.ids[end.Seq+1] != "" {
		end.Seq++
		end.EventID = f.ids[end.Seq]
	}
	if f.lastSeen > end.Seq {
		return End{}, fmt.Errorf("session %s has a hole: seq %d is recorded, seq %d is not; append the missing event first", session, f.lastSeen, end.Seq+1)
	}
	if f.lastSeen == end.Seq && f.last.SessionID == session {
		end.Last = event.Some(f.last)
	}
	return end, nil
}

func conflict(session string, seq int64, one, other string) error {
	return fmt.Errorf("session %s is in conflict: events %s and %s both claim seq %d; settle it first", session, one, other, seq)
}

// finding is what was read of one session.
type finding struct {
	ids      map[int64]string
	rival    map[int64]string // a second event at the same place
	last     event.Envelope
	lastSeen int64
}

// note remembers a record. A value that cannot be read still has its place: the key says it.
func (x *Index) note(ctx context.Context, decoder *schemas.Decoder, r *kgo.Record) error {
	key, err := schemas.ParseKey(r.Key)
	if err != nil || key.Marker != schemas.NoMarker || len(r.Value) == 0 {
		return nil // no event: consumers set it aside and say so
	}
	f := x.sessions[key.SessionID]
	if f == nil {
		f = &finding{ids: map[int64]string{}, rival: map[int64]string{}}
		x.sessions[key.SessionID] = f
	}
	if id, ok := f.ids[key.Seq]; ok && id != key.EventID {
		f.rival[key.Seq] = key.EventID
		return nil
	}
	f.ids[key.Seq] = key.EventID
	if key.Seq > f.lastSeen {
		f.lastSeen = key.Seq
		e, err := decoder.Decode(ctx, r.Value)
		if err != nil && !errors.As(err, new(*event.Error)) {
			return err
		}
		f.last = e.Envelope
	}
	return nil
}
