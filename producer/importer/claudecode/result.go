package claudecode

import (
	"fmt"

	"github.com/tooltape/tooltape/producer/importer/internal/strict"
	"github.com/tooltape/tooltape/schemas/event"
)

// refusals say why calls were not run. The flag is_error alone cannot tell a refusal from a failure, and no text is read for
// it: a tool may write any text.
type refusals struct {
	line string            // of the line's results that are errors
	call map[string]string // by call id
}

// rejected is what versions before toolDenialKind write beside a call that the user refused.
const rejected = "User rejected tool use"

func readRefusals(l line) (refusals, error) {
	r := refusals{call: map[string]string{}}
	kind, _, err := l.TakeString("toolDenialKind")
	if err != nil {
		return r, err
	}
	r.line = kind
	if v, ok := l.Take("toolUseResult"); ok && kind == "" && v.Kind() == '"' {
		if text, err := strict.String(v); err == nil && text == rejected {
			r.line = "user-rejected"
		}
	}
	v, ok := l.Take("tool_result_meta")
	if !ok {
		return r, nil
	}
	elements, err := strict.Elements(v)
	if err != nil {
		return r, fmt.Errorf("tool_result_meta: %w", err)
	}
	for _, e := range elements {
		if err := r.readMeta(e); err != nil {
			return r, fmt.Errorf("tool_result_meta: %w", err)
		}
	}
	return r, nil
}

func (r refusals) readMeta(v []byte) error {
	o, err := strict.ReadObject(v)
	if err != nil {
		return err
	}
	kind, ok, err := o.TakeString("non_execution_kind")
	if err != nil || !ok {
		return err
	}
	id, err := o.NeedString("id")
	r.call[id] = kind
	return err
}

// of is why the call of a result was not run; empty where it was.
func (r refusals) of(id string, isError event.Opt[bool]) string {
	if kind := r.call[id]; kind != "" {
		return kind
	}
	if isError.Or(false) {
		return r.line
	}
	return ""
}

// result reads a tool_result block. It belongs to the nearest earlier call with its id that has no result.
func (s *session) result(o *strict.Object, refusals refusals) (event.Payload, error) {
	id, err := o.NeedString("tool_use_id")
	if err != nil {
		return nil, err
	}
	flag, ok, err := o.TakeBool("is_error")
	if err != nil {
		return nil, err
	}
	isError := event.Opt[bool]{Value: flag, OK: ok}
	content := []event.Part{}
	if v, ok := o.Take("content"); ok && v != nil {
		if content, err = parts(o); err != nil {
			return nil, err
		}
	}
	call, err := s.answer(id)
	if err != nil {
		return nil, err
	}
	result := event.ToolResult{CallID: id, Name: call.Name,
		ResultItem: event.Recorded(event.ResultItem{CallID: id, Content: content, IsError: isError, Trust: event.ExternalUntrusted})}
	refusal := refusals.of(id, isError)
	if refusal != "" {
		result.ReasonCode = event.Some(refusal)
	}
	switch {
	case refusal != "" && isError == event.Some(false):
		return nil, fmt.Errorf("call %q is said not to have been run (%s), and its result not to be an error", id, refusal)
	case refusal == "interrupted":
		return event.ToolCallCancelled{ToolResult: result}, nil
	case refusal != "":
		return event.ToolCallDenied{ToolResult: result}, nil
	case isError.Or(false):
		return event.ToolCallFailed{ToolResult: result}, nil
	}
	return event.ToolCallCompleted{ToolResult: result}, nil
}

func (s *session) answer(id string) (event.ToolCall, error) {
	for i := len(s.open) - 1; i >= 0; i-- {
		if call := s.open[i]; call.CallID == id {
			s.open = append(s.open[:i:i], s.open[i+1:]...)
			return call, nil
		}
	}
	return event.ToolCall{}, fmt.Errorf("it is the result of call %q, and no call with that id is open", id)
}
