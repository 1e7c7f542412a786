package schemas

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/tooltape/tooltape/schemas/event"
)

// MaxLine is how long one event's JSON form may be, in bytes.
const MaxLine = 8 << 20

// jsonTextFields hold JSON text. Arguments is not among them: it is what the model wrote, and that is not always JSON.
var jsonTextFields = map[string]bool{"parameters": true, "data": true, "provider_data": true}

// ParseJSON reads one event in its JSON form, checked against the schema of the payload version that it states, or of its
// type's current one. Fields of the envelope may be left out, for the writer to fill. Where only the payload is at fault, the
// envelope is there beside the error.
func ParseJSON(line []byte) (Stored, error) {
	if err := checkSyntax(line); err != nil {
		return Stored{}, located(err)
	}
	r := newJSONReader(line)
	values, err := r.record(jsonTree)
	if err != nil {
		return Stored{}, located(err)
	}
	var s Stored
	envelopeFields(record{reading, values}, &s.Envelope)
	if _, s.StatedVersion = values["payload_version"]; !s.StatedVersion {
		s.PayloadVersion = max(Latest(s.Type), 1)
	}
	if s.Type == "" {
		return s, located(missing(field{name: "type"}))
	}
	if err := checkStated(values); err != nil {
		return s, located(err)
	}
	schema, err := lookup(s.Type, s.PayloadVersion)
	if err != nil {
		return s, err
	}
	raw, ok := values["payload"].(jsontext.Value)
	if !ok {
		return s, errNoPayload()
	}
	payload, err := (&jsonReader{text: raw, d: newJSONReader(raw).d, items: r.items}).value(schema.payload)
	if err != nil {
		return s, within("payload", err)
	}
	s.payload, s.schema = asMap(payload), schema
	return s, nil
}

// checkStated refuses what an envelope states, and the writer would take for left out and fill.
func checkStated(values map[string]any) *event.Error {
	for _, name := range []string{"envelope_version", "event_id", "tenant_id", "session_id", "seq", "partition_key"} {
		v := values[name]
		if seq, whole := v.(int64); v == "" || v == int32(0) || whole && seq < 1 {
			return within(name, badValue("must not be empty, and not less than 1"))
		}
	}
	return nil
}

// jsonTree is an event in its JSON form: the envelope, of which the writer may leave out anything, and a payload that cannot
// be read before the envelope is.
var jsonTree = func() *node {
	n := &node{kind: recordKind, name: "tooltape.Event"}
	for _, f := range envelopeTree.fields {
		f.optional = true
		n.fields = append(n.fields, f)
	}
	n.fields = append(n.fields, field{name: "payload", node: &node{kind: rawKind}, optional: true})
	return n
}()

// located ends the way of an error outwards: its path names a field of the event, and its code follows from that.
func located(err *event.Error) *event.Error {
	err.Field = strings.TrimPrefix(err.Field, ".")
	if err.Code == event.BadPayload && err.Field != "payload" && !strings.HasPrefix(err.Field, "payload.") {
		err.Code = event.BadEnvelope
	}
	return err
}

func badValue(message string) *event.Error {
	return &event.Error{Code: event.BadPayload, Message: message}
}

// checkSyntax refuses what is not exactly one JSON object, strictly read: no duplicate keys, no bad UTF-8, no lone surrogates.
// Whoever reads the line afterwards meets no such error any more.
func checkSyntax(line []byte) *event.Error {
	if len(line) > MaxLine {
		return badValue(fmt.Sprintf("the line is longer than %d bytes", MaxLine))
	}
	if bytes.HasPrefix(line, []byte("\ufeff")) {
		return badValue("the line begins with a byte order mark (EF BB BF), which is no JSON")
	}
	d := jsontext.NewDecoder(bytes.NewBuffer(line))
	if d.PeekKind() != '{' {
		return badValue("the line is not a JSON object")
	}
	if err := d.SkipValue(); err != nil {
		return syntaxError(err)
	}
	if _, err := d.ReadToken(); !errors.Is(err, io.EOF) {
		return badValue("the JSON object is followed by something else")
	}
	return nil
}

func syntaxError(err error) *event.Error {
	var at int64
	path := ""
	if syntactic, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
		at, path = syntactic.ByteOffset, pathOf(syntactic.JSONPointer)
	}
	message := fmt.Sprintf("is not valid JSON in UTF-8, at byte %d", at)
	switch {
	case errors.Is(err, jsontext.ErrDuplicateName):
		message = "stands there twice"
	case errors.Is(err, io.ErrUnexpectedEOF):
		message = "is cut off: the line ends before it"
	}
	return within(path, badValue(message))
}

// pathOf writes a pointer as the path of a field, as far as it is one: a key that no field could have is content, and nothing
// lies as deep as some lines go.
func pathOf(pointer jsontext.Pointer) string {
	const longest = 100
	path := ""
	for token := range pointer.Tokens() {
		switch _, err := strconv.Atoi(token); {
		case len(path) > longest:
			return path
		case err == nil:
			path += "[" + token + "]"
		case isName(token):
			path += "." + token
		default:
			return path
		}
	}
	return path
}

// isName says whether a key could be a field's name, and so may be shown in an error.
func isName(key string) bool {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_"
	return key != "" && len(key) <= 40 && strings.Trim(key, letters) == ""
}

// jsonReader reads JSON whose syntax was checked, into goavro's native form. The field of an error is a path relative to what
// is read.
type jsonReader struct {
	text  []byte
	d     *jsontext.Decoder
	items int
}

func newJSONReader(text []byte) *jsonReader {
	// The names were checked for duplicates already, and to check them again takes memory for each.
	return &jsonReader{text: text, d: jsontext.NewDecoder(bytes.NewBuffer(text), jsontext.AllowDuplicateNames(true))}
}

// next is the next token. No error can come: the syntax was checked.
func (r *jsonReader) next() jsontext.Token {
	token, _ := r.d.ReadToken()
	return token
}

// value reads one value.
func (r *jsonReader) value(n *node) (any, *event.Error) {
	switch n.kind {
	case unionKind:
		return r.union(n)
	case recordKind:
		return r.record(n)
	case arrayKind:
		return r.array(n.items)
	case stringKind, microsKind:
		s, err := r.str()
		if err != nil || n.kind == stringKind {
			return s, err
		}
		return parseTimestamp(s)
	}
	raw, _ := r.d.ReadValue()
	switch n.kind {
	case rawKind:
		return raw.Clone(), nil
	case booleanKind:
		return parseBoolean(raw)
	case intKind:
		v, err := parseWhole(raw, 32)
		return int32(v), err
	case longKind:
		return parseWhole(raw, 64)
	case doubleKind:
		return parseDouble(raw)
	}
	panic("schemas: a node without a kind")
}

func (r *jsonReader) record(n *node) (map[string]any, *event.Error) {
	if r.d.PeekKind() != '{' {
		return nil, badValue("must be an object")
	}
	r.next()
	values := make(map[string]any, len(n.fields))
	for r.d.PeekKind() == '"' {
		if err := r.member(n, r.next().String(), values); err != nil {
			return nil, err
		}
	}
	r.next()
	for _, f := range n.fields {
		if _, ok := values[f.name]; ok || f.optional || f.mayBeAbsent() {
			continue
		}
		if f.node.nullable() == nil {
			return nil, missing(f)
		}
		values[f.name] = nil
	}
	return values, nil
}

// member reads what follows a key of a record into values.
func (r *jsonReader) member(n *node, key string, values map[string]any) *event.Error {
	f := n.field(key)
	if f == nil {
		return r.tag(n, key)
	}
	if r.d.PeekKind() == 'n' && f.node.nullable() == nil {
		return missing(*f)
	}
	v, err := r.value(f.node)
	if err == nil && jsonTextFields[key] {
		err = checkJSONText(v)
	}
	if err != nil {
		return within("."+key, err)
	}
	values[key] = v
	return nil
}

// missing is the error of a required field that is absent or null.
func missing(f field) *event.Error {
	err := badValue("must be given, and not be null")
	if f.name == "result_item" {
		err.Code = event.ResultItemMissing
	}
	return within("."+f.name, err)
}

// tag reads a key that is no field: the one that names the kind of record, or an unknown one.
func (r *jsonReader) tag(n *node, key string) *event.Error {
	tag, ok := jsonTags[n.short()]
	switch {
	case ok && tag.key == key:
		if s, err := r.str(); err != nil || s != tag.value {
			return within("."+key, badValue(fmt.Sprintf("must be %q here", tag.value)))
		}
		return nil
	case isName(key):
		return within("."+key, badValue("is no field that it can have"))
	}
	return badValue("has a key that no field has")
}

func (r *jsonReader) union(n *node) (any, *event.Error) {
	branch := n.nullable()
	switch {
	case branch == nil:
		var err *event.Error
		if branch, err = r.branch(n); err != nil {
			return nil, err
		}
	case r.d.PeekKind() == 'n':
		r.next()
		return nil, nil
	}
	v, err := r.value(branch)
	if err != nil {
		return nil, err
	}
	return map[string]any{branch.name: v}, nil
}

// branch finds which of a union's records comes next. The key that tells need not stand first: many JSON writers sort keys.
func (r *jsonReader) branch(n *node) (*node, *event.Error) {
	if r.d.PeekKind() != '{' {
		return nil, badValue("must be an object")
	}
	key := jsonTags[n.branches[0].short()].key
	ahead := newJSONReader(bytes.TrimLeft(r.text[r.d.InputOffset():], " \t\r\n,:"))
	ahead.next()
	for ahead.d.PeekKind() == '"' {
		if ahead.next().String() != key {
			_ = ahead.d.SkipValue()
			continue
		}
		value, err := ahead.str()
		if err != nil {
			return nil, within("."+key, err)
		}
		for _, b := range n.branches {
			if jsonTags[b.short()].value == value {
				return b, nil
			}
		}
		return nil, within("."+key, badValue("is none of those that can stand here"))
	}
	return nil, within("."+key, badValue("is missing"))
}

func (r *jsonReader) array(items *node) ([]any, *event.Error) {
	if r.d.PeekKind() != '[' {
		return nil, badValue("must be an array")
	}
	r.next()
	list := []any{}
	for r.d.PeekKind() != ']' {
		if r.items++; r.items > MaxItems {
			return nil, &event.Error{Code: event.TooManyItems, Message: tooManyItems}
		}
		if r.d.PeekKind() == 'n' {
			return nil, within(fmt.Sprintf("[%d]", len(list)), badValue("must not be null"))
		}
		v, err := r.value(items)
		if err != nil {
			return nil, within(fmt.Sprintf("[%d]", len(list)), err)
		}
		list = append(list, v)
	}
	r.next()
	return list, nil
}

func (r *jsonReader) str() (string, *event.Error) {
	if r.d.PeekKind() != '"' {
		return "", badValue("must be a string")
	}
	return r.next().String(), nil
}

// checkJSONText checks a string that was read for a field of JSON text; null passes.
func checkJSONText(native any) *event.Error {
	s, ok := native.(string)
	if !ok {
		s, ok = branchValue(native).(string)
	}
	if ok && !isJSONText(s) {
		return badValue(notJSONText)
	}
	return nil
}

const notJSONText = "must be JSON text"

// isJSONText takes what any JSON parser takes. The text is kept verbatim, and to be stricter than the provider that wrote it
// would refuse what has happened.
func isJSONText(s string) bool {
	return jsontext.Value(s).IsValid(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
}

func parseBoolean(raw jsontext.Value) (any, *event.Error) {
	if k := raw.Kind(); k != 't' && k != 'f' {
		return nil, badValue("must be true or false")
	}
	return raw.Kind() == 't', nil
}

// parseWhole takes digits only: a fraction or an exponent says that somebody's number went through a float.
func parseWhole(raw jsontext.Value, bits int) (int64, *event.Error) {
	v, err := strconv.ParseInt(string(raw), 10, bits)
	switch {
	case errors.Is(err, strconv.ErrRange):
		return 0, badValue(fmt.Sprintf("is outside the range of %d bits", bits))
	case err != nil:
		return 0, badValue("must be a whole number")
	}
	return v, nil
}

func parseDouble(raw jsontext.Value) (any, *event.Error) {
	if raw.Kind() != '0' {
		return nil, badValue("must be a number")
	}
	v, err := strconv.ParseFloat(string(raw), 64)
	if err != nil || math.IsInf(v, 0) {
		return nil, badValue("is outside the range of a double")
	}
	return v, nil
}

// rfc3339 is the form of a time. Package time also takes a comma before the fraction, an hour of one digit and offsets that no place has.
var rfc3339 = regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]([01]\d|2[0-3]):[0-5]\d)$`)

// parseTimestamp takes RFC 3339 with any offset, and no more digits than are kept.
func parseTimestamp(s string) (any, *event.Error) {
	t, err := time.Parse(time.RFC3339, s)
	if err != nil || !rfc3339.MatchString(s) {
		return nil, badValue("must be a time in RFC 3339, such as 2026-09-29T12:34:56.123456Z")
	}
	_, fraction, _ := strings.Cut(s, ".")
	if strings.IndexFunc(fraction, func(r rune) bool { return r < '0' || r > '9' }) > 6 {
		return nil, badValue("must have at most 6 digits after the second")
	}
	if micros := t.UnixMicro(); micros < minMicros || micros > maxMicros {
		return nil, badValue("is outside the years 1 to 9999")
	}
	return t.UTC(), nil
}
