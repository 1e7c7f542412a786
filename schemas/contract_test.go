package schemas

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tooltape/tooltape/deploy/local/pythontest"
	"github.com/tooltape/tooltape/schemas/event"
)

const contractFile = "../docs/CONTRACT.md"

// generated are the parts of the contract that are computed: what the document says there is what the code does.
var generated = map[string]func(*testing.T) string{
	"envelope":   envelopeTable,
	"payloads":   payloadTables,
	"parts":      partTables,
	"sets":       setTable,
	"schemas":    schemaTable,
	"keys":       keyVectors,
	"partitions": partitionVectors,
	"values":     valueVectors,
	"limits":     limitTable,
}

var generatedPart = regexp.MustCompile(`(?s)<!-- generated: (\w+) -->\n.*?<!-- end -->`)

func readContract(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(contractFile)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestTheContractSaysWhatTheCodeDoes(t *testing.T) {
	text := readContract(t)
	var found []string
	want := generatedPart.ReplaceAllStringFunc(text, func(part string) string {
		name := generatedPart.FindStringSubmatch(part)[1]
		found = append(found, name)
		return fmt.Sprintf("<!-- generated: %s -->\n\n%s\n<!-- end -->", name, generated[name](t))
	})
	if len(found) != len(generated) {
		t.Errorf("the contract has the generated parts %q, want each once", found)
	}
	if *rewrite {
		if err := os.WriteFile(contractFile, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if text != want {
		t.Error("docs/CONTRACT.md is not what the code does; go test ./schemas -run Contract -rewrite brings it up to date")
	}
}

func TestTheContractNamesEveryCode(t *testing.T) {
	text := readContract(t)
	for _, code := range slices.Concat(event.ParkingCodes, event.SetAsideCodes) {
		if !strings.Contains(text, "| `"+string(code)+"` |") {
			t.Errorf("the contract does not say what %s means", code)
		}
	}
}

func TestThePythonOfTheContractComputesTheVectors(t *testing.T) {
	python := pythontest.With(t, "plain")
	_, code, _ := strings.Cut(readContract(t), "```python\n")
	code, _, _ = strings.Cut(code, "```")
	var want strings.Builder
	for _, key := range partitionKeys {
		code += fmt.Sprintf("print(partition(%s, 48))\n", strconv.QuoteToASCII(key))
		fmt.Fprintln(&want, Partition(key, 48))
	}
	for _, parts := range keyParts {
		code += fmt.Sprintf("print(key(%s))\n", quoted(parts))
		fmt.Fprintln(&want, JoinKey(parts...))
	}
	command := exec.CommandContext(t.Context(), python, "-c", code)
	command.Env = append(os.Environ(), "PYTHONIOENCODING=utf-8")
	got, err := command.CombinedOutput()
	if err != nil || string(got) != want.String() {
		t.Errorf("got %s, %v; want %s", got, err, want.String())
	}
}

func quoted(parts []string) string {
	out := make([]string, len(parts))
	for i, p := range parts {
		out[i] = strconv.QuoteToASCII(p)
	}
	return strings.Join(out, ", ")
}

// table writes a Markdown table.
type table struct{ strings.Builder }

func newTable(heads ...string) *table {
	t := &table{}
	t.row(heads...)
	t.row(slices.Repeat([]string{"---"}, len(heads))...)
	return t
}

func (t *table) row(cells ...string) { t.WriteString("| " + strings.Join(cells, " | ") + " |\n") }

func code(s string) string { return "`" + s + "`" }

func parsedAvsc(t *testing.T, name string) map[string]any {
	t.Helper()
	var parsed map[string]any
	if err := json.Unmarshal([]byte(avsc(name)), &parsed); err != nil {
		t.Fatal(err)
	}
	return parsed
}

func envelopeTable(t *testing.T) string {
	return fieldTable(parsedAvsc(t, "envelope.avsc")).String()
}

func payloadTables(t *testing.T) string {
	var b strings.Builder
	for of := range orderedTypes() {
		fmt.Fprintf(&b, "### %s\n\n", of)
		for v := 1; v <= Latest(of); v++ {
			payload := parsedAvsc(t, fmt.Sprintf("%s/v%d.avsc", of, v))
			fmt.Fprintf(&b, "Version %d. %s\n\n%s\n", v, payload["doc"], fieldTable(payload))
		}
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// orderedTypes are the types in the order of a session: that of their definitions.
func orderedTypes() func(yield func(event.Type) bool) {
	return func(yield func(event.Type) bool) {
		for _, m := range payloadMappings {
			if !yield(m.eventType) {
				return
			}
		}
	}
}

func partTables(t *testing.T) string {
	message := parsedAvsc(t, "system.message.created/v1.avsc")
	parts := message["fields"].([]any)[0].(map[string]any)["type"].(map[string]any)["items"].([]any)
	var b strings.Builder
	for _, part := range parts {
		part := part.(map[string]any)
		name := part["name"].(string)
		fmt.Fprintf(&b, "Record %s, `\"type\": %q` in JSON. %s\n\n%s\n", code(name), jsonTags[name].value, part["doc"], fieldTable(part))
	}
	return strings.TrimSuffix(b.String(), "\n")
}

func fieldTable(record map[string]any) *table {
	out := newTable("field", "type", "meaning")
	addFields(out, "", record)
	return out
}

func addFields(out *table, path string, record map[string]any) {
	for _, f := range record["fields"].([]any) {
		f := f.(map[string]any)
		name := path + f["name"].(string)
		out.row(code(name), typeName(f["type"]), fmt.Sprint(f["doc"]))
		addNested(out, name, f["type"])
	}
}

// addNested adds the fields of records inside a field, but for those of parts, which have a chapter of their own.
func addNested(out *table, path string, schema any) {
	switch s := schema.(type) {
	case []any:
		if isPart(s) {
			return
		}
		for _, branch := range s {
			if tag, ok := jsonTags[recordName(branch)]; ok && len(s) > 2 {
				addNested(out, path+"."+tag.value, branch)
			} else {
				addNested(out, path, branch)
			}
		}
	case map[string]any:
		switch s["type"] {
		case "array":
			addNested(out, path+"[]", s["items"])
		case "record":
			addFields(out, path+".", s)
		}
	}
}

func recordName(schema any) string {
	record, _ := schema.(map[string]any)
	name, _ := record["name"].(string)
	return name
}

func isPart(union []any) bool { return recordName(union[0]) == "Text" }

func typeName(schema any) string {
	switch s := schema.(type) {
	case string:
		return s
	case []any:
		switch {
		case s[0] == "null":
			return typeName(s[1]) + " or null"
		case isPart(s):
			return "part"
		}
		var names []string
		for _, branch := range s {
			names = append(names, recordName(branch))
		}
		return strings.Join(names, ", ")
	case map[string]any:
		switch {
		case s["type"] == "array":
			return "array of " + typeName(s["items"])
		case s["logicalType"] != nil:
			return fmt.Sprint(s["logicalType"])
		}
	}
	return "record " + recordName(schema)
}

func setTable(*testing.T) string {
	out := newTable("set", "members")
	for _, s := range []struct {
		name    string
		members event.Set
	}{
		{"`actor_type`", event.ActorTypes}, {"`trust`", event.Trusts}, {"`effect`", event.Effects},
		{"`resolution` of `approval.resolved`", event.Resolutions}, {"`action` of `input.received`", event.InputActions},
		{"`method` of `context.compacted`", event.CompactionMethods}, {"`reason` of `run.completed`", event.CompletionReasons},
		{"`annotator_kind` of `verdict.recorded`", event.AnnotatorKinds},
	} {
		out.row(s.name, code(strings.Join(s.members, "`, `")))
	}
	return out.String()
}

func schemaTable(*testing.T) string {
	out := newTable("full name", "fingerprint, as it stands in the value (hex)")
	for of := range orderedTypes() {
		for v := 1; v <= Latest(of); v++ {
			fingerprint, _ := Fingerprint(of, v)
			out.row(code(FullName(of, v)), code(fmt.Sprintf("%x", single(fingerprint, nil)[2:])))
		}
	}
	return out.String()
}

// keyParts are the ids of the contract's keys, in the order of a key.
var keyParts = [][]string{
	{"s-1", "1", "0190a000-0000-7000-8000-000000000001"},
	{"team/7 50%", "12", "0190a000-0000-7000-8000-00000000000c"},
	{"grüße-😀", "9223372036854775807", "0190a000-0000-7000-8000-0000000000ff"},
	{"s-1", "0", "closed"},
	{"s-1", "0", "run", "r/1"},
	{"s-1", "0", "withdrawn", "0190a000-0000-7000-8000-000000000001"},
	{"default", "alt-text", "sys_file:2"},
	{"default", "a/b", "100%"},
}

func keyVectors(*testing.T) string {
	out := newTable("parts", "key")
	for _, parts := range keyParts {
		out.row(code(strings.Join(parts, "` `")), code(JoinKey(parts...)))
	}
	return out.String()
}

var partitionKeys = []string{"s-1", "s-2", "abc", "default/alt-text/sys_file:2", "default/a%2Fb/100%25", "grüße-😀",
	"0190a000-0000-7000-8000-000000000001"}

func partitionVectors(*testing.T) string {
	out := newTable("partition key", "murmur2 (hex)", "of 4", "of 48")
	for _, key := range partitionKeys {
		out.row(code(key), code(fmt.Sprintf("%08x", murmur2(key))), fmt.Sprint(Partition(key, 4)), fmt.Sprint(Partition(key, 48)))
	}
	return out.String()
}

func valueVectors(t *testing.T) string {
	stored, err := StoredOf(event.Event{
		Envelope: event.Envelope{
			EnvelopeVersion: 1, EventID: "0190a000-0000-7000-8000-000000000002", TenantID: event.DefaultTenant, SessionID: "s-1",
			RunID: event.Some("r-1"), Seq: 2, PrevEventID: event.Some("0190a000-0000-7000-8000-000000000001"),
			OccurredAt: event.Some(time.UnixMicro(1_790_676_002_123_456)), ActorType: "runtime", PartitionKey: "s-1",
		},
		Payload: event.RunCompleted{Reason: "completed"},
	})
	if err != nil {
		t.Fatal(err)
	}
	line, err := stored.AppendJSON(nil)
	if err != nil {
		t.Fatal(err)
	}
	record, err := stored.AppendBinary(nil)
	if err != nil {
		t.Fatal(err)
	}
	fingerprint, _ := Fingerprint(stored.Type, stored.PayloadVersion)
	d := NewDecoder(func(context.Context, uint32) (string, error) { return stored.schema.composed, nil })
	for _, value := range [][]byte{single(fingerprint, record), confluent(7, record)} {
		if _, err := d.Decode(t.Context(), value); err != nil {
			t.Fatal(err)
		}
	}
	return fmt.Sprintf("The event, in JSON:\n\n```json\n%s\n```\n\nIts value in single-object encoding (hex):\n\n```\n%s\n```\n\n"+
		"Its value in the Confluent wire format, where the registry gave the schema the id 7 (hex):\n\n```\n%s\n```\n",
		line, wrapped(single(fingerprint, record)), wrapped(confluent(7, record)))
}

// wrapped writes 32 bytes a line.
func wrapped(b []byte) string {
	var lines []string
	for chunk := range slices.Chunk(b, 32) {
		lines = append(lines, fmt.Sprintf("%x", chunk))
	}
	return strings.Join(lines, "\n")
}

func limitTable(*testing.T) string {
	out := newTable("what", "limit")
	for _, l := range []struct {
		what  string
		limit int
		unit  string
	}{
		{"array items in a record, in all its arrays together", MaxItems, "items"},
		{"the items that one Avro array block announces", MaxItems, "items"},
		{"a record as it goes to the broker (`max.message.bytes`); the writer keeps 64 KiB below", MaxLine, "bytes"},
		{"an event in its JSON form", MaxLine, "bytes"},
		{"`session_id`", event.MaxSessionID, "bytes of UTF-8, from 1, no control characters"},
		{"every other id, name and code that must be there", event.MaxID, "bytes of UTF-8, from 1"},
		{"`partition_key`", event.MaxPartitionKey, "bytes of UTF-8, from 1"},
		{"extensions of an envelope", event.MaxExt, ""},
		{"the value of one extension", event.MaxExtValue, "bytes"},
		{"the key of a record on the events topic", MaxKey, "bytes"},
	} {
		out.row(l.what, strings.TrimSpace(thousands(l.limit)+" "+l.unit))
	}
	return out.String()
}

func thousands(n int) string {
	if n < 1000 {
		return strconv.Itoa(n)
	}
	return fmt.Sprintf("%s,%03d", thousands(n/1000), n%1000)
}
