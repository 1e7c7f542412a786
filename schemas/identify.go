package schemas

import (
	"encoding/json"
	"reflect"
	"strings"
	"sync"

	"github.com/tooltape/tooltape/schemas/event"
)

// Identify says which frozen schema a schema's text is: the one that it names, if a record of the one is a record of the other, byte
// by byte and meaning by meaning. Docs, defaults, aliases, the order of keys and the spelling of names do not count: registries and
// their clients rewrite them. The error is an *event.Error with the code unknown_schema.
func Identify(schemaText string) (event.Type, int, error) {
	r := identify(schemaText)
	if r.err != nil {
		return "", 0, r.err
	}
	return r.of, r.version, nil
}

func identify(schemaText string) resolved {
	unknown := func(message string) resolved {
		return resolved{err: &event.Error{Code: event.UnknownSchema, Message: message}}
	}
	var parsed any
	if err := json.Unmarshal([]byte(schemaText), &parsed); err != nil {
		return unknown("the schema that the registry has is not JSON")
	}
	got := layout(parsed, "")
	record, _ := got.(map[string]any)
	name, _ := record["name"].(string)
	want, ok := index().byName[name]
	switch {
	case !ok:
		return unknown("the schema that the registry has does not bear the name of a frozen one")
	case !reflect.DeepEqual(got, want.layout):
		return unknown("the schema that the registry has differs from the frozen one of its name")
	}
	return resolved{shape: want.shape}
}

// frozenSchema is a frozen schema as it is compared.
type frozenSchema struct {
	shape
	layout any
}

type frozenIndex struct {
	byFingerprint map[uint64]shape
	byName        map[string]frozenSchema
}

// index finds frozen schemas by what a record or a registry states.
var index = sync.OnceValue(func() frozenIndex {
	all := frozenIndex{map[uint64]shape{}, map[string]frozenSchema{}}
	for _, t := range Types() {
		for v := 1; v <= Latest(t); v++ {
			s := shape{t, v}
			fingerprint, _ := Fingerprint(t, v)
			all.byFingerprint[fingerprint] = s
			all.byName[FullName(t, v)] = frozenSchema{s, layoutOf(s)}
		}
	}
	return all
})

func layoutOf(s shape) any {
	text, _ := Schema(s.of, s.version)
	var parsed any
	if err := json.Unmarshal([]byte(text), &parsed); err != nil {
		panic("schemas: " + FullName(s.of, s.version) + ": " + err.Error()) // it is part of the program
	}
	return layout(parsed, "")
}

// layout is what of a schema decides how bytes are read and what they mean: types, names in full, and logical types.
func layout(schema any, namespace string) any {
	switch s := schema.(type) {
	case string:
		return fullName(s, namespace)
	case []any:
		branches := make([]any, len(s))
		for i, branch := range s {
			branches[i] = layout(branch, namespace)
		}
		return branches
	case map[string]any:
		return objectLayout(s, namespace)
	}
	return schema
}

func objectLayout(s map[string]any, namespace string) any {
	out := map[string]any{}
	switch s["type"] {
	case "record", "enum", "fixed":
		name, _ := s["name"].(string)
		if own, ok := s["namespace"].(string); ok {
			namespace = own
		}
		name = fullName(name, namespace)
		namespace = name[:max(strings.LastIndexByte(name, '.'), 0)]
		out = map[string]any{"type": s["type"], "name": name, "symbols": s["symbols"], "size": s["size"]}
		if fields, ok := s["fields"].([]any); ok {
			out["fields"] = fieldLayouts(fields, namespace)
		}
	case "array", "map":
		out = map[string]any{"type": s["type"], "items": layout(s["items"], namespace), "values": layout(s["values"], namespace)}
	default:
		if s["logicalType"] == nil {
			return layout(s["type"], namespace)
		}
		out["type"] = layout(s["type"], namespace)
	}
	out["logicalType"] = s["logicalType"]
	return out
}

func fieldLayouts(fields []any, namespace string) []any {
	out := make([]any, len(fields))
	for i, field := range fields {
		f, _ := field.(map[string]any)
		out[i] = []any{f["name"], layout(f["type"], namespace)}
	}
	return out
}

// fullName leaves alone what is no short name of a named type: full names, and Avro's own types.
func fullName(name, namespace string) string {
	switch name {
	case "null", "boolean", "int", "long", "float", "double", "bytes", "string":
		return name
	}
	if namespace == "" || strings.Contains(name, ".") {
		return name
	}
	return namespace + "." + name
}
