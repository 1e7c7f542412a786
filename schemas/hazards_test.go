package schemas

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"math"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/linkedin/goavro/v2"

	"github.com/tooltape/tooltape/schemas/event"
)

// What goavro would take, allocate or change without a word, each shown to be stopped before it.

func TestAnArrayHeaderOfFiveBytesAllocatesNothing(t *testing.T) {
	for _, c := range []struct{ about, header string }{
		{"two billion items", "fe ff ff ff 0f"},
		{"two billion items in a block of one byte", "fd ff ff ff 0f 02 00"},
		{"as many as a long can say", "fe ff ff ff ff ff ff ff ff 01"},
		{"the smallest long, whose negative is itself", "ff ff ff ff ff ff ff ff ff 01 00"},
		{"a trillion bytes of one item", "01 80 a0 94 a5 8d 1d"},
	} {
		record := append(envelopeOf(event.SystemMessageCreatedType, 1), unhex(t, c.header)...)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := DecodeEvent(event.SystemMessageCreatedType, 1, record)
		runtime.ReadMemStats(&after)
		if err == nil {
			t.Errorf("%s: taken", c.about)
		}
		if took := after.TotalAlloc - before.TotalAlloc; took > 64<<10 {
			t.Errorf("%s: took %d bytes to refuse", c.about, took)
		}
	}
}

func TestARecordHasSoManyItemsAndNoMore(t *testing.T) {
	emptyText := []byte{0, 0} // the first branch, and a text of no bytes
	inOneBlock := func(n int) []byte {
		return append(append(appendLong(nil, int64(n)), bytes.Repeat(emptyText, n)...), 0)
	}
	inBlocksOfOne := func(n int) []byte {
		return append(bytes.Repeat(append([]byte{2}, emptyText...), n), 0)
	}
	for _, c := range []struct {
		about   string
		content []byte
		refused bool
	}{
		{"as many as may be", inOneBlock(MaxItems), false},
		{"one too many", inOneBlock(MaxItems + 1), true},
		{"as many as may be, each in a block", inBlocksOfOne(MaxItems), false},
		{"one too many, each in a block", inBlocksOfOne(MaxItems + 1), true},
		{"8 MiB of empty parts", inOneBlock(4 << 20), true},
	} {
		record := append(envelopeOf(event.SystemMessageCreatedType, 1), c.content...)
		_, err := DecodeEvent(event.SystemMessageCreatedType, 1, record)
		if c.refused {
			wantError(t, c.about, err, event.TooManyItems, "payload.content")
		} else if err != nil {
			t.Errorf("%s: %v", c.about, err)
		}
	}
}

func TestTheItemsOfAllArraysCountTogether(t *testing.T) {
	env := envelopeValue(event.SystemMessageCreatedType, 1)
	env.Ext = []event.Ext{{Name: "a", Value: "b"}}
	record := append(appendLong(appendEnvelope(nil, env), MaxItems), bytes.Repeat([]byte{0, 0}, MaxItems)...)
	_, err := DecodeRecord(env.Type, env.PayloadVersion, append(record, 0))
	wantError(t, "extensions and parts", err, event.TooManyItems, "payload.content")
}

func TestTheWriterRefusesWhatTheReaderWould(t *testing.T) {
	text := func(s string) event.Payload {
		return event.SystemMessageCreated{Content: []event.Part{event.Text{Text: s}}}
	}
	for _, c := range []struct {
		about   string
		payload event.Payload
		code    event.Code
		field   string
	}{
		{"too many items", event.SystemMessageCreated{Content: slicesRepeat(event.Part(event.Text{}), MaxItems+1)}, event.TooManyItems, "payload.content"},
		{"bad UTF-8", text("\xff"), event.BadPayload, "payload.content[0].text"},
		{"no number", event.VerdictRecorded{Score: event.Some(math.NaN())}, event.BadPayload, "payload.score"},
		{"an int that is none", event.ModelRequestStarted{Round: 1 << 40}, event.BadPayload, "payload.round"},
		{"no JSON text", event.NoteRecorded{Name: "n", Data: "{"}, event.BadPayload, "payload.data"},
		{"a denial without its reason", event.ToolCallDenied{ToolResult: event.ToolResult{ResultItem: event.Recorded(event.ResultItem{})}}, event.BadPayload, "payload.reason_code"},
		{"no part", event.SystemMessageCreated{Content: []event.Part{nil}}, event.BadPayload, "payload.content[0]"},
		{"a part by its pointer", event.ToolCallFailed{ToolResult: event.ToolResult{ResultItem: event.Recorded(event.ResultItem{Content: []event.Part{&event.Text{}}})}}, event.BadPayload, "payload.result_item.content[0]"},
		{"no response item", event.ModelResponseCompleted{Items: []event.ResponseItem{nil}}, event.BadPayload, "payload.items[0]"},
		{"no payload", nil, event.BadPayload, "payload"},
		{"a payload by its pointer", &event.RunFailed{}, event.BadPayload, "payload"},
	} {
		s, err := StoredOf(event.Event{Envelope: envelopeValue("", 0), Payload: c.payload})
		if err == nil {
			_, err = s.AppendBinary(nil)
		}
		wantError(t, c.about, err, c.code, c.field)
	}
}

// Decoding leaves the texts to the walk. Whatever it takes, the whole check takes too.
func TestWhatIsDecodedPassesTheWholeCheck(t *testing.T) {
	for _, f := range fixtures(t) {
		s := f.decode(t)
		record := unhex(t, f.Avro)
		for i, was := range record {
			for _, broken := range []byte{0xff, 0xc3, was ^ 0x80} {
				record[i] = broken
				if e, err := DecodeEvent(s.Type, s.PayloadVersion, record); err == nil {
					if err := event.Check(e); err != nil {
						t.Errorf("%s, byte %d as %#x: decoded, but %v", f.file, i, broken, err)
					}
				}
			}
			record[i] = was
		}
	}
}

func TestAnEventIsStoredOnlyAsWhatItSaysItIs(t *testing.T) {
	for _, c := range []struct {
		about  string
		change func(*event.Envelope)
		code   event.Code
		field  string
	}{
		{"another type", func(e *event.Envelope) { e.Type = event.RunCompletedType }, event.BadEnvelope, "type"},
		{"an older version", func(e *event.Envelope) { e.PayloadVersion = 1 }, event.BadEnvelope, "payload_version"},
		{"a newer version", func(e *event.Envelope) { e.PayloadVersion = 3 }, event.NewerVersion, ""},
	} {
		e := event.Event{Payload: event.SessionCreated{}}
		c.change(&e.Envelope)
		_, err := StoredOf(e)
		wantError(t, c.about, err, c.code, c.field)

		s := fixtureOf(t, "session.created.v2")
		c.change(&s.Envelope)
		_, err = s.AppendBinary(nil)
		wantError(t, c.about+", set later", err, c.code, c.field)
	}
}

func TestLeftOverBytesAreRefused(t *testing.T) {
	for _, f := range fixtures(t) {
		s := f.decode(t)
		record := append(unhex(t, f.Avro), 0)
		_, err := DecodeRecord(s.Type, s.PayloadVersion, record)
		wantError(t, f.file, err, event.LeftOverBytes, "")
	}
}

func TestEveryTruncatedRecordIsRefused(t *testing.T) {
	for _, f := range fixtures(t) {
		s, record := f.decode(t), unhex(t, f.Avro)
		for n := range record {
			if _, err := DecodeRecord(s.Type, s.PayloadVersion, record[:n]); err == nil {
				t.Errorf("%s: the first %d of %d bytes are taken", f.file, n, len(record))
			}
		}
	}
}

// A reader that uses its buffer again must not change events that it handed out.
func TestAnEventDoesNotAliasItsRecord(t *testing.T) {
	for _, f := range fixtures(t) {
		record := unhex(t, f.Avro)
		want := f.decode(t)
		got, err := DecodeRecord(want.Type, want.PayloadVersion, record)
		if err != nil {
			t.Fatal(err)
		}
		for i := range record {
			record[i] = 'x'
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: the event changed with the buffer that it was read from", f.file)
		}
	}
}

func TestBytesThatNoWriterMeantAreRefused(t *testing.T) {
	const overlong = "ffffffffffffffffff02"
	for _, c := range []struct {
		about     string
		eventType event.Type
		payload   string
		field     string
	}{
		{"a string that is not UTF-8", event.RunCancelledType, "02ff", "payload.reason"},
		{"a string beyond the record", event.RunCancelledType, "0461", "payload.reason"},
		{"a string of negative length", event.RunCancelledType, "01", "payload.reason"},
		{"a string as long as memory", event.RunCancelledType, "feffffffffffffffff01", "payload.reason"},
		{"an int of 41 bits", event.ModelRequestStartedType, "8080808080800100" + "00", "payload.round"},
		{"a number of more than 64 bits", event.ModelRequestStartedType, overlong + "0000", "payload.round"},
		{"a union's third branch of two", event.ModelRequestStartedType, "020400", "payload.model"},
		{"a union's branch before the first", event.ModelRequestStartedType, "020100", "payload.model"},
		{"a boolean of 2", event.ApprovalResolvedType, "0261" + "02", "payload.approved"},
		{"an infinite number", event.VerdictRecordedType, "0261" + "00" + "02" + "000000000000f07f", "payload.score"},
		{"not a number", event.VerdictRecordedType, "0261" + "00" + "02" + "010000000000f8ff", "payload.score"},
		{"a block of another size than it states", event.ApprovalRequestedType, "0261" + "01" + "02" + "0261" + "00", "payload.call_ids"},
		{"a block that ends outside the record", event.ApprovalRequestedType, "0261" + "01" + "7e" + "0261" + "00", "payload.call_ids"},
		{"a block of negative size", event.ApprovalRequestedType, "0261" + "01" + "01" + "0261" + "00", "payload.call_ids"},
		{"a bad string within", event.ApprovalRequestedType, "0261" + "04" + "0261" + "02ff" + "00", "payload.call_ids[1]"},
	} {
		record := append(envelopeOf(c.eventType, 1), unhex(t, c.payload)...)
		e, err := DecodeEvent(c.eventType, 1, record)
		wantError(t, c.about, err, event.BadPayload, c.field)
		if e.Type != c.eventType || e.Seq != 1 {
			t.Errorf("%s: the envelope is not there beside the error, so that nobody can say which event it is", c.about)
		}
	}
}

func TestAnEnvelopeThatBreaksItsRulesIsRefused(t *testing.T) {
	for _, c := range []struct {
		about  string
		change func(*event.Envelope)
		field  string
	}{
		{"another envelope version", func(e *event.Envelope) { e.EnvelopeVersion = 2 }, "envelope_version"},
		{"bad UTF-8", func(e *event.Envelope) { e.SessionID = "\xff" }, "session_id"},
		{"bad UTF-8 in an extension", func(e *event.Envelope) { e.Ext = []event.Ext{{Name: "a"}, {Name: "\xff"}} }, "ext[1].name"},
		{"a time before year 1", func(e *event.Envelope) { e.OccurredAt = event.Some(time.UnixMicro(minMicros - 1)) }, "occurred_at"},
		{"a time after year 9999", func(e *event.Envelope) { e.OccurredAt = event.Some(time.UnixMicro(maxMicros + 1)) }, "occurred_at"},
		{"a payload version of 41 bits", func(e *event.Envelope) { e.PayloadVersion = 1 << 40 }, "payload_version"},
		{"another type than its schema's", func(e *event.Envelope) { e.Type = event.RunFailedType }, "type"},
		{"another version than its schema's", func(e *event.Envelope) { e.PayloadVersion = 2 }, "payload_version"},
	} {
		env := envelopeValue(event.RunCancelledType, 1)
		c.change(&env)
		_, err := DecodeRecord(event.RunCancelledType, 1, appendText(appendEnvelope(nil, env), "stopped"))
		wantError(t, c.about, err, event.BadEnvelope, c.field)
	}
}

func TestTheEnvelopeOfAnUnknownEventIsUnderstood(t *testing.T) {
	want := envelopeValue("tool.call.teleported", 9)
	got, rest, err := DecodeEnvelope(append(appendEnvelope(nil, want), "whatever follows"...))
	if err != nil || !reflect.DeepEqual(got, want) || string(rest) != "whatever follows" {
		t.Errorf("got %+v, %q, %v", got, rest, err)
	}
	stored, err := DecodeRecord(want.Type, want.PayloadVersion, appendEnvelope(nil, want))
	wantError(t, "an unknown type", err, event.UnknownType, "type")
	if !reflect.DeepEqual(stored.Envelope, want) {
		t.Errorf("beside the error stands %+v", stored.Envelope)
	}
}

// The walk relies on it: what it has let through never asks goavro for more than this.
func TestGoavrosOwnLimitIsSet(t *testing.T) {
	if goavro.MaxBlockCount != MaxItems {
		t.Errorf("goavro takes blocks of %d items", goavro.MaxBlockCount)
	}
}

func TestWalkingAllocatesNothing(t *testing.T) {
	s := fixtureOf(t, "model.response.completed.v1")
	record, err := s.AppendBinary(nil)
	if err != nil {
		t.Fatal(err)
	}
	allocs := testing.AllocsPerRun(100, func() {
		w := walker{buf: record}
		if w.walk(envelopeTree) != nil || w.payload(s.schema.payload) != nil {
			t.Fatal("refused")
		}
	})
	if allocs > 0 {
		t.Errorf("the walk allocates %v times", allocs)
	}
}

func envelopeValue(name event.Type, version int) event.Envelope {
	return event.Envelope{EnvelopeVersion: 1, EventID: "0190a000-0000-7000-8000-000000000001", TenantID: "default", SessionID: "s",
		RunID: event.Some("r"), Seq: 1, Type: name, PayloadVersion: version, ActorType: "runtime", PartitionKey: "s"}
}

func envelopeOf(name event.Type, version int) []byte {
	return appendEnvelope(nil, envelopeValue(name, version))
}

func slicesRepeat[T any](v T, n int) []T {
	all := make([]T, n)
	for i := range all {
		all[i] = v
	}
	return all
}

func unhex(t testing.TB, digits string) []byte {
	b, err := hex.DecodeString(strings.ReplaceAll(digits, " ", ""))
	if err != nil {
		t.Fatal(fmt.Errorf("%q: %w", digits, err))
	}
	return b
}
