package projection

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/tooltape/tooltape/schemas/event"
)

// at is an event with this payload at this seq.
func at(seq int64, p event.Payload) event.Event {
	e := event.Event{Envelope: event.Envelope{EnvelopeVersion: 1, EventID: fmt.Sprintf("0199c0de-0000-7000-8000-%012d", seq),
		TenantID: event.DefaultTenant, SessionID: "s", Seq: seq, PayloadVersion: 1, ActorType: "runtime", PartitionKey: "s"}, Payload: p}
	if seq > 1 {
		e.PrevEventID = event.Some(fmt.Sprintf("0199c0de-0000-7000-8000-%012d", seq-1))
	}
	if p != nil {
		e.Type = p.Type()
	}
	return e
}

func text(s string) []event.Part { return []event.Part{event.Text{Text: s}} }

func result(state event.RecordedItem) event.ToolResult {
	return event.ToolResult{CallID: "call_1", Name: "send_mail", ReasonCode: event.Some("policy.refused"), ResultItem: state}
}

// resultEvents are the five tool result events, all with the same facts.
func resultEvents(r event.ToolResult) []event.Event {
	return []event.Event{at(7, event.ToolCallCompleted{ToolResult: r}), at(7, event.ToolCallFailed{ToolResult: r}),
		at(7, event.ToolCallUncertain{ToolResult: r}), at(7, event.ToolCallCancelled{ToolResult: r}),
		at(7, event.ToolCallDenied{ToolResult: r})}
}

func TestMessagesAndResponsesBecomeItemsInOrder(t *testing.T) {
	for _, c := range []struct {
		payload event.Payload
		want    []Item
	}{
		{event.SystemMessageCreated{Content: text("Be kind.")}, []Item{System{Content: text("Be kind."), SourceSeq: 7}}},
		{event.UserMessageCreated{Content: text("Hello"), Trust: event.User},
			[]Item{User{Content: text("Hello"), Trust: event.User, SourceSeq: 7}}},
		{event.ContextCompacted{ThroughSeq: 5, Content: text("They greeted."), Method: "summary"},
			[]Item{Compaction{ThroughSeq: 5, Content: text("They greeted."), Method: "summary", SourceSeq: 7}}},
		{event.ModelResponseCompleted{Round: 1, Items: []event.ResponseItem{
			event.ProviderItem{Provider: "anthropic", ProviderKind: "thinking", Data: `{}`},
			event.AssistantMessage{Content: text("Let me see.")},
			event.ToolCall{CallID: "a", Name: "ls", Arguments: "{ }"},
			event.ToolCall{CallID: "b", Name: "ls", Arguments: "not JSON"},
		}}, []Item{
			Provider{Provider: "anthropic", ProviderKind: "thinking", Data: `{}`, SourceSeq: 7},
			Assistant{Content: text("Let me see."), SourceSeq: 7},
			ToolCall{CallID: "a", Name: "ls", Arguments: "{ }", SourceSeq: 7},
			ToolCall{CallID: "b", Name: "ls", Arguments: "not JSON", SourceSeq: 7},
		}},
	} {
		got, err := Items(at(7, c.payload))
		if err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %v, %v; want %v", c.payload.Type(), got, err, c.want)
		}
	}
}

func TestEachToolResultEventShowsItsRecordedItem(t *testing.T) {
	item := event.ResultItem{CallID: "call_1", Content: text("done"), IsError: event.Opt[bool]{}, Trust: event.Knowledge}
	want := []Item{ToolResult{CallID: "call_1", Content: text("done"), Trust: event.Knowledge, SourceSeq: 7}}
	for _, e := range resultEvents(result(event.Recorded(item))) {
		if got, err := Items(e); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %v, %v", e.Type, got, err)
		}
	}
}

// The exact text is the decision of ADR-0142: old denials project from what they recorded.
func TestDenialWhoseItemWasNeverRecordedIsRenderedFromItsFacts(t *testing.T) {
	for _, c := range []struct{ name, reason, want string }{
		{"send_mail", "policy.refused", `{"status":"denied","action":"send_mail","reason_code":"policy.refused"}`},
		{"süß<&>📧", "a\"b\\c\n\u2028\x00", `{"status":"denied","action":"süß<&>📧","reason_code":"a\"b\\c\n` + "\u2028" + `\u0000"}`},
	} {
		got, err := Items(at(9, event.ToolCallDenied{ToolResult: event.ToolResult{CallID: "call_1", Name: c.name,
			ReasonCode: event.Some(c.reason), ResultItem: event.RecordedItem{State: event.Null}}}))
		want := []Item{ToolResult{CallID: "call_1", Content: text(c.want), IsError: event.Some(true), Trust: event.ExternalUntrusted,
			SourceSeq: 9}}
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%v, %v; want %v", got, err, want)
		}
	}
}

func TestResultWithoutItsItemIsRefusedAndNamed(t *testing.T) {
	for _, state := range []event.ItemState{event.Absent, event.Null} {
		for _, e := range resultEvents(result(event.RecordedItem{State: state})) {
			if state == event.Null && e.Type == event.ToolCallDeniedType {
				continue // the one case that its facts can show
			}
			mustRefuse(t, e, event.ResultItemMissing)
		}
	}
}

func TestMalformedEventsAreRefusedAndNamed(t *testing.T) {
	unrecorded := event.RecordedItem{State: event.Null}
	denied := func(r event.ToolResult) event.Payload { return event.ToolCallDenied{ToolResult: r} }
	response := func(item event.ResponseItem) event.Payload {
		return event.ModelResponseCompleted{Items: []event.ResponseItem{item}}
	}
	present := func(item event.ResultItem) event.Payload {
		return event.ToolCallFailed{ToolResult: result(event.Recorded(item))}
	}
	for name, p := range map[string]event.Payload{
		"no payload":                  nil,
		"unrecorded, no call id":      denied(event.ToolResult{Name: "n", ReasonCode: event.Some("r"), ResultItem: unrecorded}),
		"unrecorded, no name":         denied(event.ToolResult{CallID: "c", ReasonCode: event.Some("r"), ResultItem: unrecorded}),
		"unrecorded, no reason":       denied(event.ToolResult{CallID: "c", Name: "n", ResultItem: unrecorded}),
		"unrecorded, empty reason":    denied(event.ToolResult{CallID: "c", Name: "n", ReasonCode: event.Some(""), ResultItem: unrecorded}),
		"item without call id":        present(event.ResultItem{Trust: event.User}),
		"item of another call":        present(event.ResultItem{CallID: "call_2", Trust: event.User}),
		"item of no trust":            present(event.ResultItem{CallID: "call_1"}),
		"item with a part of no kind": present(event.ResultItem{CallID: "call_1", Trust: event.User, Content: []event.Part{nil}}),
		"message of no trust":         event.UserMessageCreated{Content: text("x")},
		"message with a wrong part":   event.SystemMessageCreated{Content: []event.Part{&event.Text{Text: "x"}}},
		"compaction of no method":     event.ContextCompacted{ThroughSeq: 1},
		"response item of no kind":    response(nil),
		"response item by pointer":    response(&event.ToolCall{CallID: "c"}),
		"call without id":             response(event.ToolCall{Name: "n"}),
		"assistant with a wrong part": response(event.AssistantMessage{Content: []event.Part{nil}}),
		"payload by pointer":          &event.NoteRecorded{Name: "n", Data: "{}"},
	} {
		t.Run(name, func(t *testing.T) { mustRefuse(t, at(7, p), event.BadEvent) })
	}
	mislabelled := at(7, event.NoteRecorded{Name: "n", Data: "{}"})
	mislabelled.Type = event.UserMessageCreatedType
	mustRefuse(t, mislabelled, event.BadEvent)
}

func mustRefuse(t *testing.T, e event.Event, code event.Code) {
	t.Helper()
	items, err := Items(e)
	var refused *event.Error
	if !errors.As(err, &refused) || refused.Code != code || items != nil {
		t.Fatalf("got %v, %v; want the code %s", items, err, code)
	}
	if !strings.Contains(err.Error(), string(e.Type)) || !strings.Contains(err.Error(), e.EventID) {
		t.Errorf("the error names neither type nor event: %v", err)
	}
}

func TestAllOtherEventsAddNothing(t *testing.T) {
	for _, p := range []event.Payload{event.SessionCreated{}, event.ToolsOffered{}, event.RunStarted{}, event.ModelRequestStarted{},
		event.ModelResponseFailed{}, event.ToolCallProposed{}, event.ToolCallAuthorized{}, event.ToolCallStarted{},
		event.ApprovalRequested{}, event.ApprovalResolved{}, event.ApprovalInvalidated{}, event.InputRequested{},
		event.InputReceived{}, event.RunCompleted{}, event.RunFailed{}, event.RunCancelled{}, event.VerdictRecorded{},
		event.NoteRecorded{}, event.EventPurged{PurgedType: event.ToolCallCompletedType}} {
		if items, err := Items(at(3, p)); len(items) != 0 || err != nil {
			t.Errorf("%s: %v, %v", p.Type(), items, err)
		}
	}
}

func TestProjectingTwiceGivesTheSameAndChangesNothing(t *testing.T) {
	e := at(7, event.ModelResponseCompleted{Items: []event.ResponseItem{event.AssistantMessage{Content: text("a")}}})
	first, _ := Items(e)
	second, _ := Items(e)
	want := at(7, event.ModelResponseCompleted{Items: []event.ResponseItem{event.AssistantMessage{Content: text("a")}}})
	if !reflect.DeepEqual(first, second) || !reflect.DeepEqual(e, want) {
		t.Errorf("%v then %v from %v", first, second, e)
	}
}
