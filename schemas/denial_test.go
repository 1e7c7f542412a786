package schemas

import (
	"strings"
	"testing"

	"github.com/tooltape/tooltape/schemas/event"
)

// A denial was recorded without the item that the model must see, and its session broke for ever (ADR-0142). These are the
// shapes that production logs hold, and those that nothing may take.

func TestARecordedApprovalDenialWithoutAnItemHasAnExplicitNull(t *testing.T) {
	denied := deniedOf(t, fixtureOf(t, "tool.call.denied.v1.approval"))
	if denied.ResultItem.State != event.Null {
		t.Errorf("the item's state is %d, and should be Null: it was not recorded, and that is known", denied.ResultItem.State)
	}
	if denied.CallID != "c-1" || denied.Name != "save_alt_text" || denied.ReasonCode != event.Some("approval.denied") {
		t.Errorf("the recorded facts have become %+v", denied)
	}
}

func TestARecordedRefusalKeepsItsItem(t *testing.T) {
	denied := deniedOf(t, fixtureOf(t, "tool.call.denied.v1.refusal"))
	want := event.ResultItem{CallID: "c-1", Content: []event.Part{event.Text{Text: "That is not allowed."}}, IsError: event.Some(true), Trust: event.Platform}
	wantItem(t, denied, want)
}

func TestADenialOfTodayIsUnchanged(t *testing.T) {
	denied := deniedOf(t, fixtureOf(t, "tool.call.denied.v2"))
	want := event.ResultItem{CallID: "c-1", Content: []event.Part{event.Text{Text: "The person said no."}}, IsError: event.Some(true), Trust: event.Platform}
	wantItem(t, denied, want)
}

func TestAnItemlessDenialIsPrintedWithoutTheItemAndUpcastWithNull(t *testing.T) {
	stored := fixtureOf(t, "tool.call.denied.v1.approval")
	if line := appendJSONOf(t, stored); strings.Contains(line, "result_item") {
		t.Errorf("as stored it is printed as %s", line)
	}
	upcast, err := stored.Upcast()
	if err != nil {
		t.Fatal(err)
	}
	if line := appendJSONOf(t, upcast); !strings.Contains(line, `"result_item":null`) {
		t.Errorf("as current it is printed as %s", line)
	}
}

func TestADenialsItemHasThreeStatesInJSON(t *testing.T) {
	const item = `{"call_id":"c","content":[],"is_error":true,"trust":"platform"}`
	for _, c := range []struct {
		about, version, item string
		state                event.ItemState
		code                 event.Code
		field                string
	}{
		{"version 1, absent", "1", ``, event.Null, "", ""},
		{"version 1, null", "1", `,"result_item":null`, event.Null, "", ""},
		{"version 1, present", "1", `,"result_item":` + item, event.Present, "", ""},
		{"version 1, a string", "1", `,"result_item":"no"`, 0, event.BadPayload, "payload.result_item"},
		{"version 2, absent", "2", ``, 0, event.ResultItemMissing, "payload.result_item"},
		{"version 2, null", "2", `,"result_item":null`, 0, event.ResultItemMissing, "payload.result_item"},
		{"version 2, present", "2", `,"result_item":` + item, event.Present, "", ""},
		{"version 2, a string", "2", `,"result_item":"no"`, 0, event.BadPayload, "payload.result_item"},
		{"version 2, an array", "2", `,"result_item":[]`, 0, event.BadPayload, "payload.result_item"},
		{"version 2, without its call", "2", `,"result_item":{"content":[],"trust":"platform"}`, 0, event.BadPayload, "payload.result_item.call_id"},
		{"version 3", "3", `,"result_item":` + item, 0, event.NewerVersion, ""},
	} {
		t.Run(c.about, func(t *testing.T) {
			s, err := ParseJSON(deniedLine(c.version, `"call_id":"c","name":"n","reason_code":"r"`+c.item))
			if c.code != "" {
				wantError(t, c.about, err, c.code, c.field)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := deniedOf(t, s).ResultItem.State; got != c.state {
				t.Errorf("the item's state is %d, want %d", got, c.state)
			}
		})
	}
}

func TestADenialWithoutItsFactsIsRefused(t *testing.T) {
	for _, c := range []struct{ about, payload, field string }{
		{"an empty reason", `"call_id":"c","name":"n","reason_code":""`, "payload.reason_code"},
		{"no reason", `"call_id":"c","name":"n"`, "payload.reason_code"},
		{"a null reason", `"call_id":"c","name":"n","reason_code":null`, "payload.reason_code"},
		{"no call id", `"name":"n","reason_code":"r"`, "payload.call_id"},
		{"an empty call id", `"call_id":"","name":"n","reason_code":"r"`, "payload.call_id"},
		{"no name", `"call_id":"c","reason_code":"r"`, "payload.name"},
	} {
		s, err := ParseJSON(deniedLine("1", c.payload))
		if err == nil {
			_, err = s.Event()
		}
		wantError(t, c.about, err, event.BadPayload, c.field)
	}
}

func TestNoOtherToolResultGoesWithoutItsItem(t *testing.T) {
	for _, name := range []event.Type{event.ToolCallCompletedType, event.ToolCallFailedType, event.ToolCallUncertainType, event.ToolCallCancelledType} {
		for _, item := range []string{``, `,"result_item":null`} {
			line := `{"type":"` + string(name) + `","payload":{"call_id":"c","name":"n"` + item + `}}`
			_, err := ParseJSON([]byte(line))
			wantError(t, line, err, event.ResultItemMissing, "payload.result_item")
		}
	}
}

func TestTheWriterRefusesADenialWithoutItsItem(t *testing.T) {
	for _, state := range []event.ItemState{event.Absent, event.Null} {
		denied := event.ToolCallDenied{ToolResult: event.ToolResult{CallID: "c", Name: "n", ReasonCode: event.Some("r"), ResultItem: event.RecordedItem{State: state}}}
		_, err := StoredOf(event.Event{Payload: denied})
		wantError(t, "a denial without its item", err, event.ResultItemMissing, "payload.result_item")
	}
}

func deniedLine(version, payload string) []byte {
	return []byte(`{"envelope_version":1,"event_id":"0190a000-0000-7000-8000-000000000001","tenant_id":"default","session_id":"s","seq":1,` +
		`"type":"tool.call.denied","payload_version":` + version + `,"actor_type":"runtime","partition_key":"s","payload":{` + payload + `}}`)
}

func deniedOf(t *testing.T, s Stored) event.ToolCallDenied {
	t.Helper()
	e, err := s.Event()
	if err != nil {
		t.Fatal(err)
	}
	return e.Payload.(event.ToolCallDenied)
}

func wantItem(t *testing.T, denied event.ToolCallDenied, want event.ResultItem) {
	t.Helper()
	got := denied.ResultItem
	if got.State != event.Present || got.Item.CallID != want.CallID || got.Item.IsError != want.IsError || got.Item.Trust != want.Trust ||
		len(got.Item.Content) != 1 || got.Item.Content[0] != want.Content[0] {
		t.Errorf("the item is %+v, want %+v", got, want)
	}
}
