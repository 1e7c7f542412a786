package schemas

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/tooltape/tooltape/schemas/event"
)

// noteLine is an event without anything that it can leave out.
const noteLine = `{"envelope_version":1,"event_id":"0190a000-0000-7000-8000-000000000001","tenant_id":"default","session_id":"s","seq":1,` +
	`"type":"note.recorded","payload_version":1,"actor_type":"runtime","partition_key":"s","payload":{"name":"n","data":"{}"}}`

func TestJSONIsReadStrictly(t *testing.T) {
	responded := func(items string) string {
		return `{"type":"model.response.completed","payload":{"round":1,"items":[` + items + `]}}`
	}
	for _, c := range []struct {
		about, line string
		code        event.Code
		field       string
	}{
		{"nothing", ``, event.BadEnvelope, ""},
		{"an array", `[]`, event.BadEnvelope, ""},
		{"two objects", noteLine + noteLine, event.BadEnvelope, ""},
		{"a cut line", noteLine[:len(noteLine)-2], event.BadPayload, "payload"},
		{"a key twice", `{"type":"run.failed","seq":1,"seq":1}`, event.BadEnvelope, "seq"},
		{"a key twice, once escaped", `{"type":"run.failed","seq":1,"s\u0065q":1}`, event.BadEnvelope, "seq"},
		{"a key twice in the payload", `{"type":"run.failed","payload":{"reason":"a","reason":"b"}}`, event.BadPayload, "payload.reason"},
		{"an unknown key", `{"type":"run.failed","sequence":1}`, event.BadEnvelope, "sequence"},
		{"an unknown key in the payload", `{"type":"run.failed","payload":{"reason":"a","cause":"b"}}`, event.BadPayload, "payload.cause"},
		{"a key of another version", `{"type":"session.created","payload_version":1,"payload":{"title":"t"}}`, event.BadPayload, "payload.title"},
		{"another case", `{"type":"run.failed","SEQ":1}`, event.BadEnvelope, "SEQ"},
		{"a key that is content", `{"type":"run.failed","payload":{"my secret":1}}`, event.BadPayload, "payload"},
		{"bad UTF-8", "{\"type\":\"run.failed\",\"payload\":{\"reason\":\"\xff\"}}", event.BadPayload, "payload.reason"},
		{"a lone surrogate", `{"type":"run.failed","payload":{"reason":"\ud800"}}`, event.BadPayload, "payload.reason"},
		{"a number that is none", `{"type":"run.failed","seq":NaN}`, event.BadEnvelope, "seq"},
		{"no type", `{"payload":{}}`, event.BadEnvelope, "type"},
		{"an unknown type", `{"type":"tool.call.teleported","payload":{}}`, event.UnknownType, "type"},
		{"a null type", `{"type":null,"payload":{}}`, event.BadEnvelope, "type"},
		{"a newer version", `{"type":"run.failed","payload_version":2,"payload":{"reason":"a"}}`, event.NewerVersion, ""},
		{"version 0", `{"type":"run.failed","payload_version":0,"payload":{"reason":"a"}}`, event.BadEnvelope, "payload_version"},
		{"a null version", `{"type":"run.failed","payload_version":null,"payload":{"reason":"a"}}`, event.BadEnvelope, "payload_version"},
		{"a version as text", `{"type":"run.failed","payload_version":"1","payload":{"reason":"a"}}`, event.BadEnvelope, "payload_version"},
		{"a fraction", `{"type":"run.failed","seq":1.0}`, event.BadEnvelope, "seq"},
		{"an exponent", `{"type":"run.failed","seq":1e2}`, event.BadEnvelope, "seq"},
		{"a long beyond 64 bits", `{"type":"run.failed","seq":9223372036854775808}`, event.BadEnvelope, "seq"},
		{"an int beyond 32 bits", `{"type":"model.request.started","payload":{"round":2147483648}}`, event.BadPayload, "payload.round"},
		{"a double beyond its range", `{"type":"verdict.recorded","payload":{"name":"n","score":1e999}}`, event.BadPayload, "payload.score"},
		{"a number as text", `{"type":"verdict.recorded","payload":{"name":"n","score":"1"}}`, event.BadPayload, "payload.score"},
		{"a boolean as text", `{"type":"approval.resolved","payload":{"approved":"true"}}`, event.BadPayload, "payload.approved"},
		{"no payload", `{"type":"run.failed"}`, event.BadPayload, "payload"},
		{"a null payload", `{"type":"run.failed","payload":null}`, event.BadPayload, "payload"},
		{"a payload that is text", `{"type":"run.failed","payload":"{}"}`, event.BadPayload, "payload"},
		{"a missing field", `{"type":"run.failed","payload":{}}`, event.BadPayload, "payload.reason"},
		{"a null field", `{"type":"run.failed","payload":{"reason":null}}`, event.BadPayload, "payload.reason"},
		{"a null item", `{"type":"approval.requested","payload":{"approval_id":"a","call_ids":["c",null]}}`, event.BadPayload, "payload.call_ids[1]"},
		{"a null array", `{"type":"approval.requested","payload":{"approval_id":"a","call_ids":null}}`, event.BadPayload, "payload.call_ids"},
		{"a union's wrapper", `{"type":"run.failed","payload":{"reason":"a","message":{"string":"m"}}}`, event.BadPayload, "payload.message"},
		{"an item without a kind", responded(`{"call_id":"c","name":"n","arguments":""}`), event.BadPayload, "payload.items[0].kind"},
		{"an item of an unknown kind", responded(`{"kind":"thought"}`), event.BadPayload, "payload.items[0].kind"},
		{"a deep mistake", responded(`{"kind":"tool_call","call_id":"c","name":"n","arguments":""},{"kind":"assistant","content":[{"type":"text","text":"a"},{"type":"text","text":7}]}`),
			event.BadPayload, "payload.items[1].content[1].text"},
		{"a missing call id", responded(`{"kind":"tool_call","name":"n","arguments":""}`), event.BadPayload, "payload.items[0].call_id"},
		{"another kind of result item", `{"type":"tool.call.failed","payload":{"call_id":"c","name":"n","result_item":{"kind":"assistant"}}}`, event.BadPayload, "payload.result_item.kind"},
		{"JSON text that is none", `{"type":"note.recorded","payload":{"name":"n","data":"NaN"}}`, event.BadPayload, "payload.data"},
		{"JSON text that is a value", `{"type":"note.recorded","payload":{"name":"n","data":{}}}`, event.BadPayload, "payload.data"},
		{"nullable JSON text that is none", responded(`{"kind":"assistant","content":[],"provider_data":"{"}`), event.BadPayload, "payload.items[0].provider_data"},
		{"seq 0", `{"type":"run.failed","seq":0,"payload":{"reason":"a"}}`, event.BadEnvelope, "seq"},
		{"seq -0", `{"type":"run.failed","seq":-0,"payload":{"reason":"a"}}`, event.BadEnvelope, "seq"},
		{"a negative seq", `{"type":"run.failed","seq":-1,"payload":{"reason":"a"}}`, event.BadEnvelope, "seq"},
		{"envelope version 0", `{"type":"run.failed","envelope_version":0,"payload":{"reason":"a"}}`, event.BadEnvelope, "envelope_version"},
		{"an empty event id", `{"type":"run.failed","event_id":"","payload":{"reason":"a"}}`, event.BadEnvelope, "event_id"},
		{"an empty partition key", `{"type":"run.failed","partition_key":"","payload":{"reason":"a"}}`, event.BadEnvelope, "partition_key"},
		{"a byte order mark", "\ufeff" + noteLine, event.BadEnvelope, ""},
		{"a time with a comma", `{"type":"run.failed","occurred_at":"2026-09-29T10:00:00,5Z"}`, event.BadEnvelope, "occurred_at"},
		{"an hour of one digit", `{"type":"run.failed","occurred_at":"2026-09-29T1:00:00Z"}`, event.BadEnvelope, "occurred_at"},
		{"an offset of a day", `{"type":"run.failed","occurred_at":"2026-09-29T10:00:00+24:00"}`, event.BadEnvelope, "occurred_at"},
		{"a time without an offset", `{"type":"run.failed","occurred_at":"2026-09-29T10:00:00"}`, event.BadEnvelope, "occurred_at"},
		{"a time of nanoseconds", `{"type":"run.failed","occurred_at":"2026-09-29T10:00:00.1234567Z"}`, event.BadEnvelope, "occurred_at"},
		{"a time of zero nanoseconds", `{"type":"run.failed","occurred_at":"2026-09-29T10:00:00.1234560+02:00"}`, event.BadEnvelope, "occurred_at"},
		{"a time before year 1", `{"type":"run.failed","occurred_at":"0001-01-01T00:00:00+01:00"}`, event.BadEnvelope, "occurred_at"},
		{"a day that is none", `{"type":"run.failed","occurred_at":"2026-02-30T10:00:00Z"}`, event.BadEnvelope, "occurred_at"},
		{"too many items", `{"type":"approval.requested","payload":{"approval_id":"a","call_ids":[` + strings.Repeat(`"c",`, MaxItems) + `"c"]}}`, event.TooManyItems, "payload.call_ids"},
		{"too many extensions and items", `{"type":"approval.requested","ext":[{"name":"a","value":"b"}],"payload":{"approval_id":"a","call_ids":[` +
			strings.Repeat(`"c",`, MaxItems-1) + `"c"]}}`, event.TooManyItems, "payload.call_ids"},
		{"too long a line", `{"type":"run.failed","payload":{"reason":"` + strings.Repeat("a", MaxLine) + `"}}`, event.BadEnvelope, ""},
		{"too deep a line", `{"type":` + strings.Repeat("[", 1<<20), event.BadEnvelope, "type" + strings.Repeat("[0]", 32)},
	} {
		_, err := ParseJSON([]byte(c.line))
		wantError(t, c.about, err, c.code, c.field)
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: the error tells content: %v", c.about, err)
		}
	}
}

func TestJSONMayBeWrittenInOtherWays(t *testing.T) {
	for _, c := range []struct{ about, line string }{
		{"spaces", strings.ReplaceAll(noteLine, `,`, " ,\t\r\n ")},
		{"the payload before the type", `{"payload":{"data":"{}","name":"n"},` + strings.TrimPrefix(strings.TrimSuffix(noteLine, `,"payload":{"name":"n","data":"{}"}}`), "{") + "}"},
		{"explicit nulls", strings.Replace(noteLine, `{`, `{"run_id":null,"prev_event_id":null,"occurred_at":null,"actor_id":null,`, 1)},
		{"escapes", strings.Replace(noteLine, `"name":"n"`, `"n\u0061me":"\u006e"`, 1)},
	} {
		s, err := ParseJSON([]byte(c.line))
		if err != nil {
			t.Errorf("%s: %v", c.about, err)
			continue
		}
		want, _ := ParseJSON([]byte(noteLine))
		if got, want := appendJSONOf(t, s), appendJSONOf(t, want); got != want {
			t.Errorf("%s: read as\n%s, want\n%s", c.about, got, want)
		}
	}
}

func TestTheKindNeedNotStandFirst(t *testing.T) {
	const line = `{"type":"model.response.completed","payload":{"items":[ {"content":[{"text":"a","type":"text"} , {"media_type":"m","type":"file","uri":"u"}],"kind":"assistant"},` +
		"\n" + `{"arguments":"{","call_id":"c","kind":"tool_call","name":"n"}],"round":1}}`
	s, err := ParseJSON([]byte(line))
	if err != nil {
		t.Fatal(err)
	}
	const want = `"items":[{"kind":"assistant","content":[{"type":"text","text":"a"},{"type":"file","uri":"u","sha256":null,"media_type":"m","filename":null}],"provider_data":null},` +
		`{"kind":"tool_call","call_id":"c","name":"n","arguments":"{","provider_data":null}]`
	if got := appendJSONOf(t, s); !strings.Contains(got, want) {
		t.Errorf("read as %s", got)
	}
}

func TestTimesAreReadAtAnyOffsetAndKeptInUTC(t *testing.T) {
	for stated, want := range map[string]string{
		"2026-09-29T10:00:00Z":             "2026-09-29T10:00:00Z",
		"2026-09-29T10:00:00.123456+05:30": "2026-09-29T04:30:00.123456Z",
		"1969-12-31T23:59:59.999999Z":      "1969-12-31T23:59:59.999999Z",
		"9999-12-31T23:59:59.999999-00:00": "9999-12-31T23:59:59.999999Z",
	} {
		s, err := ParseJSON([]byte(strings.Replace(noteLine, `{`, `{"occurred_at":"`+stated+`",`, 1)))
		if err != nil {
			t.Errorf("%s: %v", stated, err)
			continue
		}
		if s.OccurredAt.Value.Location() != time.UTC || !strings.Contains(appendJSONOf(t, s), `"occurred_at":"`+want+`"`) {
			t.Errorf("%s is kept as %v, want %s", stated, s.OccurredAt.Value, want)
		}
	}
}

func TestAnEventTellsWhetherItStatedItsVersion(t *testing.T) {
	for version, want := range map[string]bool{`"payload_version":1,`: true, ``: false} {
		s, err := ParseJSON([]byte(strings.Replace(noteLine, `"payload_version":1,`, version, 1)))
		if err != nil || s.StatedVersion != want || s.PayloadVersion != 1 {
			t.Errorf("%q: stated %v, version %d, %v", version, s.StatedVersion, s.PayloadVersion, err)
		}
	}
}

func TestAnUnreadablePayloadLeavesTheEnvelope(t *testing.T) {
	for _, line := range []string{
		`{"seq":7,"type":"tool.call.teleported","payload":{"any":1}}`,
		`{"seq":7,"type":"run.failed","payload_version":9,"payload":{"any":1}}`,
		`{"seq":7,"type":"run.failed","payload":{"any":1}}`,
	} {
		s, err := ParseJSON([]byte(line))
		if err == nil || s.Seq != 7 || s.Type == "" {
			t.Errorf("%s: %+v, %v", line, s.Envelope, err)
		}
		if _, err := s.Event(); err == nil {
			t.Errorf("%s: an event without a payload is taken", line)
		}
		if _, err := s.AppendBinary(nil); err == nil {
			t.Errorf("%s: an event without a payload is stored", line)
		}
	}
}

func TestWhatJSONCannotSayIsNotWritten(t *testing.T) {
	for _, c := range []struct {
		about   string
		payload event.Payload
		field   string
	}{
		{"bad UTF-8", event.SystemMessageCreated{Content: []event.Part{event.Text{}, event.Text{Text: "\xff"}}}, "payload.content[1].text"},
		{"not a number", event.VerdictRecorded{Score: event.Some(math.NaN())}, "payload.score"},
		{"an infinite number", event.ModelResponseCompleted{Usage: event.Some(event.Usage{CostUSD: event.Some(math.Inf(1))})}, "payload.usage.cost_usd"},
	} {
		s, err := StoredOf(event.Event{Payload: c.payload})
		if err != nil {
			t.Fatalf("%s: %v", c.about, err)
		}
		_, err = s.AppendJSON(nil)
		wantError(t, c.about, err, event.BadPayload, c.field)
	}
	s, err := StoredOf(event.Event{Envelope: event.Envelope{SessionID: "\xff"}, Payload: event.RunFailed{}})
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.AppendJSON(nil)
	wantError(t, "bad UTF-8 in the envelope", err, event.BadEnvelope, "session_id")
}

// Other characters are escaped only where JSON demands it, so that a text reads as it was written.
func TestTextIsNotEscapedWithoutNeed(t *testing.T) {
	s, err := ParseJSON([]byte(strings.Replace(noteLine, `"name":"n"`, `"name":"<ü>&\u2028\u0000🦊"`, 1)))
	if err != nil {
		t.Fatal(err)
	}
	if got := appendJSONOf(t, s); !strings.Contains(got, "\"<ü>&\u2028\\u0000🦊\"") {
		t.Errorf("written as %s", got)
	}
}

func TestAppendingKeepsWhatIsThere(t *testing.T) {
	s, err := ParseJSON([]byte(noteLine))
	if err != nil {
		t.Fatal(err)
	}
	for name, appendTo := range map[string]func([]byte) ([]byte, error){"JSON": s.AppendJSON, "Avro": s.AppendBinary} {
		alone, err := appendTo(nil)
		if err != nil {
			t.Fatal(err)
		}
		after, err := appendTo([]byte("before"))
		if err != nil || !bytes.Equal(after, append([]byte("before"), alone...)) {
			t.Errorf("%s: %q, %v", name, after, err)
		}
	}
	bad, err := StoredOf(event.Event{Payload: event.RunFailed{Reason: "\xff"}})
	if err != nil {
		t.Fatal(err)
	}
	for name, appendTo := range map[string]func([]byte) ([]byte, error){"JSON": bad.AppendJSON, "Avro": bad.AppendBinary} {
		if after, err := appendTo([]byte("before")); err == nil || string(after) != "before" {
			t.Errorf("%s: %q beside %v", name, after, err)
		}
	}
}

func FuzzParseJSON(f *testing.F) {
	for _, fixture := range fixtures(f) {
		f.Add([]byte(fixture.Event))
	}
	f.Add([]byte(noteLine))
	f.Fuzz(func(t *testing.T, line []byte) {
		s, err := ParseJSON(line)
		if err != nil {
			mustBeEventError(t, err)
			return
		}
		again, err := ParseJSON([]byte(appendJSONOf(t, s)))
		if err != nil {
			t.Fatalf("what was read cannot be read again: %v", err)
		}
		again.StatedVersion = s.StatedVersion
		if got, want := fmt.Sprintf("%#v", again.payload), fmt.Sprintf("%#v", s.payload); got != want || appendJSONOf(t, again) != appendJSONOf(t, s) {
			t.Fatalf("what was read changes when it is read again:\n%s\n%s", got, want)
		}
		if _, err := s.Event(); err != nil {
			mustBeEventError(t, err)
		}
		if s.EnvelopeVersion != event.EnvelopeVersion {
			return
		}
		record, err := s.AppendBinary(nil)
		if err != nil {
			t.Fatalf("what was read cannot be stored: %v", err)
		}
		stored, err := DecodeRecord(s.Type, s.PayloadVersion, record)
		if err != nil || appendJSONOf(t, stored) != appendJSONOf(t, s) {
			t.Fatalf("what was read is stored as another event: %v", err)
		}
	})
}

func FuzzDecodeRecord(f *testing.F) {
	for _, fixture := range fixtures(f) {
		f.Add(unhex(f, fixture.Avro))
	}
	f.Fuzz(func(t *testing.T, record []byte) {
		env, _, err := DecodeEnvelope(record)
		if err != nil {
			mustBeEventError(t, err)
			return
		}
		s, err := DecodeRecord(env.Type, env.PayloadVersion, record)
		if err != nil {
			mustBeEventError(t, err)
			return
		}
		if _, err := s.Event(); err != nil {
			mustBeEventError(t, err)
		}
		again, err := s.AppendBinary(nil)
		if err != nil {
			t.Fatalf("what was read cannot be stored: %v", err)
		}
		stored, err := DecodeRecord(env.Type, env.PayloadVersion, again)
		if err != nil || appendJSONOf(t, stored) != appendJSONOf(t, s) {
			t.Fatalf("what was read is stored as another event: %v", err)
		}
	})
}

func mustBeEventError(t *testing.T, err error) {
	t.Helper()
	if e, ok := errors.AsType[*event.Error](err); !ok || e.Code == "" || e.Message == "" {
		t.Fatalf("%v (%T) is not a fact about the event", err, err)
	}
}
