// Package openaichat reads sessions recorded as OpenAI chat messages: a JSON array of messages, an object
// {"messages": […], "tools"?: […]}, or JSONL whose lines are either. A path reaches into containers of such sessions.
//
// Such a log says nothing about times, models, usage, requests and errors: all of that is null, and a tool's result is completed
// with an error flag of null whatever its text says. Legacy function calls are refused, since their results name no call.
package openaichat

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"unicode"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/tooltape/tooltape/producer/importer"
	"github.com/tooltape/tooltape/producer/importer/internal/strict"
	"github.com/tooltape/tooltape/schemas/event"
)

// Options say where the sessions are and what they are called.
type Options struct {
	// Path leads from each JSON value of the file to its sessions: keys and [] (each element of an array), separated by dots,
	// such as "[].traj" or "data.conversations[].messages". Empty: the value is a session.
	Path string
	// SessionID is the session's id, or what the ids begin with where there are several. Empty: the file's name without its
	// folder and extension.
	SessionID string
}

// Read reads the sessions of a file; name is what it is called in errors and session ids.
//
// One JSON document without [] in the path is one session, called SessionID. In JSONL (by its extension, or because more
// follows the first value), and under a path with [], sessions are called <SessionID>-<n>, from 0 in the order of the file.
//
// Sessions and messages before an error are returned with it.
func Read(r io.Reader, name string, opts Options) (importer.Source, error) {
	steps, err := parsePath(opts.Path)
	if err != nil {
		return importer.Source{}, err
	}
	in := strict.NewReader(r)
	f := &file{name: name, in: in, dec: jsontext.NewDecoder(in), many: isJSONL(name) || strings.Contains(opts.Path, "[]")}
	err = f.readAll(steps)
	if nameErr := f.nameSessions(opts.SessionID); nameErr != nil {
		return importer.Source{}, nameErr
	}
	return f.found, err
}

// file is a file while it is read.
type file struct {
	name  string
	in    *strict.Reader
	dec   *jsontext.Decoder
	many  bool // sessions are numbered
	found importer.Source
}

func (f *file) readAll(steps []string) error {
	for n := 0; ; n++ {
		_, err := f.peek()
		if errors.Is(err, io.EOF) && n > 0 {
			break
		}
		f.many = f.many || n > 0
		if errors.Is(err, io.EOF) {
			return &importer.Error{File: f.name, Message: "the file is empty"}
		}
		if err != nil {
			return f.fail("", err)
		}
		if err := f.walk(steps, ""); err != nil {
			return err
		}
	}
	if len(f.found.Sessions) == 0 {
		return &importer.Error{File: f.name, Message: "there is no session in it"}
	}
	return nil
}

// peek is the kind of the next value.
func (f *file) peek() (jsontext.Kind, error) {
	f.in.Permit(f.dec.InputOffset())
	kind := f.dec.PeekKind()
	if kind != jsontext.KindInvalid {
		return kind, nil
	}
	_, err := f.dec.ReadToken() // says why
	if err == nil {
		err = errors.New("it is not JSON")
	}
	return kind, err
}

// walk goes down the path and reads the sessions at its end.
func (f *file) walk(steps []string, place string) error {
	switch {
	case len(steps) == 0:
		return f.session(place)
	case steps[0] == "[]":
		return f.array(place, "the path wants an array", func(i int) error {
			return f.walk(steps[1:], fmt.Sprintf("%s[%d]", place, i))
		})
	}
	found := false
	err := f.object(place, func(key string) error {
		if key != steps[0] {
			return f.skip(place)
		}
		found = true
		return f.walk(steps[1:], join(place, key))
	})
	if err == nil && !found {
		err = f.fail(place, fmt.Errorf("there is no key %q, which the path wants", steps[0]))
	}
	return err
}

// array calls each for the elements of the array that is next.
func (f *file) array(place, wanted string, each func(i int) error) error {
	if err := f.open(place, '[', wanted); err != nil {
		return err
	}
	for i := 0; ; i++ {
		kind, err := f.peek()
		if err != nil {
			return f.fail(place, err)
		}
		if kind == ']' {
			_, err = f.dec.ReadToken()
			return err
		}
		if err := each(i); err != nil {
			return err
		}
	}
}

// object calls each for the keys of the object that is next; each reads the value.
func (f *file) object(place string, each func(key string) error) error {
	if err := f.open(place, '{', "the path wants an object"); err != nil {
		return err
	}
	for {
		f.in.Permit(f.dec.InputOffset())
		token, err := f.dec.ReadToken()
		if err != nil {
			return f.fail(place, err)
		}
		if token.Kind() == '}' {
			return nil
		}
		if err := each(token.String()); err != nil {
			return err
		}
	}
}

func (f *file) open(place string, want jsontext.Kind, wanted string) error {
	kind, err := f.peek()
	if err == nil && kind != want {
		err = fmt.Errorf("%s, and here is %s", wanted, strict.DescribeKind(kind))
	}
	if err == nil {
		_, err = f.dec.ReadToken()
	}
	if err != nil {
		return f.fail(place, err)
	}
	return nil
}

func (f *file) skip(place string) error {
	f.in.Permit(f.dec.InputOffset())
	if err := f.dec.SkipValue(); err != nil {
		return f.fail(place, err)
	}
	return nil
}

// value is the next value, and its line.
func (f *file) value(place string) (located, error) {
	f.in.Permit(f.dec.InputOffset())
	v, err := f.dec.ReadValue()
	if err != nil {
		return located{}, f.fail(place, err)
	}
	v = v.Clone()
	return located{v, f.in.Line(f.dec.InputOffset() - int64(len(v))), place}, nil
}

// located is a value and where it stands.
type located struct {
	value jsontext.Value
	line  int
	place string
}

// fail is an error at the place that the decoder has come to.
func (f *file) fail(place string, err error) error {
	offset := f.dec.InputOffset()
	var syntactic *jsontext.SyntacticError
	if errors.As(err, &syntactic) {
		offset = syntactic.ByteOffset
	}
	return &importer.Error{File: f.name, Line: f.in.Line(offset), Path: place, Message: strict.Reason(err).Error()}
}

// session reads the session that is next. What is good of it is kept where the rest is not, with the error.
func (f *file) session(place string) error {
	kind, err := f.peek()
	if err != nil {
		return f.fail(place, err)
	}
	switch kind {
	case '[':
		var messages []located
		readErr := f.messages(place, &messages)
		return f.keep(place, located{}, messages, readErr)
	case '{':
		return f.sessionObject(place)
	}
	err = fmt.Errorf("a session is an array of messages or an object with messages, and here is %s", strict.DescribeKind(kind))
	return f.fail(place, err)
}

// sessionObject reads {"messages": […], "tools"?: […]}. Where it breaks off before it said whether there are tools, nothing of
// it is kept: the tools come first in the session.
func (f *file) sessionObject(place string) error {
	var messages []located
	var tools located
	var hasMessages bool
	readErr := f.object(place, func(key string) (err error) {
		switch key {
		case "messages":
			hasMessages = true
			return f.messages(join(place, key), &messages)
		case "tools":
			tools, err = f.value(join(place, key))
			return err
		case "functions":
			v, err := f.value(join(place, key))
			if err == nil && v.value.Kind() != 'n' {
				err = f.at(v, errors.New("legacy functions are not supported: convert them to tools"))
			}
			return err
		}
		f.found.Skip(fmt.Sprintf("key %q beside the messages", key))
		return f.skip(place)
	})
	switch {
	case readErr != nil && tools.value == nil:
		return readErr
	case readErr == nil && !hasMessages:
		return f.fail(place, errors.New("there is no key messages; if the sessions are deeper in the file, say where with a path such as [].traj"))
	}
	return f.keep(place, tools, messages, readErr)
}

func (f *file) messages(place string, to *[]located) error {
	return f.array(place, "messages are an array", func(i int) error {
		v, err := f.value(fmt.Sprintf("%s[%d]", place, i))
		if err == nil {
			*to = append(*to, v)
		}
		return err
	})
}

// keep adds the session of the messages, as far as they are good. The first error counts: what is before it is kept.
func (f *file) keep(place string, tools located, messages []located, readErr error) error {
	c := conversation{}
	err := c.offer(tools)
	for i := 0; err == nil && i < len(messages); i++ {
		err = c.add(messages[i])
		if err != nil {
			err = f.at(messages[i], err)
		}
	}
	if err == nil && len(c.entries) == 0 && readErr == nil {
		err = f.fail(place, errors.New("the session has no messages"))
	}
	if len(c.entries) > 0 {
		f.found.Sessions = append(f.found.Sessions, importer.Session{Entries: c.entries})
	}
	if err == nil {
		return readErr
	}
	var placed *importer.Error
	if !errors.As(err, &placed) {
		err = f.at(tools, err)
	}
	return err
}

func (f *file) at(v located, err error) error {
	return &importer.Error{File: f.name, Line: v.line, Path: v.place, Message: err.Error()}
}

// nameSessions gives the sessions their ids.
func (f *file) nameSessions(id string) error {
	if id == "" {
		id = defaultID(f.name)
	}
	for i := range f.found.Sessions {
		s := &f.found.Sessions[i]
		s.ID = id
		if f.many {
			s.ID = fmt.Sprintf("%s-%d", id, i)
		}
		if err := importer.CheckID(s.ID); err != nil {
			return &importer.Error{File: f.name, Message: err.Error()}
		}
	}
	return nil
}

// defaultID is the file's name without folder and extension, without control characters, and short enough for a number.
func defaultID(name string) string {
	base := filepath.Base(name)
	if name == "-" {
		base = "stdin"
	}
	if stem := strings.TrimSuffix(base, filepath.Ext(base)); stem != "" {
		base = stem
	}
	base = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == unicode.ReplacementChar {
			return '_'
		}
		return r
	}, base)
	const most = event.MaxSessionID - len("-") - 19
	if len(base) > most {
		base = strings.ToValidUTF8(base[:most], "")
	}
	return base
}

func isJSONL(name string) bool {
	ext := strings.ToLower(filepath.Ext(name))
	return ext == ".jsonl" || ext == ".ndjson"
}

// parsePath splits a path into keys and [].
func parsePath(path string) ([]string, error) {
	if path == "" {
		return nil, nil
	}
	var steps []string
	for _, part := range strings.Split(path, ".") {
		key := strings.TrimRight(part, "[]")
		arrays := part[len(key):]
		if part == "" || strings.ContainsAny(key, "[]") || strings.Repeat("[]", len(arrays)/2) != arrays {
			return nil, fmt.Errorf("the path %q is not keys and [], separated by dots, such as [].traj", path)
		}
		if key != "" {
			steps = append(steps, key)
		}
		for range len(arrays) / 2 {
			steps = append(steps, "[]")
		}
	}
	return steps, nil
}

func join(place, key string) string {
	if place == "" {
		return key
	}
	return place + "." + key
}

func hexDigest(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}
