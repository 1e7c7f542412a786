package projection

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/tooltape/tooltape/schemas/event"
)

func TestHistoryHoldsTheItemsOfItsEvents(t *testing.T) {
	h := newTape(t, nil)
	h.add(event.SessionCreated{}, says("Hello"), answers("Hi"))
	want := []Item{User{Content: text("Hello"), Trust: event.User, SourceSeq: 2}, Assistant{Content: text("Hi"), SourceSeq: 3}}
	if got := h.Items(); !reflect.DeepEqual(got, want) || h.Seq() != 3 {
		t.Errorf("%v at seq %d", got, h.Seq())
	}
}

func TestHistoryRefusesWhatDoesNotFollowAndStaysAsItWas(t *testing.T) {
	h := newTape(t, nil)
	h.add(event.SessionCreated{}, says("Hello"))
	another, forked := at(3, says("x")), at(3, says("x"))
	another.SessionID = "another"
	forked.PrevEventID = event.Some("0199c0de-0000-7000-8000-00000000000f")
	for name, tc := range map[string]struct {
		event event.Event
		code  event.Code
	}{
		"beyond a hole":           {at(4, says("x")), event.Gap},
		"the same place again":    {at(2, says("x")), event.Conflict},
		"no place":                {at(0, says("x")), event.Conflict},
		"another session":         {another, event.BadEvent},
		"after another event":     {forked, event.Conflict},
		"a result without item":   {at(3, event.ToolCallFailed{}), event.ResultItemMissing},
		"a payload of no type":    {at(3, nil), event.BadEvent},
		"a denial without a name": {at(3, event.ToolCallDenied{ToolResult: event.ToolResult{ResultItem: event.RecordedItem{State: event.Null}}}), event.BadEvent},
	} {
		var refused *event.Error
		if err := h.Append(tc.event); !errors.As(err, &refused) || refused.Code != tc.code {
			t.Errorf("%s: %v", name, err)
		}
		if len(h.Items()) != 1 || h.Seq() != 2 {
			t.Fatalf("%s: %v at seq %d", name, h.Items(), h.Seq())
		}
	}
	h.add(answers("It goes on."))
	if first := new(History); first.Append(at(2, says("x"))) == nil {
		t.Error("a history began in the middle")
	}
}

func TestHistoryOfAForkNeedsItsParent(t *testing.T) {
	parent := newTape(t, nil)
	parent.add(event.SessionCreated{}, says("Hello"), answers("Hi"))
	fork := event.SessionCreated{ForkedFrom: event.Some(event.SessionRef{SessionID: "s", Seq: 3})}
	for _, tc := range []struct {
		created event.SessionCreated
		parent  *Parent
		want    string
	}{
		{fork, nil, "its parent's history is missing"},
		{fork, parent.Through(2), "is given through seq 2"},
		{event.SessionCreated{}, parent.Through(3), "is no fork"},
	} {
		h := newTape(t, tc.parent)
		h.add(tc.created)
		if _, err := h.Conversation(); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%v; want %s", err, tc.want)
		}
	}
}

// What the ADR is about: the session of an unrecorded denial goes on.
func TestASessionGoesOnAfterAnUnrecordedDenial(t *testing.T) {
	h := newTape(t, nil)
	h.add(event.SessionCreated{}, says("Send it."), asks(call("c", "send", "{}")),
		event.ToolCallDenied{ToolResult: event.ToolResult{CallID: "c", Name: "send", ReasonCode: event.Some("user.denied"),
			ResultItem: event.RecordedItem{State: event.Null}}}, says("Why not?"))
	conversation, err := h.Conversation()
	if err != nil || sketch(conversation) != "u2 c3>4 r4>3 u5" {
		t.Errorf("%s, %v", sketch(conversation), err)
	}
	if WriteTaint(h.Items()) {
		t.Error("an old denial taints a new turn")
	}
}
