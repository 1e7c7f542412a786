package producer

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/tooltape/tooltape/schemas"
	"github.com/tooltape/tooltape/schemas/event"
)

// Erasure is one key of the events topic whose value goes.
type Erasure struct {
	Partition int32
	Key       schemas.Key
	// Instead stands where the value stood, under the same key (event.Purged); nil: a tombstone.
	Instead *event.Event
}

// Erase writes markers and, once they are acknowledged, what they announce (DESIGN chapters 4 and 10). The markers go to every partition on
// which something is erased; the reason is for people who read the log. After an error do it again: it is the same as once.
func (w *Writer) Erase(ctx context.Context, reason string, markers []schemas.Key, erasures []Erasure) error {
	why, err := json.Marshal(map[string]string{"reason": reason})
	if err != nil {
		return err
	}
	var announced, erased []*kgo.Record
	partitions := map[int32]bool{}
	for _, e := range erasures {
		if !partitions[e.Partition] {
			partitions[e.Partition] = true
			for _, m := range markers {
				announced = append(announced, &kgo.Record{Topic: w.cfg.Topics.Events(), Partition: e.Partition, Key: []byte(m.String()), Value: why})
			}
		}
		r := &kgo.Record{Topic: w.cfg.Topics.Events(), Partition: e.Partition, Key: []byte(e.Key.String())}
		if e.Instead != nil {
			if r.Value, err = w.encode(*e.Instead); err != nil {
				return err
			}
		}
		erased = append(erased, r)
	}
	if err := w.client.ProduceSync(ctx, announced...).FirstErr(); err != nil {
		return fmt.Errorf("writing the markers: %w", err)
	}
	if err := w.client.ProduceSync(ctx, erased...).FirstErr(); err != nil {
		return fmt.Errorf("erasing what the markers announced; do it again: %w", err)
	}
	return nil
}

func (w *Writer) encode(e event.Event) ([]byte, error) {
	stored, err := schemas.StoredOf(e)
	if err != nil {
		return nil, err
	}
	return w.cfg.Encoder.Encode(nil, stored)
}
