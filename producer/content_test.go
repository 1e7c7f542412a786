package producer_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/tooltape/tooltape/producer"
	"github.com/tooltape/tooltape/schemas"
	"github.com/tooltape/tooltape/schemas/event"
)

// noise is text that no compression makes smaller, so that the broker sees its full size.
func noise(n int) string {
	const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
	b := make([]byte, n)
	r := rand.New(rand.NewPCG(1, 2))
	for i := range b {
		b[i] = letters[r.IntN(len(letters))]
	}
	return string(b)
}

func TestWhatCanBeRecordedComesBackExactly(t *testing.T) {
	number := strings.Repeat("123456789", 4)
	deep := strings.Repeat(`{"a":[`, 4000) + "1" + strings.Repeat("]}", 4000)
	called := event.ToolCallCompleted{ToolResult: result(event.Opt[bool]{})}
	called.ResultItem.Item.Content = []event.Part{event.Text{Text: "\x00 \u2028 <>& \U0001F600 é e\u0301"}, event.Text{}}
	s := newStage(t)
	w := s.writer()
	for name, payload := range map[string]event.Payload{
		"U+0000, separators and combining marks in a result": called,
		"a megabyte of text":   says(noise(1 << 20)).Payload,
		"deep JSON":            event.NoteRecorded{Name: "n", Data: deep},
		"numbers of 30 digits": event.NoteRecorded{Name: "n", Data: `{"n":` + number + `.` + number + `e-400}`},
		"what a strict reader of JSON text would refuse, and a provider has written": event.NoteRecorded{Name: "n", Data: `{"a":1,"a":"\ud800"}`},
		"escapes as they stand":                                  event.NoteRecorded{Name: "n", Data: `{ "\u0000\ud83d\ude00":"\/" , "b":1.0 }`},
		"arguments that are no JSON, with a number that is none": event.ModelResponseCompleted{Items: []event.ResponseItem{event.ToolCall{CallID: "c", Name: "n", Arguments: `{"a": NaN, "a": `}}},
		"edited arguments":                                       event.ToolCallStarted{CallID: "c", Name: "n", Arguments: event.Some("{\"a\":\x00")},
		"signed thinking":                                        event.ModelResponseCompleted{Items: []event.ResponseItem{event.ProviderItem{Provider: "p", ProviderKind: "thinking", Data: `{"signature":"` + noise(1000) + `"}`}}},
	} {
		t.Run(name, func(t *testing.T) {
			recorded := must(w.Append(t.Context(), name, by(payload)))(t)[0]
			stored := s.stored(name)[0]
			if got := must(stored.Event())(t); !reflect.DeepEqual(got, recorded) || !reflect.DeepEqual(got.Payload, payload) {
				t.Errorf("what comes back is not what was appended")
			}
			// In JSON form too, and through it into another log.
			line := must(stored.AppendJSON(nil))(t)
			must(w.Backfill(t.Context(), name+" copied", inSession(parse(t, string(line)), name+" copied")))(t)
			if got := must(s.stored(name + " copied")[0].Event())(t); !reflect.DeepEqual(got.Payload, payload) {
				t.Errorf("the copy's payload is another")
			}
		})
	}
}

// inSession is the event for another session.
func inSession(e schemas.Stored, session string) schemas.Stored {
	e.SessionID, e.PartitionKey = session, ""
	return e
}

func TestTextThatIsNotTheJSONThatItsFieldHoldsIsRefused(t *testing.T) {
	s := newStage(t)
	w := s.writer()
	for name, data := range map[string]string{
		"NaN": `{"a":NaN}`, "nothing": "", "cut off": `{"a":`, "bad UTF-8": "\"\xff\"", "two values": "1 2",
	} {
		t.Run(name, func(t *testing.T) {
			_, err := w.Append(t.Context(), "a", by(event.NoteRecorded{Name: "n", Data: data}))
			refused(t, err, 0, event.BadPayload, "payload.data")
		})
	}
	s.holds(map[string]int{})
}

func TestAnEventThatFillsARecordIsRecorded(t *testing.T) {
	s := newStage(t)
	must(s.writer().Append(t.Context(), "a", says(noise(producer.MaxRecordBytes-300)), says(noise(producer.MaxRecordBytes-300))))(t)
	s.holds(map[string]int{"a": 2})
}

func TestAnEventTooLargeForATopicIsRefusedBeforeItGetsANumber(t *testing.T) {
	s := newStage(t)
	w := s.writer()
	_, err := w.Append(t.Context(), "a", says("one"), says(noise(producer.MaxRecordBytes)))
	var refusal *producer.RefusedError
	var large *producer.TooLargeError
	if !errors.As(err, &refusal) || refusal.Index != 1 || !errors.As(err, &large) || large.Bytes <= producer.MaxRecordBytes {
		t.Fatalf("the error is %v, want a refusal of the second draft for its size", err)
	}
	if large.Instead.Payload != nil {
		t.Errorf("a message that is too large comes with %+v, and no call waits for it", large.Instead)
	}
	s.holds(map[string]int{})
	if e := must(w.Append(t.Context(), "a", says("one")))(t)[0]; e.Seq != 1 {
		t.Errorf("after the refusal the next event has seq %d, want 1", e.Seq)
	}
}

func TestAResultTooLargeToRecordComesWithAFailureThatAnswersTheCall(t *testing.T) {
	large := result(event.Some(false))
	large.ResultItem.Item.Content = []event.Part{event.Text{Text: noise(producer.MaxRecordBytes)}}
	draft := by(event.ToolCallCompleted{ToolResult: large})
	draft.EventID, draft.RunID, draft.Seq, draft.TenantID = "018f0000-0000-7000-8000-000000000002", event.Some("run-1"), 2, "tenant"
	s := newStage(t)
	w := s.writer()
	must(w.Append(t.Context(), "a", says("one")))(t)
	_, err := w.Append(t.Context(), "a", draft)
	var refusal *producer.TooLargeError
	if !errors.As(err, &refusal) {
		t.Fatalf("the error is %v, want a refusal for the size", err)
	}
	// Something else may come first: the draft takes whatever place there is.
	must(w.Append(t.Context(), "a", says("two")))(t)
	e := must(w.Append(t.Context(), "a", refusal.Instead))(t)[0]
	if e.Seq != 3 || e.EventID != draft.EventID || e.RunID != draft.RunID || e.TenantID != "tenant" || e.Type != event.ToolCallFailedType {
		t.Errorf("recorded is %+v, want the refused event's envelope", e.Envelope)
	}
	want := event.ToolCallFailed{ToolResult: event.ToolResult{
		CallID: "c1", Name: "send", ReasonCode: event.Some("result_too_large"),
		ResultItem: event.Recorded(event.ResultItem{
			CallID: "c1", Content: []event.Part{event.Text{Text: fmt.Sprintf("The result was too large to record: %d bytes.", refusal.Bytes)}}, IsError: event.Some(true), Trust: event.InternalTool,
		}),
	}}
	if !reflect.DeepEqual(e.Payload, want) {
		t.Errorf("recorded is\n%+v, want\n%+v", e.Payload, want)
	}
}

func TestABackfillRefusesWhatThisBuildDoesNotKnow(t *testing.T) {
	for name, c := range map[string]struct {
		line string
		code event.Code
	}{
		"a newer version":   {`{"type":"tool.call.denied","payload_version":3,"payload":{}}`, event.NewerVersion},
		"an unknown type":   {`{"type":"tool.call.dreamt","payload_version":1,"payload":{}}`, event.UnknownType},
		"a v2 without item": {`{"type":"tool.call.denied","payload_version":2,"payload":{"call_id":"c","name":"n","reason_code":"r"}}`, event.ResultItemMissing},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := schemas.ParseJSON([]byte(c.line)) // there is no other way to a Stored of such a version
			var fault *event.Error
			if !errors.As(err, &fault) || fault.Code != c.code {
				t.Errorf("the error is %v, want %s", err, c.code)
			}
		})
	}
	s := newStage(t)
	unknown := parse(t, `{"type":"run.started","run_id":"r","actor_type":"runtime","payload":{"skills":[]}}`)
	unknown.PayloadVersion = 2
	_, err := s.writer().Backfill(t.Context(), "a", unknown)
	refused(t, err, 0, event.NewerVersion, "payload_version")
	s.holds(map[string]int{})
}
