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

// Start is what is known of a session before the log is read for its end: its last known event, and where there may be more.
type Start struct {
	Seq     int64
	EventID string
	// Partition is where the session lies; absent: it may lie on any.
	Partition event.Opt[int32]
	// Offset is from where on there may be more of it; absent: from the position of its partition.
	Offset event.Opt[int64]
}

// End is where a session ends in the log.
type End struct {
	Seq     int64
	EventID string
	// Last is the envelope of the last event, where that was read from the log and not known before.
	Last event.Opt[event.Envelope]
	// Recorded holds the event ids that were read, by seq.
	Recorded map[int64]string
}

// Ends reads the log for where sessions end. positions says of a partition up to where everything is known to the caller; one that is
// not in it is read from its beginning. A session that is not in the answer is not in the log. A session with a hole, or with two
// events at one place, has no end to go on from: that is an error.
func (l *Log) Ends(ctx context.Context, decoder *schemas.Decoder, starts map[string]Start, positions map[int32]int64) (map[string]End, error) {
	bounds, err := l.Bounds(ctx)
	if err != nil {
		return nil, err
	}
	found := map[string]*finding{}
	for p, b := range bounds {
		if err := l.Read(ctx, int32(p), lowest(starts, positions, int32(p), b), b.End, func(r *kgo.Record) error { return note(ctx, decoder, starts, found, r) }); err != nil {
			return nil, err
		}
	}
	ends := map[string]End{}
	for _, id := range slices.Sorted(maps.Keys(starts)) {
		end, err := found[id].end(id, starts[id])
		if err != nil {
			return nil, err
		}
		if end.Seq > 0 {
			ends[id] = end
		}
	}
	return ends, nil
}

// lowest is the first offset of the partition that may hold more of one of the sessions; the end where none can lie there.
func lowest(starts map[string]Start, positions map[int32]int64, partition int32, b Bounds) int64 {
	from := b.End
	for _, s := range starts {
		if s.Partition.Or(partition) == partition {
			from = min(from, s.Offset.Or(positions[partition]))
		}
	}
	return max(from, b.Start)
}

// finding is what the log holds of one session.
type finding struct {
	ids      map[int64]string
	rival    map[int64]string // a second event at the same place
	last     event.Envelope
	lastSeen int64
}

// note remembers a record of a wanted session. A value that cannot be read still has its place: the key says it.
func note(ctx context.Context, decoder *schemas.Decoder, starts map[string]Start, found map[string]*finding, r *kgo.Record) error {
	key, err := schemas.ParseKey(r.Key)
	if err != nil || key.Marker != schemas.NoMarker || len(r.Value) == 0 {
		return nil // no event: consumers set it aside and say so
	}
	if _, wanted := starts[key.SessionID]; !wanted {
		return nil
	}
	f := found[key.SessionID]
	if f == nil {
		f = &finding{ids: map[int64]string{}, rival: map[int64]string{}}
		found[key.SessionID] = f
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

func (f *finding) end(id string, start Start) (End, error) {
	end := End{Seq: start.Seq, EventID: start.EventID}
	if f == nil {
		return end, nil
	}
	end.Recorded = f.ids
	for _, seq := range slices.Sorted(maps.Keys(f.rival)) {
		return End{}, fmt.Errorf("session %s is in conflict: events %s and %s both claim seq %d; settle it first", id, f.ids[seq], f.rival[seq], seq)
	}
	for f.ids[end.Seq+1] != "" {
		end.Seq++
		end.EventID = f.ids[end.Seq]
	}
	if f.lastSeen > end.Seq {
		return End{}, fmt.Errorf("session %s has a hole: seq %d is recorded, seq %d is not; append the missing event first", id, f.lastSeen, end.Seq+1)
	}
	if f.lastSeen == end.Seq && f.last.SessionID == id {
		end.Last = event.Some(f.last)
	}
	return end, nil
}
