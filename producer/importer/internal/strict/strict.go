// Package strict reads JSON of other programs without guessing: duplicate keys, bad UTF-8 and lone surrogates are refused (as
// jsontext does), sizes are bounded, and a reader that has taken what it knows can ask what is left.
package strict

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// MaxValue bounds a line, or a value that is held whole.
const MaxValue = 64 << 20

// Object is a JSON object whose members are taken one by one.
type Object struct {
	members []member
	taken   map[string]bool
}

type member struct {
	name  string
	value jsontext.Value
}

// ReadObject reads an object's members, whose values stay as they are written.
func ReadObject(v jsontext.Value) (*Object, error) {
	if v.Kind() != '{' {
		return nil, fmt.Errorf("it is %s, not an object", Describe(v))
	}
	o := &Object{taken: map[string]bool{}}
	dec := jsontext.NewDecoder(strings.NewReader(string(v)))
	if _, err := dec.ReadToken(); err != nil {
		return nil, err
	}
	for dec.PeekKind() != '}' {
		name, err := dec.ReadToken()
		if err != nil {
			return nil, err
		}
		key := name.String()
		value, err := dec.ReadValue()
		if err != nil {
			return nil, err
		}
		o.members = append(o.members, member{key, value.Clone()})
	}
	return o, nil
}

// Take is the member's value; none where it is absent or null.
func (o *Object) Take(name string) (jsontext.Value, bool) {
	o.taken[name] = true
	for _, m := range o.members {
		if m.name == name {
			return m.value, m.value.Kind() != 'n'
		}
	}
	return nil, false
}

// PutBack leaves a member to Rest again.
func (o *Object) PutBack(name string) { delete(o.taken, name) }

// TakeString is the member, which is to be a string; none where it is absent or null.
func (o *Object) TakeString(name string) (s string, ok bool, err error) {
	v, ok := o.Take(name)
	if !ok {
		return "", false, nil
	}
	s, err = String(v)
	if err != nil {
		return "", false, fmt.Errorf("%s: %w", name, err)
	}
	return s, true, nil
}

// NeedString is the member, which is to be a string and not empty.
func (o *Object) NeedString(name string) (string, error) {
	s, _, err := o.TakeString(name)
	if err == nil && s == "" {
		err = fmt.Errorf("%s is missing", name)
	}
	return s, err
}

// TakeBool is the member, which is to be true or false; none where it is absent or null.
func (o *Object) TakeBool(name string) (b, ok bool, err error) {
	v, ok := o.Take(name)
	if !ok {
		return false, false, nil
	}
	if k := v.Kind(); k != 't' && k != 'f' {
		return false, false, fmt.Errorf("%s: it is %s, not true or false", name, Describe(v))
	}
	return v.Kind() == 't', true, nil
}

// Rest is the JSON text of an object with the members that nobody took, verbatim and in their order, without nulls; none
// where nothing is left.
func (o *Object) Rest() (string, bool) {
	var b strings.Builder
	for _, m := range o.members {
		if o.taken[m.name] || m.value.Kind() == 'n' {
			continue
		}
		b.WriteString(map[bool]string{true: "{", false: ","}[b.Len() == 0])
		name, _ := jsontext.AppendQuote(nil, m.name)
		b.Write(name)
		b.WriteString(":" + string(m.value))
	}
	if b.Len() == 0 {
		return "", false
	}
	return b.String() + "}", true
}

// Elements are the values of an array.
func Elements(v jsontext.Value) ([]jsontext.Value, error) {
	if v.Kind() != '[' {
		return nil, fmt.Errorf("it is %s, not an array", Describe(v))
	}
	dec := jsontext.NewDecoder(strings.NewReader(string(v)))
	if _, err := dec.ReadToken(); err != nil {
		return nil, err
	}
	var elements []jsontext.Value
	for dec.PeekKind() != ']' {
		e, err := dec.ReadValue()
		if err != nil {
			return nil, err
		}
		elements = append(elements, e.Clone())
	}
	return elements, nil
}

// String is what a JSON string says.
func String(v jsontext.Value) (string, error) {
	if v.Kind() != '"' {
		return "", fmt.Errorf("it is %s, not a string", Describe(v))
	}
	s, err := jsontext.AppendUnquote(nil, v)
	return string(s), err
}

// Describe names a value's kind for a sentence.
func Describe(v jsontext.Value) string { return DescribeKind(v.Kind()) }

// DescribeKind names a kind for a sentence.
func DescribeKind(kind jsontext.Kind) string {
	switch kind {
	case 'n':
		return "null"
	case 't', 'f':
		return "true or false"
	case '"':
		return "a string"
	case '0':
		return "a number"
	case '{':
		return "an object"
	case '[':
		return "an array"
	}
	return "no JSON value"
}

// Parse checks that text is exactly one JSON value.
func Parse(text []byte) (jsontext.Value, error) {
	dec := jsontext.NewDecoder(strings.NewReader(string(text)))
	v, err := dec.ReadValue()
	if err != nil {
		return nil, Reason(err)
	}
	v = v.Clone()
	if _, err := dec.ReadToken(); !errors.Is(err, io.EOF) {
		return nil, errors.New("it is followed by something else")
	}
	return v, nil
}

// Reason turns an error of the JSON decoder into a sentence without offsets, for which the caller knows the line.
func Reason(err error) error {
	var syntactic *jsontext.SyntacticError
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF):
		return errors.New("it is cut off in the middle")
	case errors.Is(err, jsontext.ErrDuplicateName):
		return errors.New("a key stands twice in one object")
	case errors.As(err, &syntactic) && syntactic.Err != nil:
		return fmt.Errorf("it is not JSON: %w", syntactic.Err)
	}
	return err
}

// Reader counts lines, and stops a decoder that would hold more than MaxValue at once.
type Reader struct {
	r        io.Reader
	read     int64
	limit    int64
	newlines []int64 // the offset of each newline
}

// NewReader reads r. Permit is to be called before each value.
func NewReader(r io.Reader) *Reader { return &Reader{r: r, limit: MaxValue} }

// Permit lets a decoder that has come to offset read one more value.
func (r *Reader) Permit(offset int64) { r.limit = max(r.limit, offset+MaxValue) }

// Line is the line, from 1, that the offset is in.
func (r *Reader) Line(offset int64) int {
	n, _ := slices.BinarySearch(r.newlines, offset)
	return n + 1
}

// Read implements io.Reader.
func (r *Reader) Read(p []byte) (int, error) {
	if r.read >= r.limit {
		return 0, fmt.Errorf("a value is longer than %d MiB", MaxValue>>20)
	}
	p = p[:min(int64(len(p)), r.limit-r.read)]
	n, err := r.r.Read(p)
	for i, c := range p[:n] {
		if c == '\n' {
			r.newlines = append(r.newlines, r.read+int64(i))
		}
	}
	r.read += int64(n)
	return n, err
}
