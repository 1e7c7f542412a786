package schemas

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// node is an Avro schema as this package walks it. There is one of it, and everything generic follows it: the walk over Avro
// bytes, the reading and the writing of the JSON form.
type node struct {
	kind kind
	// name is what a union calls this branch in goavro's native form: "string", "tooltape.tool.call.denied.Text".
	name     string
	fields   []field // of a record
	items    *node   // of an array
	branches []*node // of a union
}

type field struct {
	name string
	node *node
	// optional is a field that the JSON form may leave out although it is not nullable.
	optional bool
}

// mayBeAbsent says whether absent and null are two things in this field: only in the result item of a denial of version 1.
func (f field) mayBeAbsent() bool { return f.name == "result_item" && f.node.nullable() != nil }

type kind uint8

const (
	nullKind kind = iota
	booleanKind
	intKind
	longKind
	microsKind
	doubleKind
	stringKind
	arrayKind
	recordKind
	unionKind
	// rawKind is JSON that cannot be read yet; Avro has nothing like it.
	rawKind
)

var primitives = map[string]kind{
	"null": nullKind, "boolean": booleanKind, "int": intKind, "long": longKind, "double": doubleKind, "string": stringKind,
}

// nullable is the branch beside null of a union [null, X], else nil.
func (n *node) nullable() *node {
	if n.kind == unionKind && len(n.branches) == 2 && n.branches[0].kind == nullKind {
		return n.branches[1]
	}
	return nil
}

// takesBytes says whether every value takes at least one byte.
func (n *node) takesBytes() bool {
	if n.kind == recordKind {
		return slices.ContainsFunc(n.fields, func(f field) bool { return f.node.takesBytes() })
	}
	return n.kind != nullKind
}

// short is a record's name without its namespace.
func (n *node) short() string { return afterDot(n.name) }

func afterDot(name string) string { return name[strings.LastIndexByte(name, '.')+1:] }

// field is the record's field of that name, or nil.
func (n *node) field(name string) *field {
	i := slices.IndexFunc(n.fields, func(f field) bool { return f.name == name })
	if i < 0 {
		return nil
	}
	return &n.fields[i]
}

// parseTree reads one .avsc file. It refuses what would make decoding unbounded (recursion, array items of no bytes) or its
// bytes depend on chance (maps), and one name that means two things, which goavro takes without a word.
func parseTree(avsc string) (*node, error) {
	var schema any
	if err := json.Unmarshal([]byte(avsc), &schema); err != nil {
		return nil, err
	}
	return treeParser{}.parse(schema, "")
}

// treeParser holds the records that were named so far; one that is not yet complete is nil.
type treeParser map[string]*node

func (p treeParser) parse(schema any, namespace string) (*node, error) {
	switch schema := schema.(type) {
	case string:
		return p.named(schema, namespace)
	case []any:
		return p.union(schema, namespace)
	case map[string]any:
		switch schema["type"] {
		case "record":
			return p.record(schema, namespace)
		case "array":
			return p.array(schema, namespace)
		case "long":
			if schema["logicalType"] == "timestamp-micros" {
				return &node{kind: microsKind, name: "long.timestamp-micros"}, nil
			}
		}
		return nil, fmt.Errorf("a schema of type %v is not among those that Tooltape uses", schema["type"])
	}
	return nil, fmt.Errorf("%v is not a schema", schema)
}

func (p treeParser) named(name, namespace string) (*node, error) {
	if kind, ok := primitives[name]; ok {
		return &node{kind: kind, name: name}, nil
	}
	if !strings.Contains(name, ".") {
		name = namespace + "." + name
	}
	n, ok := p[name]
	switch {
	case !ok:
		return nil, fmt.Errorf("%s is not defined", name)
	case n == nil:
		return nil, fmt.Errorf("%s contains itself: a recursive schema lets a small record exhaust the stack", name)
	}
	return n, nil
}

func (p treeParser) union(schema []any, namespace string) (*node, error) {
	n := &node{kind: unionKind}
	for _, branch := range schema {
		b, err := p.parse(branch, namespace)
		if err != nil {
			return nil, err
		}
		n.branches = append(n.branches, b)
	}
	if n.nullable() == nil && slices.ContainsFunc(n.branches, func(b *node) bool { return b.kind != recordKind }) {
		return nil, fmt.Errorf("a union is [null, X] or made of records: the JSON form tells no other branches apart")
	}
	return n, nil
}

func (p treeParser) record(schema map[string]any, namespace string) (*node, error) {
	if ns, ok := schema["namespace"].(string); ok {
		namespace = ns
	}
	name := fmt.Sprintf("%s.%s", namespace, schema["name"])
	if _, ok := p[name]; ok {
		return nil, fmt.Errorf("%s is defined twice", name)
	}
	p[name] = nil
	n := &node{kind: recordKind, name: name}
	fields, _ := schema["fields"].([]any)
	for _, f := range fields {
		f, _ := f.(map[string]any)
		child, err := p.parse(f["type"], namespace)
		if err != nil {
			return nil, fmt.Errorf("%s.%v: %w", name, f["name"], err)
		}
		n.fields = append(n.fields, field{name: fmt.Sprint(f["name"]), node: child})
	}
	p[name] = n
	return n, nil
}

func (p treeParser) array(schema map[string]any, namespace string) (*node, error) {
	items, err := p.parse(schema["items"], namespace)
	if err != nil {
		return nil, err
	}
	if !items.takesBytes() {
		return nil, fmt.Errorf("array items must take bytes: else a few bytes claim any number of them")
	}
	return &node{kind: arrayKind, name: "array", items: items}, nil
}
