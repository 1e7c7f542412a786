// Package schemas turns bytes into events and back, for every payload version that was ever released. It is the only importer
// of goavro.
//
// A record is read in four steps: the envelope by hand, a walk that vouches for the payload's bytes, goavro, and the upcasters,
// after which only the current shape is left.
package schemas

import (
	"embed"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/linkedin/goavro/v2"

	"github.com/tooltape/tooltape/schemas/event"
)

//go:embed envelope.avsc */v*.avsc
var files embed.FS

// frozen lists the released payload schemas, one a line: event type, version, SHA-256 of its .avsc file, and the CRC-64-AVRO
// fingerprint of the record schema that is composed of envelope and payload. It only grows.
//
//go:embed frozen.txt
var frozen string

var (
	envelopeTree = must(parseTree(avsc("envelope.avsc")))
	released     = must(load(frozen))
)

// eventType is one type of event with all its released versions, version 1 first.
type eventType struct {
	versions []*schema
	mapping  payloadMapping
}

// schema is a released version of a payload.
type schema struct {
	eventType   event.Type
	version     int
	composed    string
	fingerprint uint64
	payload     *node
	codec       *goavro.Codec
	// mayBeAbsent is the payload's field in which absent and null are two things; most have none.
	mayBeAbsent string
}

// Types are all event types, in order.
func Types() []event.Type { return slices.Sorted(maps.Keys(released)) }

// Latest is the current payload version of a type; 0 where there is no such type.
func Latest(t event.Type) int {
	if known, ok := released[t]; ok {
		return len(known.versions)
	}
	return 0
}

// Schema is the schema of the records of a type and version: what a registry holds, and what other languages read with.
func Schema(t event.Type, version int) (string, bool) {
	s, err := lookup(t, version)
	if err != nil {
		return "", false
	}
	return s.composed, true
}

// Fingerprint is the CRC-64-AVRO fingerprint of Schema's parsing canonical form, as the specification has it. It comes from
// the frozen list: goavro computes another.
func Fingerprint(t event.Type, version int) (uint64, bool) {
	s, err := lookup(t, version)
	if err != nil {
		return 0, false
	}
	return s.fingerprint, true
}

// lookup finds a released schema, or says precisely what this build does not know.
func lookup(t event.Type, version int) (*schema, *event.Error) {
	known, ok := released[t]
	switch {
	case !ok:
		return nil, &event.Error{Code: event.UnknownType, Field: "type", Message: "is no event type that this build knows"}
	case version < 1:
		return nil, &event.Error{Code: event.BadEnvelope, Field: "payload_version", Message: "is below 1"}
	case version > len(known.versions):
		return nil, &event.Error{Code: event.NewerVersion, Message: fmt.Sprintf(
			"payload version %d of %s is newer than this build knows (%d)", version, t, len(known.versions))}
	}
	return known.versions[version-1], nil
}

// load reads the schemas that the frozen list names; a .avsc file that it does not name is not released, and is not read.
func load(frozen string) (map[event.Type]*eventType, error) {
	goavro.MaxBlockCount = MaxItems
	types := map[event.Type]*eventType{}
	for _, m := range payloadMappings {
		types[m.eventType] = &eventType{mapping: m}
	}
	for line := range strings.Lines(frozen) {
		s, err := parseFrozen(line)
		if err != nil {
			return nil, fmt.Errorf("frozen.txt: %w", err)
		}
		known := types[s.eventType]
		if known == nil {
			return nil, fmt.Errorf("payloads.go: no function maps the payload of %s", s.eventType)
		}
		if s.version != len(known.versions)+1 {
			return nil, fmt.Errorf("frozen.txt: version %d of %s is out of turn", s.version, s.eventType)
		}
		if _, ok := upcasters[upcastStep{s.eventType, s.version - 1}]; !ok && s.version > 1 {
			return nil, fmt.Errorf("upcast.go: no step takes %s from version %d to %d", s.eventType, s.version-1, s.version)
		}
		known.versions = append(known.versions, s)
	}
	return types, nil
}

func parseFrozen(line string) (*schema, error) {
	words := strings.Fields(line)
	if len(words) != 4 {
		return nil, fmt.Errorf("a line has four words: type, version, sha256, fingerprint")
	}
	version, err := strconv.Atoi(words[1])
	if err != nil {
		return nil, err
	}
	fingerprint, err := strconv.ParseUint(words[3], 16, 64)
	if err != nil {
		return nil, err
	}
	s, err := newSchema(event.Type(words[0]), version)
	if err != nil {
		return nil, err
	}
	s.fingerprint = fingerprint
	return s, nil
}

func newSchema(t event.Type, version int) (*schema, error) {
	bytes, err := files.ReadFile(fmt.Sprintf("%s/v%d.avsc", t, version))
	if err != nil {
		return nil, err
	}
	text := string(bytes)
	payload, err := parseTree(text)
	if err != nil {
		return nil, err
	}
	// Without EnableStringNull goavro does not take the string "null" for a null.
	codec, err := goavro.NewCodecWithOptions(text, &goavro.CodecOption{EnableStringNull: false})
	if err != nil {
		return nil, err
	}
	composed, err := compose(t, version, text)
	if err != nil {
		return nil, err
	}
	s := &schema{eventType: t, version: version, composed: composed, payload: payload, codec: codec}
	for _, f := range payload.fields {
		if f.mayBeAbsent() {
			s.mayBeAbsent = f.name
		}
	}
	return s, nil
}

// compose writes the schema of the whole record: the envelope's fields, then the payload.
func compose(t event.Type, version int, payload string) (string, error) {
	_, fields, ok := strings.Cut(avsc("envelope.avsc"), `"fields": [`)
	end := strings.LastIndexByte(fields, ']')
	if !ok || end < 0 {
		return "", fmt.Errorf("envelope.avsc has no fields")
	}
	text := jsontext.Value(fmt.Sprintf(
		`{"type":"record","name":"V%d","namespace":"tooltape.%s","doc":"The event %s with payload version %d.","fields":[%s,{"name":"payload","type":%s}]}`,
		version, t, t, version, fields[:end], payload))
	if err := text.Compact(); err != nil {
		return "", err
	}
	return string(text), nil
}

func avsc(name string) string { return string(must(files.ReadFile(name))) }

func must[T any](v T, err error) T {
	if err != nil {
		panic(fmt.Sprintf("schemas: %v", err))
	}
	return v
}
