package claudecode

import (
	"errors"
	"fmt"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/tooltape/tooltape/producer/importer"
	"github.com/tooltape/tooltape/producer/importer/internal/strict"
	"github.com/tooltape/tooltape/schemas/event"
)

// session is one session while its lines are read.
type session struct {
	id      string
	entries []importer.Entry
	open    []event.ToolCall // calls without a result, in their order
	rounds  map[string]int   // by message id
	usage   map[string]tokens
	parents map[string]node // by uuid
	// exchange is the line at which the latest response began; 0 before the first, and after a compaction.
	exchange int
	// keeps says that the compaction whose summary comes next keeps some earlier messages.
	keeps bool
}

// node is a line's place in the tree that parentUuid makes of a transcript.
type node struct {
	line   int
	parent string
	shown  bool // it is part of the conversation
}

// know remembers a line's place, and what a compaction's boundary says.
func (s *session) know(l line) error {
	if l.uuid != "" {
		taken := l.skipReason() == ""
		if earlier, ok := s.parents[l.uuid]; ok && taken {
			return fmt.Errorf("its uuid is that of line %d", earlier.line)
		}
		s.parents[l.uuid] = node{l.number, l.parent, taken && l.kind != "attachment"}
	}
	if l.kind != "system" {
		return nil
	}
	if v, ok := l.Take("compactMetadata"); ok && v.Kind() == '{' {
		metadata, err := strict.ReadObject(v)
		if err != nil {
			return err
		}
		_, s.keeps = metadata.Take("preservedSegment")
	}
	return nil
}

func (s *session) add(l line) error {
	switch {
	case l.kind == "attachment":
		return s.attachment(l)
	case l.kind == "assistant":
		return s.assistant(l)
	case l.compact:
		return s.compaction(l)
	}
	return s.user(l)
}

func (s *session) enter(l line, e importer.Entry) {
	e.ID, e.OccurredAt = l.uuid, l.at
	s.entries = append(s.entries, e)
}

// attachment keeps an attachment as a note.
func (s *session) attachment(l line) error {
	v, ok := l.Take("attachment")
	if !ok {
		return errors.New("attachment is missing")
	}
	s.enter(l, importer.Entry{ActorType: "runtime", Payloads: []event.Payload{
		event.NoteRecorded{Name: "claude_code.attachment", Data: string(v)},
	}})
	return nil
}

// compaction records the summary that stands for everything before it. One that keeps some of the earlier messages does not
// stand for everything, and no event can say for what it does.
func (s *session) compaction(l line) error {
	if s.keeps {
		return errors.New("the compaction keeps some of the earlier messages (preservedSegment), which a session's history cannot say")
	}
	content, err := s.plainContent(l)
	if err != nil {
		return err
	}
	s.exchange = 0
	s.enter(l, importer.Entry{ActorType: "runtime", Payloads: []event.Payload{
		event.ContextCompacted{Content: content, Method: "summary"},
	}})
	return nil
}

func (s *session) plainContent(l line) ([]event.Part, error) {
	m, err := l.message()
	if err != nil {
		return nil, err
	}
	return parts(m)
}

// parts is content without results and calls.
func parts(o *strict.Object) ([]event.Part, error) {
	values, err := blocks(o)
	if err != nil {
		return nil, err
	}
	content := []event.Part{}
	for i, v := range values {
		p, err := part(v)
		if err != nil {
			return nil, fmt.Errorf("content[%d]: %w", i, err)
		}
		content = append(content, p)
	}
	return content, nil
}

// user adds a user line: results, and what a user said.
func (s *session) user(l line) error {
	m, err := l.message()
	if err != nil {
		return err
	}
	values, err := blocks(m)
	if err != nil {
		return err
	}
	refusals, err := readRefusals(l)
	if err != nil {
		return err
	}
	e := importer.Entry{ActorType: "runtime"}
	said := event.UserMessageCreated{Trust: event.User}
	for i, v := range values {
		if err := s.userBlock(v, refusals, &e, &said); err != nil {
			return fmt.Errorf("content[%d]: %w", i, err)
		}
	}
	if len(said.Content) > 0 || len(e.Payloads) == 0 {
		if l.foreign {
			said.Trust = event.ExternalUntrusted
		} else {
			e.ActorType = "principal"
			if err := s.checkBranch(l); err != nil {
				return err
			}
		}
		e.Payloads = append(e.Payloads, said)
	}
	s.enter(l, e)
	return nil
}

func (s *session) userBlock(v jsontext.Value, refusals refusals, e *importer.Entry, said *event.UserMessageCreated) error {
	o, kind, err := block(v)
	if err != nil {
		return err
	}
	if kind == "tool_result" {
		p, err := s.result(o, refusals)
		e.Payloads = append(e.Payloads, p)
		return err
	}
	p, err := part(v)
	said.Content = append(said.Content, p)
	return err
}

// checkBranch refuses a message that was said after an earlier point than the latest response: the user went back, and what
// stands between was not shown to the model again. Where the tree is not recorded, nothing can be said against the line.
func (s *session) checkBranch(l line) error {
	seen := 0
	for uuid := l.parent; uuid != "" && seen <= len(s.parents); seen++ {
		n, ok := s.parents[uuid]
		if !ok {
			return nil
		}
		if n.shown {
			if n.line < s.exchange {
				return fmt.Errorf("the user went back to the message of line %d: a session is one line of history, and "+
					"cannot hold what was said before and after", n.line)
			}
			return nil
		}
		uuid = n.parent
	}
	return nil
}

// assistant adds one piece of a response. That the runtime could not reach the model is a failed response.
func (s *session) assistant(l line) error {
	m, err := l.message()
	if err != nil {
		return err
	}
	id, err := m.NeedString("id")
	if err != nil {
		return fmt.Errorf("message: %w", err)
	}
	if s.rounds[id] == 0 {
		s.rounds[id] = len(s.rounds) + 1
		s.exchange = l.number
	}
	failed, _, err := l.TakeBool("isApiErrorMessage")
	if err != nil {
		return err
	}
	if failed {
		return s.failure(l, m, s.rounds[id])
	}
	response := event.ModelResponseCompleted{Round: s.rounds[id]}
	if err := s.readResponse(m, id, &response); err != nil {
		return fmt.Errorf("message: %w", err)
	}
	s.enter(l, importer.Entry{ActorType: "runtime", Response: id, Payloads: []event.Payload{response}})
	return nil
}

// failure records an error that the runtime wrote down in the model's place.
func (s *session) failure(l line, m *strict.Object, round int) error {
	content, err := parts(m)
	if err != nil {
		return err
	}
	class, ok, err := l.TakeString("error")
	if err != nil {
		return err
	}
	if !ok {
		class = "api_error"
	}
	failed := event.ModelResponseFailed{Round: round, ErrorClass: class}
	if len(content) > 0 {
		if text, ok := content[0].(event.Text); ok {
			failed.Message = event.Some(text.Text)
		}
	}
	s.enter(l, importer.Entry{ActorType: "runtime", Payloads: []event.Payload{failed}})
	return nil
}

func (s *session) readResponse(m *strict.Object, id string, response *event.ModelResponseCompleted) error {
	for name, to := range map[string]*event.Opt[string]{"model": &response.Model, "stop_reason": &response.StopReason} {
		text, ok, err := m.TakeString(name)
		if err != nil {
			return err
		}
		*to = event.Opt[string]{Value: text, OK: ok}
	}
	values, err := blocks(m)
	if err != nil {
		return err
	}
	for i, v := range values {
		item, err := responseItem(v)
		if err != nil {
			return fmt.Errorf("content[%d]: %w", i, err)
		}
		if call, ok := item.(event.ToolCall); ok {
			s.open = append(s.open, call)
		}
		response.Items = append(response.Items, item)
	}
	response.Usage, err = s.addUsage(m, id)
	return err
}

// responseItem reads one block of a response. Whatever is neither text nor a call to be answered is its provider's alone.
func responseItem(v jsontext.Value) (event.ResponseItem, error) {
	o, kind, err := block(v)
	if err != nil {
		return nil, err
	}
	switch kind {
	case "text":
		text, ok, err := o.TakeString("text")
		if err == nil && !ok {
			err = errors.New("text is missing")
		}
		return event.AssistantMessage{Content: []event.Part{event.Text{Text: text}}, ProviderData: rest(o)}, err
	case "tool_use":
		return toolCall(o)
	}
	item := event.ProviderItem{Provider: "anthropic", ProviderKind: kind, Data: string(v)}
	if kind == "thinking" {
		text, ok, err := o.TakeString("thinking")
		if err != nil {
			return nil, err
		}
		item.Text = event.Opt[string]{Value: text, OK: ok}
	}
	return item, nil
}

func toolCall(o *strict.Object) (event.ResponseItem, error) {
	id, err := o.NeedString("id")
	if err != nil {
		return nil, err
	}
	name, err := o.NeedString("name")
	if err != nil {
		return nil, err
	}
	input, ok := o.Take("input")
	if !ok {
		return nil, errors.New("input is missing")
	}
	return event.ToolCall{CallID: id, Name: name, Arguments: string(input), ProviderData: rest(o)}, nil
}

func rest(o *strict.Object) event.Opt[string] {
	text, ok := o.Rest()
	return event.Opt[string]{Value: text, OK: ok}
}
