package claudecode

import (
	"errors"
	"fmt"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/tooltape/tooltape/producer/importer/internal/strict"
	"github.com/tooltape/tooltape/schemas/event"
)

// line is one line's head, and the rest to be taken.
type line struct {
	*strict.Object
	number                       int
	kind                         string
	uuid, parent, sessionID      string
	at                           event.Opt[time.Time]
	sidechain, compact, readOnly bool
	// foreign says that no user wrote this user line.
	foreign bool
}

// readLineHead reads what all lines share. A line that carries part of the conversation needs its ids.
func readLineHead(o *strict.Object, number int) (l line, err error) {
	l = line{Object: o, number: number}
	if l.kind, err = o.NeedString("type"); err != nil {
		return l, fmt.Errorf("it is no line of Claude Code: %w", err)
	}
	for name, to := range map[string]*string{"uuid": &l.uuid, "parentUuid": &l.parent, "sessionId": &l.sessionID} {
		if *to, _, err = o.TakeString(name); err != nil {
			return l, err
		}
	}
	for name, to := range map[string]*bool{"isSidechain": &l.sidechain, "isCompactSummary": &l.compact,
		"isVisibleInTranscriptOnly": &l.readOnly, "isMeta": &l.foreign} {
		if *to, _, err = o.TakeBool(name); err != nil {
			return l, err
		}
	}
	if l.parent == "" {
		if l.parent, _, err = o.TakeString("logicalParentUuid"); err != nil {
			return l, err
		}
	}
	if err := l.readOrigin(); err != nil {
		return l, err
	}
	if l.skipReason() != "" {
		return l, nil
	}
	switch {
	case l.uuid == "":
		return l, errors.New("uuid is missing")
	case l.sessionID == "":
		return l, errors.New("sessionId is missing")
	}
	return l, l.readTime()
}

// readOrigin reads where a user line came from, which newer versions record.
func (l *line) readOrigin() error {
	v, ok := l.Take("origin")
	if !ok || v.Kind() != '{' {
		return nil
	}
	origin, err := strict.ReadObject(v)
	if err != nil {
		return err
	}
	kind, ok, err := origin.TakeString("kind")
	if ok && kind != "human" {
		l.foreign = true
	}
	return err
}

func (l *line) readTime() error {
	text, ok, err := l.TakeString("timestamp")
	if err != nil || !ok {
		return err
	}
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return fmt.Errorf("timestamp: %q is not a time", text)
	}
	l.at = event.Some(t.UTC().Truncate(time.Microsecond))
	return nil
}

// skipReason says what the line is, if it holds nothing that the model of this conversation was shown.
func (l *line) skipReason() string {
	switch {
	case l.sidechain:
		return "line of a subagent"
	case l.kind != "user" && l.kind != "assistant" && l.kind != "attachment":
		return l.kind + " line"
	case l.readOnly && !l.compact:
		return "line for the transcript's reader only"
	}
	return ""
}

// message is the line's message, of the role that the line's type says.
func (l *line) message() (*strict.Object, error) {
	v, ok := l.Take("message")
	if !ok {
		return nil, errors.New("message is missing")
	}
	m, err := strict.ReadObject(v)
	if err != nil {
		return nil, fmt.Errorf("message: %w", err)
	}
	role, err := m.NeedString("role")
	if err == nil && role != l.kind {
		err = fmt.Errorf("the role is %q in a line of type %s", role, l.kind)
	}
	if err != nil {
		return nil, fmt.Errorf("message: %w", err)
	}
	return m, nil
}

// blocks are the blocks of content; text alone is one text block.
func blocks(o *strict.Object) ([]jsontext.Value, error) {
	v, ok := o.Take("content")
	if !ok {
		return nil, errors.New("content is missing")
	}
	if v.Kind() == '"' {
		return []jsontext.Value{jsontext.Value(`{"type":"text","text":` + string(v) + `}`)}, nil
	}
	elements, err := strict.Elements(v)
	if err != nil {
		return nil, fmt.Errorf("content: %w", err)
	}
	return elements, nil
}

// block reads a block and its type.
func block(v jsontext.Value) (*strict.Object, string, error) {
	o, err := strict.ReadObject(v)
	if err != nil {
		return nil, "", err
	}
	kind, err := o.NeedString("type")
	return o, kind, err
}

// part is a block as a part of content. A block that parts cannot say is kept as its JSON text: nothing is lost, and whoever
// reads it sees what it was.
func part(v jsontext.Value) (event.Part, error) {
	o, kind, err := block(v)
	if err != nil {
		return nil, err
	}
	verbatim := event.Text{Text: string(v)}
	switch kind {
	case "text":
		text, ok, err := o.TakeString("text")
		if err == nil && !ok {
			err = errors.New("text is missing")
		}
		return event.Text{Text: text}, err
	case "image", "document":
		media, ok, err := readMedia(o)
		switch {
		case err != nil:
			return nil, fmt.Errorf("%s: %w", kind, err)
		case !ok:
			return verbatim, nil
		case kind == "image":
			return event.Image{Media: media}, nil
		}
		return event.File{Media: media}, nil
	}
	return verbatim, nil
}

// readMedia reads a source that is an address or base64 data, which becomes a data URI.
func readMedia(o *strict.Object) (event.Media, bool, error) {
	v, ok := o.Take("source")
	if !ok {
		return event.Media{}, false, errors.New("source is missing")
	}
	source, err := strict.ReadObject(v)
	if err != nil {
		return event.Media{}, false, fmt.Errorf("source: %w", err)
	}
	kind, err := source.NeedString("type")
	if err != nil || kind != "base64" {
		return event.Media{}, false, err
	}
	mediaType, err := source.NeedString("media_type")
	if err != nil {
		return event.Media{}, false, err
	}
	data, err := source.NeedString("data")
	return event.Media{URI: "data:" + mediaType + ";base64," + data, MediaType: mediaType}, true, err
}
