package schemas

import (
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/tooltape/tooltape/schemas/event"
)

// jsonTags are the keys that tell records apart in the JSON form, where Avro has a union's branches: parts have a type, items
// a kind. A result item has one too, since every item has.
var jsonTags = map[string]jsonTag{
	"Text":             {"type", "text"},
	"Image":            {"type", "image"},
	"File":             {"type", "file"},
	"AssistantMessage": {"kind", "assistant"},
	"ToolCall":         {"kind", "tool_call"},
	"ProviderItem":     {"kind", "provider"},
	"ResultItem":       {"kind", "tool_result"},
}

type jsonTag struct{ key, value string }

// AppendJSON appends the event's JSON form, one line without its end. Keys stand in the order of the schema; nulls are
// explicit.
func (s Stored) AppendJSON(dst []byte) ([]byte, error) {
	if s.schema == nil {
		return dst, errNoPayload()
	}
	r := record{&mapping{writing: true}, map[string]any{}}
	envelopeFields(r, &s.Envelope)
	if r.err != nil {
		return dst, located(r.err)
	}
	out, err := appendRecord(dst, envelopeTree, r.values)
	if err != nil {
		return dst, located(err)
	}
	out = append(out[:len(out)-len("}")], `,"payload":`...)
	out, err = appendRecord(out, s.schema.payload, s.payload)
	if err != nil {
		return dst, within("payload", err)
	}
	return append(out, '}'), nil
}

func appendJSON(dst []byte, n *node, native any) ([]byte, *event.Error) {
	if native == nil {
		return append(dst, "null"...), nil
	}
	switch n.kind {
	case unionKind:
		return appendUnion(dst, n, native)
	case recordKind:
		return appendRecord(dst, n, asMap(native))
	case arrayKind:
		return appendArray(dst, n.items, native)
	}
	switch v := native.(type) {
	case bool:
		return strconv.AppendBool(dst, v), nil
	case int32:
		return strconv.AppendInt(dst, int64(v), 10), nil
	case int64:
		return strconv.AppendInt(dst, v, 10), nil
	case float64:
		return appendDouble(dst, v)
	case time.Time:
		return v.UTC().AppendFormat(append(dst, '"'), `2006-01-02T15:04:05.999999Z"`), nil
	case string:
		out, err := jsontext.AppendQuote(dst, v)
		if err != nil {
			return dst, &event.Error{Code: event.BadPayload, Message: "is not UTF-8"}
		}
		return out, nil
	}
	panic(fmt.Sprintf("schemas: a %T is no native form", native))
}

func appendDouble(dst []byte, v float64) ([]byte, *event.Error) {
	if math.IsInf(v, 0) || math.IsNaN(v) {
		return dst, &event.Error{Code: event.BadPayload, Message: "is not a finite number"}
	}
	return jsontext.AppendFloat(dst, v, 64), nil
}

func appendUnion(dst []byte, n *node, native any) ([]byte, *event.Error) {
	for name, v := range asMap(native) {
		for _, branch := range n.branches {
			if branch.name == name {
				return appendJSON(dst, branch, v)
			}
		}
	}
	panic("schemas: a union without one of its branches")
}

func appendRecord(dst []byte, n *node, values map[string]any) (_ []byte, err *event.Error) {
	dst = append(dst, '{')
	separator := ""
	if tag, ok := jsonTags[n.short()]; ok {
		dst = fmt.Appendf(dst, "%q:%q", tag.key, tag.value)
		separator = ","
	}
	for _, f := range n.fields {
		if _, ok := values[f.name]; !ok && f.mayBeAbsent() {
			continue
		}
		dst = fmt.Appendf(dst, "%s%q:", separator, f.name)
		separator = ","
		if dst, err = appendJSON(dst, f.node, values[f.name]); err != nil {
			return dst, within("."+f.name, err)
		}
	}
	return append(dst, '}'), nil
}

func appendArray(dst []byte, items *node, native any) (_ []byte, err *event.Error) {
	list, _ := native.([]any)
	dst = append(dst, '[')
	for i, v := range list {
		if i > 0 {
			dst = append(dst, ',')
		}
		if dst, err = appendJSON(dst, items, v); err != nil {
			return dst, within(fmt.Sprintf("[%d]", i), err)
		}
	}
	return append(dst, ']'), nil
}
