package schemas

import (
	"strings"
	"testing"
)

func TestSchemasThatNoReaderCouldBoundAreRefused(t *testing.T) {
	payload := func(fields string) string {
		return `{"type":"record","name":"Payload","namespace":"tooltape.x","fields":[` + fields + `]}`
	}
	for _, c := range []struct{ about, schema, says string }{
		{"recursion", payload(`{"name":"a","type":["null","Payload"]}`), "contains itself"},
		{"recursion by the full name", payload(`{"name":"a","type":["null","tooltape.x.Payload"]}`), "contains itself"},
		{"an array of null", payload(`{"name":"a","type":{"type":"array","items":"null"}}`), "must take bytes"},
		{"an array of empty records", payload(`{"name":"a","type":{"type":"array","items":{"type":"record","name":"E","fields":[]}}}`), "must take bytes"},
		{"a map", payload(`{"name":"a","type":{"type":"map","values":"string"}}`), "not among those"},
		{"an enum", payload(`{"name":"a","type":{"type":"enum","name":"E","symbols":["A"]}}`), "not among those"},
		{"bytes", payload(`{"name":"a","type":"bytes"}`), "not defined"},
		{"one name for two records", payload(`{"name":"a","type":{"type":"record","name":"E","fields":[{"name":"x","type":"int"}]}},{"name":"b","type":{"type":"record","name":"E","fields":[{"name":"x","type":"string"}]}}`), "defined twice"},
		{"a union that JSON cannot tell apart", payload(`{"name":"a","type":["int","string"]}`), "tells no other branches apart"},
		{"a name that is not defined", payload(`{"name":"a","type":"Other"}`), "not defined"},
		{"no JSON", `{`, "JSON"},
		{"no schema", `7`, "not a schema"},
	} {
		if _, err := parseTree(c.schema); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: got %v, and it should say: %s", c.about, err, c.says)
		}
	}
}

func TestArraysOfEmptyRecordsWithinRecordsAreStillBounded(t *testing.T) {
	_, err := parseTree(`{"type":"record","name":"P","namespace":"x","fields":[{"name":"a","type":{"type":"array","items":
		{"type":"record","name":"E","fields":[{"name":"e","type":{"type":"record","name":"F","fields":[]}}]}}}]}`)
	if err == nil || !strings.Contains(err.Error(), "must take bytes") {
		t.Errorf("got %v", err)
	}
}
