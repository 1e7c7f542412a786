package openaichat

import (
	"errors"
	"fmt"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/tooltape/tooltape/producer/importer"
	"github.com/tooltape/tooltape/producer/importer/internal/strict"
	"github.com/tooltape/tooltape/schemas/event"
)

// conversation turns the messages of one session into entries.
type conversation struct {
	entries []importer.Entry
	round   int
	open    []event.ToolCall // calls without a result, in their order
	digest  string           // of everything so far
}

// enter adds an entry. Messages have no ids: an entry's is its index and a digest of everything up to it, so that a file whose
// earlier messages were changed is not taken for the same session grown.
func (c *conversation) enter(source jsontext.Value, actor string, payloads ...event.Payload) error {
	text := source.Clone()
	if err := text.Canonicalize(); err != nil {
		return strict.Reason(err)
	}
	c.digest = hexDigest(append([]byte(c.digest), text...))
	c.entries = append(c.entries, importer.Entry{
		ID:        fmt.Sprintf("%d-%s", len(c.entries), c.digest),
		ActorType: actor,
		Payloads:  payloads,
	})
	return nil
}

// offer adds the tools that the session's model was offered, if the file says. Where the file says more of a tool than an event
// can, such as strict, the whole is kept beside it.
func (c *conversation) offer(tools located) error {
	if tools.value == nil || tools.value.Kind() == 'n' {
		return nil
	}
	elements, err := strict.Elements(tools.value)
	if err != nil {
		return err
	}
	offered, all := event.ToolsOffered{}, true
	for i, v := range elements {
		tool, whole, err := toolDefinition(v)
		if err != nil {
			return fmt.Errorf("tool %d: %w", i, err)
		}
		offered.Tools = append(offered.Tools, tool)
		all = all && whole
	}
	text := tools.value.Clone()
	if err := text.Canonicalize(); err != nil {
		return strict.Reason(err)
	}
	offered.Digest = hexDigest(text)
	payloads := []event.Payload{offered}
	if !all {
		payloads = append(payloads, event.NoteRecorded{Name: "openai_chat.tools", Data: string(tools.value)})
	}
	return c.enter(tools.value, "", payloads...)
}

// toolDefinition reads {"type": "function", "function": {"name", "description"?, "parameters"?}}, and says whether that is the
// whole of it. A tool without parameters takes none, which in JSON Schema is {}.
func toolDefinition(v jsontext.Value) (event.ToolDefinition, bool, error) {
	f, outer, err := function(v)
	if err != nil {
		return event.ToolDefinition{}, false, err
	}
	name, err := f.NeedString("name")
	if err != nil {
		return event.ToolDefinition{}, false, err
	}
	description, ok, err := f.TakeString("description")
	if err != nil {
		return event.ToolDefinition{}, false, err
	}
	tool := event.ToolDefinition{Name: name, Description: event.Opt[string]{Value: description, OK: ok}, Parameters: "{}"}
	if parameters, ok := f.Take("parameters"); ok {
		tool.Parameters = string(parameters)
	}
	_, moreInside := f.Rest()
	_, moreOutside := outer.Rest()
	return tool, !moreInside && !moreOutside, nil
}

// function reads {"type": "function", "function": {…}}, and returns both objects.
func function(v jsontext.Value) (f, whole *strict.Object, err error) {
	whole, err = strict.ReadObject(v)
	if err != nil {
		return nil, nil, err
	}
	kind, ok, err := whole.TakeString("type")
	if err != nil {
		return nil, nil, err
	}
	if ok && kind != "function" {
		return nil, nil, fmt.Errorf("its type is %q: only function is supported", kind)
	}
	inner, ok := whole.Take("function")
	if !ok {
		return nil, nil, errors.New("function is missing")
	}
	f, err = strict.ReadObject(inner)
	if err != nil {
		return nil, nil, fmt.Errorf("function: %w", err)
	}
	return f, whole, nil
}

// add adds one message.
func (c *conversation) add(v located) error {
	m, err := strict.ReadObject(v.value)
	if err != nil {
		return fmt.Errorf("a message is an object: %w", err)
	}
	role, err := m.NeedString("role")
	if err != nil {
		return fmt.Errorf("%w; if the messages are deeper in the file, say where with a path such as [].traj", err)
	}
	switch role {
	case "system", "developer":
		return c.message(v, m, "", func(content []event.Part) event.Payload {
			return event.SystemMessageCreated{Content: content}
		})
	case "user":
		return c.message(v, m, "principal", func(content []event.Part) event.Payload {
			return event.UserMessageCreated{Content: content, Trust: event.User}
		})
	case "assistant":
		return c.assistant(v, m)
	case "tool":
		return c.result(v, m)
	case "function":
		return errors.New("the role function is not supported: convert the legacy function calls to tool calls")
	}
	return fmt.Errorf("the role %q is not known", role)
}

// message adds a message that has only content. Other keys with a value are kept beside it, in a note.
func (c *conversation) message(v located, m *strict.Object, actor string, payload func([]event.Part) event.Payload) error {
	content, err := needContent(m)
	if err != nil {
		return err
	}
	return c.enter(v.value, actor, withNote(m, payload(content))...)
}

// withNote adds what is left of a message as a note, so that no key is lost: a platform's own fact, which is shown to no model.
func withNote(m *strict.Object, payload event.Payload) []event.Payload {
	payloads := []event.Payload{payload}
	if rest, ok := m.Rest(); ok {
		payloads = append(payloads, event.NoteRecorded{Name: "openai_chat.keys", Data: rest})
	}
	return payloads
}

// assistant adds one model response: what was said, then the calls. Everything else (refusal, reasoning_content, annotations…)
// is the provider's, kept verbatim with what was said, or with the first call where nothing was.
func (c *conversation) assistant(v located, m *strict.Object) error {
	if legacy, ok := m.Take("function_call"); ok {
		return fmt.Errorf("function_call (%s) is not supported: convert the legacy function calls to tool calls", strict.Describe(legacy))
	}
	calls, err := toolCalls(m)
	if err != nil {
		return err
	}
	message, said, err := saying(m, len(calls) > 0)
	if err != nil {
		return err
	}
	if rest, ok := m.Rest(); ok {
		if !said && len(calls) > 0 {
			calls[0].ProviderData = merged(calls[0].ProviderData, rest)
		} else {
			said, message.ProviderData = true, event.Some(rest)
		}
	}
	c.round++
	response := event.ModelResponseCompleted{Round: c.round}
	if said {
		response.Items = append(response.Items, message)
	}
	for _, call := range calls {
		response.Items = append(response.Items, call)
	}
	if len(response.Items) == 0 {
		return errors.New("an assistant message has neither content nor tool calls")
	}
	c.open = append(c.open, calls...)
	return c.enter(v.value, "runtime", response)
}

// saying is what an assistant message says. Empty text beside calls is how some programs write that it says nothing.
func saying(m *strict.Object, hasCalls bool) (event.AssistantMessage, bool, error) {
	v, ok := m.Take("content")
	if !ok || hasCalls && string(v) == `""` {
		return event.AssistantMessage{}, false, nil
	}
	content, err := readContent(m, v)
	return event.AssistantMessage{Content: content}, true, err
}

// merged is the call's own provider data with the message's under the key "message".
func merged(own event.Opt[string], message string) event.Opt[string] {
	if !own.OK {
		return event.Some(`{"message":` + message + `}`)
	}
	return event.Some(`{"message":` + message + `,"call":` + own.Value + `}`)
}

func toolCalls(m *strict.Object) ([]event.ToolCall, error) {
	v, ok := m.Take("tool_calls")
	if !ok {
		return nil, nil
	}
	elements, err := strict.Elements(v)
	if err != nil {
		return nil, fmt.Errorf("tool_calls: %w", err)
	}
	var calls []event.ToolCall
	for i, e := range elements {
		call, err := toolCall(e)
		if err != nil {
			return nil, fmt.Errorf("tool_calls[%d]: %w", i, err)
		}
		calls = append(calls, call)
	}
	return calls, nil
}

// toolCall reads one call. Arguments are text; a few programs write the object itself, which is then kept as its text.
func toolCall(v jsontext.Value) (event.ToolCall, error) {
	f, whole, err := function(v)
	if err != nil {
		return event.ToolCall{}, err
	}
	id, err := whole.NeedString("id")
	if err != nil {
		return event.ToolCall{}, err
	}
	name, err := f.NeedString("name")
	if err != nil {
		return event.ToolCall{}, err
	}
	call := event.ToolCall{CallID: id, Name: name}
	switch arguments, ok := f.Take("arguments"); {
	case !ok:
		return event.ToolCall{}, errors.New("arguments are missing")
	case arguments.Kind() == '{':
		call.Arguments = string(arguments)
	default:
		if call.Arguments, err = strict.String(arguments); err != nil {
			return event.ToolCall{}, fmt.Errorf("arguments: %w", err)
		}
	}
	if rest, ok := f.Rest(); ok {
		return event.ToolCall{}, fmt.Errorf("function has keys that are not known: %s", rest)
	}
	if rest, ok := whole.Rest(); ok {
		call.ProviderData = event.Some(rest)
	}
	return call, nil
}

// result adds a tool's result. Ids repeat across rounds, so it belongs to the nearest earlier call with its id that has none.
func (c *conversation) result(v located, m *strict.Object) error {
	id, err := m.NeedString("tool_call_id")
	if err != nil {
		return err
	}
	content, err := needContent(m)
	if err != nil {
		return err
	}
	name, named, err := m.TakeString("name")
	if err != nil {
		return err
	}
	i := len(c.open) - 1
	for ; i >= 0 && c.open[i].CallID != id; i-- {
	}
	if i < 0 {
		return fmt.Errorf("it is the result of call %q, and no call with that id is open", id)
	}
	call := c.open[i]
	if named && name != call.Name {
		return fmt.Errorf("it is said to be the result of %q, and call %q is of %q", name, id, call.Name)
	}
	c.open = append(c.open[:i:i], c.open[i+1:]...)
	return c.enter(v.value, "runtime", withNote(m, event.ToolCallCompleted{ToolResult: event.ToolResult{
		CallID: id, Name: call.Name,
		ResultItem: event.Recorded(event.ResultItem{CallID: id, Content: content, Trust: event.ExternalUntrusted}),
	}})...)
}

func needContent(m *strict.Object) ([]event.Part, error) {
	v, ok := m.Take("content")
	if !ok {
		return nil, errors.New("content is missing")
	}
	return readContent(m, v)
}

// readContent reads content: text, or an array of parts. An array that holds more than parts can say is left in m, too, so that
// it is kept whole.
func readContent(m *strict.Object, v jsontext.Value) ([]event.Part, error) {
	if v.Kind() == '"' {
		text, err := strict.String(v)
		return []event.Part{event.Text{Text: text}}, err
	}
	if v.Kind() != '[' {
		return nil, fmt.Errorf("content: it is %s, not a string or an array of parts", strict.Describe(v))
	}
	elements, err := strict.Elements(v)
	if err != nil {
		return nil, fmt.Errorf("content: %w", err)
	}
	parts := []event.Part{}
	for i, e := range elements {
		part, whole, err := readPart(e)
		if err != nil {
			return nil, fmt.Errorf("content[%d]: %w", i, err)
		}
		if !whole {
			m.PutBack("content")
		}
		parts = append(parts, part)
	}
	return parts, nil
}

// readPart reads one part, and says whether it is the whole of it.
func readPart(v jsontext.Value) (event.Part, bool, error) {
	o, err := strict.ReadObject(v)
	if err != nil {
		return nil, false, err
	}
	kind, err := o.NeedString("type")
	if err != nil {
		return nil, false, err
	}
	switch kind {
	case "text":
		text, ok, err := o.TakeString("text")
		if err == nil && !ok {
			err = errors.New("text is missing")
		}
		_, more := o.Rest()
		return event.Text{Text: text}, !more, err
	case "image_url":
		return readImage(o)
	}
	return nil, false, fmt.Errorf("a part of type %q is not supported: only text and image_url are", kind)
}

func readImage(o *strict.Object) (event.Part, bool, error) {
	v, ok := o.Take("image_url")
	if !ok {
		return nil, false, errors.New("image_url is missing")
	}
	image, err := strict.ReadObject(v)
	if err != nil {
		return nil, false, fmt.Errorf("image_url: %w", err)
	}
	url, err := image.NeedString("url")
	if err != nil {
		return nil, false, fmt.Errorf("image_url: %w", err)
	}
	_, more := o.Rest()
	_, detail := image.Rest()
	return event.Image{Media: event.Media{URI: url, MediaType: mediaType(url)}}, !more && !detail, nil
}

// mediaType is what a data URL says; of other images only that they are images is recorded.
func mediaType(url string) string {
	if data, ok := strings.CutPrefix(url, "data:"); ok {
		if kind, _, _ := strings.Cut(data, ","); strings.HasPrefix(kind, "image/") {
			kind, _, _ = strings.Cut(kind, ";")
			return kind
		}
	}
	return "image/*"
}
