package eventlog

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/tooltape/tooltape/schemas"
	"github.com/tooltape/tooltape/schemas/event"
)

// Found is what the log holds under one key of a session.
type Found struct {
	Partition int32
	Offset    int64
	Key       schemas.Key
	// Event is the event, or as much of it as could be read where Fault is not nil.
	Event event.Event
	Fault *event.Error
}

// Session reads the whole log for one session: its events and strays, the newest value under each key, by seq. What was removed by a
// tombstone is not there, nor are markers.
func (l *Log) Session(ctx context.Context, decoder *schemas.Decoder, sessionID string) ([]Found, error) {
	newest := map[string]Found{}
	err := l.ReadAll(ctx, func(r *kgo.Record) error {
		key, err := schemas.ParseKey(r.Key)
		if err != nil || key.Marker != schemas.NoMarker || key.SessionID != sessionID {
			return nil
		}
		if r.Value == nil {
			delete(newest, string(r.Key))
			return nil
		}
		f := Found{Partition: r.Partition, Offset: r.Offset, Key: key}
		if f.Event, err = decoder.Decode(ctx, r.Value); err != nil && !errors.As(err, &f.Fault) {
			return err
		}
		newest[string(r.Key)] = f
		return nil
	})
	if err != nil {
		return nil, err
	}
	found := make([]Found, 0, len(newest))
	for _, f := range newest {
		found = append(found, f)
	}
	slices.SortFunc(found, func(a, b Found) int {
		return cmp.Or(cmp.Compare(a.Key.Seq, b.Key.Seq), cmp.Compare(a.Offset, b.Offset))
	})
	return found, nil
}
