package producer

import (
	"errors"
	"fmt"

	"github.com/tooltape/tooltape/schemas/event"
)

// ErrLocked says that an earlier append's outcome is unknown. Retry sends the same events again and unlocks the session.
var ErrLocked = errors.New("locked: whether its last append was written is unknown; retry that append first")

// ErrUnknownSession says that the writer does not know where the session ends: resume it, or state seq 1 for a new one.
var ErrUnknownSession = errors.New("this writer does not know where the session ends; resume it, or state seq 1 if it is new")

// RefusedError is an append of which nothing was written and no number was used up.
type RefusedError struct {
	SessionID string
	// Index is the draft at fault, from 0.
	Index int
	// Err says what is wrong with it: an *event.Error that names the field, or a *TooLargeError.
	Err error
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("session %s, event %d of the append: %s", e.SessionID, e.Index+1, e.Err)
}

func (e *RefusedError) Unwrap() error { return e.Err }

// TooLargeError is an event that no record of the topic can hold.
type TooLargeError struct {
	// Bytes is what the event takes, encoded.
	Bytes int
	// Instead, where the event is the result of a call, is the draft of a tool.call.failed that says so, ready to be appended, so that the
	// call does not stay unanswered. It keeps the event's id, which nothing was recorded under. Else it has no payload.
	Instead event.Event
}

// tooLarge refuses an event for its size, and offers what can be said of it.
func tooLarge(e event.Event, bytes int) *TooLargeError {
	refused := &TooLargeError{Bytes: bytes}
	result, ok := event.ToolResultOf(e.Payload)
	if !ok {
		return refused
	}
	item := event.ResultItem{
		CallID: result.CallID, IsError: event.Some(true), Trust: result.ResultItem.Item.Trust,
		Content: []event.Part{event.Text{Text: fmt.Sprintf("The result was too large to record: %d bytes.", bytes)}},
	}
	e.Seq, e.PrevEventID, e.Type, e.PayloadVersion = 0, event.Opt[string]{}, "", 0 // the writer's to give
	e.Payload = event.ToolCallFailed{ToolResult: event.ToolResult{
		CallID: result.CallID, Name: result.Name, ReasonCode: event.Some("result_too_large"), ResultItem: event.Recorded(item),
	}}
	refused.Instead = e
	return refused
}

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("too_large: it takes %d bytes encoded, a record may have %d", e.Bytes, MaxRecordBytes)
}

// UnknownOutcomeError is an append that may or may not have been written, all of it or its beginning. The session is locked until Retry
// succeeds.
type UnknownOutcomeError struct {
	SessionID string
	Err       error
}

func (e *UnknownOutcomeError) Error() string {
	return fmt.Sprintf("session %s: whether the append was written is unknown, retry it: %s", e.SessionID, e.Err)
}

func (e *UnknownOutcomeError) Unwrap() error { return e.Err }
