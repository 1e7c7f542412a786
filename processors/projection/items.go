package projection

import (
	"fmt"

	"github.com/tooltape/tooltape/schemas/event"
)

// Items is the one projection: what an event adds to the conversation. Most events add nothing.
//
// It renders what the facts alone allow and makes up nothing: an event that lacks what the model must see again is an
// *[event.Error] that names the type and the event id. The items share the event's content; neither is to be changed.
func Items(e event.Event) ([]Item, error) {
	if e.Payload == nil || e.Payload.Type() != e.Type {
		return nil, unfit(e, event.BadEvent, "payload", "has a payload of another type")
	}
	switch p := e.Payload.(type) {
	case event.SystemMessageCreated:
		return one(e, System{Content: p.Content, SourceSeq: e.Seq}, p.Content)
	case event.UserMessageCreated:
		if !event.Trusts.Has(string(p.Trust)) {
			return nil, unfit(e, event.BadEvent, "payload.trust", "has a trust level that does not exist")
		}
		return one(e, User{Content: p.Content, Trust: p.Trust, SourceSeq: e.Seq}, p.Content)
	case event.ContextCompacted:
		if !event.CompactionMethods.Has(p.Method) {
			return nil, unfit(e, event.BadEvent, "payload.method", "has a compaction method that does not exist")
		}
		return one(e, Compaction{ThroughSeq: p.ThroughSeq, Content: p.Content, Method: p.Method, SourceSeq: e.Seq}, p.Content)
	case event.ModelResponseCompleted:
		return responseItems(e, p.Items)
	case event.ToolCallCompleted:
		return resultItems(e, p.ToolResult)
	case event.ToolCallFailed:
		return resultItems(e, p.ToolResult)
	case event.ToolCallUncertain:
		return resultItems(e, p.ToolResult)
	case event.ToolCallCancelled:
		return resultItems(e, p.ToolResult)
	case event.ToolCallDenied:
		if p.ResultItem.State == event.Null {
			return unrecordedDenial(e, p.ToolResult)
		}
		return resultItems(e, p.ToolResult)
	case event.SessionCreated, event.ToolsOffered, event.RunStarted, event.ModelRequestStarted, event.ModelResponseFailed,
		event.ToolCallProposed, event.ToolCallAuthorized, event.ToolCallStarted, event.ApprovalRequested, event.ApprovalResolved,
		event.ApprovalInvalidated, event.InputRequested, event.InputReceived, event.RunCompleted, event.RunFailed,
		event.RunCancelled, event.VerdictRecorded, event.NoteRecorded, event.EventPurged:
		return nil, nil
	default: // a type that nobody decided about must not vanish from the conversation in silence
		return nil, unfit(e, event.BadEvent, "payload", "has a payload that this build cannot project")
	}
}

// responseItems are the entries of a model's response, in order.
func responseItems(e event.Event, entries []event.ResponseItem) ([]Item, error) {
	items := make([]Item, 0, len(entries))
	for _, entry := range entries {
		switch p := entry.(type) {
		case event.AssistantMessage:
			if !known(p.Content) {
				return nil, unfit(e, event.BadEvent, "payload.items", "has content of a kind that does not exist")
			}
			items = append(items, Assistant{Content: p.Content, ProviderData: p.ProviderData, SourceSeq: e.Seq})
		case event.ToolCall:
			if p.CallID == "" {
				return nil, unfit(e, event.BadEvent, "payload.items", "has a call without an id, which no result could answer")
			}
			items = append(items, ToolCall{CallID: p.CallID, Name: p.Name, Arguments: p.Arguments, ProviderData: p.ProviderData,
				SourceSeq: e.Seq})
		case event.ProviderItem:
			items = append(items, Provider{Provider: p.Provider, ProviderKind: p.ProviderKind, Text: p.Text, Data: p.Data,
				SourceSeq: e.Seq})
		default:
			return nil, unfit(e, event.BadEvent, "payload.items", "has an item of a kind that does not exist")
		}
	}
	return items, nil
}

// resultItems is the result item as it was recorded.
func resultItems(e event.Event, r event.ToolResult) ([]Item, error) {
	item := r.ResultItem.Item
	switch {
	case r.ResultItem.State != event.Present:
		return nil, unfit(e, event.ResultItemMissing, "payload.result_item",
			"has no result item, and the model must see a result for every call")
	case item.CallID == "":
		return nil, unfit(e, event.BadEvent, "payload.result_item.call_id", "has a result item without a call id")
	case item.CallID != r.CallID:
		return nil, unfit(e, event.BadEvent, "payload.result_item.call_id", "has a result item of another call")
	case !event.Trusts.Has(string(item.Trust)):
		return nil, unfit(e, event.BadEvent, "payload.result_item.trust", "has a trust level that does not exist")
	}
	return one(e, ToolResult{CallID: item.CallID, Content: item.Content, IsError: item.IsError, Trust: item.Trust,
		SourceSeq: e.Seq}, item.Content)
}

// unrecordedDenial renders a denial whose item is explicitly null from its facts alone (ADR-0142). The narration and the
// tool's trust were never recorded, so there is no message, and the trust is that of content of unknown provenance.
func unrecordedDenial(e event.Event, r event.ToolResult) ([]Item, error) {
	switch {
	case r.CallID == "":
		return nil, unfit(e, event.BadEvent, "payload.call_id", "has neither a result item nor a call id to render one from")
	case r.Name == "":
		return nil, unfit(e, event.BadEvent, "payload.name", "has neither a result item nor a name to render one from")
	case r.ReasonCode.Or("") == "":
		return nil, unfit(e, event.BadEvent, "payload.reason_code", "has neither a result item nor a reason code to render one from")
	}
	text := append(make([]byte, 0, 64+len(r.Name)+len(r.ReasonCode.Value)), `{"status":"denied","action":`...)
	text = appendString(text, r.Name)
	text = append(text, `,"reason_code":`...)
	text = append(appendString(text, r.ReasonCode.Value), '}')
	return []Item{ToolResult{CallID: r.CallID, Content: []event.Part{event.Text{Text: string(text)}}, IsError: event.Some(true),
		Trust: event.ExternalUntrusted, SourceSeq: e.Seq}}, nil
}

// one is a single item, if its content is of kinds that exist.
func one(e event.Event, item Item, content []event.Part) ([]Item, error) {
	if !known(content) {
		return nil, unfit(e, event.BadEvent, "payload", "has content of a kind that does not exist")
	}
	return []Item{item}, nil
}

// known says whether every part is of a kind that exists.
func known(parts []event.Part) bool {
	for _, part := range parts {
		switch part.(type) {
		case event.Text, event.Image, event.File:
		default:
			return false
		}
	}
	return true
}

// unfit is the error for an event that cannot be projected; it names the event, never its content.
func unfit(e event.Event, code event.Code, field, what string) error {
	return &event.Error{Code: code, Field: field, Message: fmt.Sprintf("%s %s at seq %d %s", e.Type, e.EventID, e.Seq, what)}
}
