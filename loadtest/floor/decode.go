package floor

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/linkedin/goavro/v2"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/tooltape/tooltape/processors/projection"
	"github.com/tooltape/tooltape/schemas"
	"github.com/tooltape/tooltape/schemas/event"
)

// decoder knows the events that the load test writes, in single-object encoding.
type decoder struct{ codecs map[uint64]*goavro.Codec }

func newDecoder() (*decoder, error) {
	d := &decoder{map[uint64]*goavro.Codec{}}
	for _, t := range []event.Type{event.UserMessageCreatedType, event.ToolCallCompletedType} {
		version := schemas.Latest(t)
		schema, _ := schemas.Schema(t, version)
		fingerprint, _ := schemas.Fingerprint(t, version)
		codec, err := goavro.NewCodecWithOptions(schema, &goavro.CodecOption{EnableStringNull: false})
		if err != nil {
			return nil, fmt.Errorf("reading the schema of %s: %w", t, err)
		}
		d.codecs[fingerprint] = codec
	}
	return d, nil
}

// row is a row of the history: each of these events makes one.
type row struct {
	seq        int64
	occurredAt time.Time
	eventID    uuid.UUID
	runID      string
	sessionID  string
	item       string
}

func (d *decoder) rows(records []*kgo.Record) ([]row, error) {
	rows := make([]row, len(records))
	for i, r := range records {
		if err := d.row(r.Value, &rows[i]); err != nil {
			return nil, fmt.Errorf("partition %d offset %d: %w", r.Partition, r.Offset, err)
		}
	}
	return rows, nil
}

// singleObject is the length of the head of single-object encoding: two bytes, then the schema's fingerprint.
const singleObject = 2 + 8

func (d *decoder) row(value []byte, to *row) error {
	codec := d.codecs[binary.LittleEndian.Uint64(value[2:singleObject])]
	if codec == nil {
		return fmt.Errorf("a schema that the load test does not write")
	}
	native, _, err := codec.NativeFromBinary(value[singleObject:])
	if err != nil {
		return err
	}
	record := native.(map[string]any)
	to.seq = record["seq"].(int64)
	to.occurredAt, _ = inside(record["occurred_at"]).(time.Time)
	to.runID, _ = inside(record["run_id"]).(string)
	to.sessionID = record["session_id"].(string)
	if to.eventID, err = uuid.Parse(record["event_id"].(string)); err != nil {
		return err
	}
	to.item = string(projection.AppendJSON(nil, item(record["payload"].(map[string]any), to.seq)))
	return nil
}

// item is what the model is shown again: the item that the product's projection makes of the event.
func item(payload map[string]any, seq int64) projection.Item {
	result, ok := payload["result_item"].(map[string]any)
	if !ok {
		return projection.User{Content: parts(payload), Trust: event.Trust(payload["trust"].(string)), SourceSeq: seq}
	}
	r := projection.ToolResult{
		CallID: result["call_id"].(string), Content: parts(result), Trust: event.Trust(result["trust"].(string)), SourceSeq: seq,
	}
	r.IsError.Value, r.IsError.OK = inside(result["is_error"]).(bool)
	return r
}

// parts are texts alone: the load test writes no others.
func parts(record map[string]any) []event.Part {
	content := record["content"].([]any)
	parts := make([]event.Part, len(content))
	for i, part := range content {
		parts[i] = event.Text{Text: inside(part).(map[string]any)["text"].(string)}
	}
	return parts
}

// inside is the value in a union; nil for null.
func inside(union any) any {
	branches, _ := union.(map[string]any)
	for _, v := range branches {
		return v
	}
	return nil
}
