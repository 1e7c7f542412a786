package openaichat

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/tooltape/tooltape/producer/importer"
	"github.com/tooltape/tooltape/producer/importer/internal/golden"
	"github.com/tooltape/tooltape/schemas/event"
)

func plan(t *testing.T, s importer.Session, tail importer.Tail) []event.Event {
	t.Helper()
	events, err := importer.Plan(s, tail)
	if err != nil {
		t.Fatal(err)
	}
	return events
}

func TestReadGolden(t *testing.T) {
	f, err := os.Open("testdata/parking.json")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	source, err := Read(f, "testdata/parking.json", Options{})
	if err != nil {
		t.Fatal(err)
	}
	if len(source.Sessions) != 1 || source.Sessions[0].ID != "parking" || source.Skipped[`key "model" beside the messages`] != 1 {
		t.Fatalf("found %d sessions, skipped %v", len(source.Sessions), source.Skipped)
	}
	golden.Compare(t, "testdata/parking.events", golden.Events(plan(t, source.Sessions[0], importer.Tail{})))
}

// A session's messages and sessions are found wherever the format allows them, and called what the documentation says.
func TestReadNamesSessions(t *testing.T) {
	const m = `{"role":"user","content":"hi"}`
	for name, c := range map[string]struct {
		file, path, id, text string
		want                 []string
	}{
		"array":           {"a/chat.json", "", "", `[` + m + `]`, []string{"chat"}},
		"object":          {"chat.json", "", "", `{"messages":[` + m + `],"tools":null}`, []string{"chat"}},
		"jsonl":           {"chat.jsonl", "", "", `[` + m + "]\n\n" + `{"messages":[` + m + `]}` + "\n", []string{"chat-0", "chat-1"}},
		"jsonl of one":    {"chat.jsonl", "", "", `[` + m + `]`, []string{"chat-0"}},
		"jsonl unnamed":   {"-", "", "", `[` + m + `] [` + m + `]`, []string{"stdin-0", "stdin-1"}},
		"container":       {"chat.json", "[].traj", "", `[{"id":1,"traj":[` + m + `]},{"traj":[` + m + `],"x":[{}]}]`, []string{"chat-0", "chat-1"}},
		"container of 1":  {"chat.json", "[].traj", "", `[{"traj":[` + m + `]}]`, []string{"chat-0"}},
		"key":             {"chat.json", "request.body", "", `{"response":{},"request":{"body":{"messages":[` + m + `]}}}`, []string{"chat"}},
		"nested":          {"chat.json", "a[].b[][]", "", `{"a":[{"b":[[[` + m + `]],[[` + m + `]]]}]}`, []string{"chat-0", "chat-1"}},
		"given":           {"chat.json", "", "mine", `[` + m + `]`, []string{"mine"}},
		"given and many":  {"chat.json", "[]", "mine", `[[` + m + `]]`, []string{"mine-0"}},
		"dot file":        {".chat", "", "", `[` + m + `]`, []string{".chat"}},
		"control in name": {"a\nb.json", "", "", `[` + m + `]`, []string{"a_b"}},
		"long name":       {strings.Repeat("ü", 150) + ".json", "", "", `[` + m + `]`, []string{strings.Repeat("ü", 90)}},
	} {
		t.Run(name, func(t *testing.T) {
			source, err := Read(strings.NewReader(c.text), c.file, Options{Path: c.path, SessionID: c.id})
			var ids []string
			for _, s := range source.Sessions {
				ids = append(ids, s.ID)
			}
			if err != nil || !slices.Equal(ids, c.want) {
				t.Errorf("sessions %q (%v), want %q", ids, err, c.want)
			}
		})
	}
}

// What is wrong is said with file, line and place, and what is good before it is kept: so many entries in all.
func TestReadRefuses(t *testing.T) {
	const u = `{"role":"user","content":"hi"}`
	call := func(id string) string {
		return `{"role":"assistant","tool_calls":[{"id":"` + id + `","type":"function","function":{"name":"f","arguments":"{}"}}]}`
	}
	for name, c := range map[string]struct {
		path, text, want string
		kept             int
	}{
		"empty":              {"", "", "f.json: the file is empty", 0},
		"blank":              {"", "\n \n", "f.json: the file is empty", 0},
		"no JSON":            {"", "hello", "f.json: line 1: it is not JSON", 0},
		"a word":             {"", `"hi"`, "a session is an array of messages or an object with messages, and here is a string", 0},
		"empty array":        {"", `[]`, "the session has no messages", 0},
		"no messages":        {"", `{"choices":[]}`, "there is no key messages", 0},
		"messages no array":  {"", `{"messages":{}}`, "line 1: messages: messages are an array, and here is an object", 0},
		"cut off":            {"", "[" + u + ",\n" + u + ",\n{\"role\":", "line 3: [2]: it is cut off in the middle", 2},
		"cut after comma":    {"", "[" + u + ",", "it is cut off in the middle", 1},
		"cut object":         {"", `{"messages":[` + u + `,`, "it is cut off in the middle", 0},
		"cut after tools":    {"", `{"tools":[],"messages":[` + u + `,`, "it is cut off in the middle", 2},
		"bad second line":    {"", "[" + u + "]\n[" + u + "}", "line 2: [1]: it is not JSON", 2},
		"duplicate key":      {"", `[{"role":"user","role":"user","content":""}]`, "a key stands twice", 0},
		"bad UTF-8":          {"", "[{\"role\":\"user\",\"content\":\"\xff\"}]", "invalid UTF-8", 0},
		"lone surrogate":     {"", `[{"role":"user","content":"\ud800"}]`, "line 1: [0]: it is not JSON", 0},
		"deep":               {"", `[` + strings.Repeat("[", 20000), "depth", 0},
		"message no object":  {"", "[" + u + ",\n7]", "line 2: [1]: a message is an object: it is a number, not an object", 1},
		"container, no path": {"", `[{"traj":[` + u + `]}]`, "role is missing; if the messages are deeper in the file, say where with a path such as [].traj", 0},
		"unknown role":       {"", `[{"role":"narrator","content":""}]`, `the role "narrator" is not known`, 0},
		"legacy result":      {"", `[{"role":"function","content":""}]`, "the role function is not supported", 0},
		"legacy call":        {"", `[{"role":"assistant","content":null,"function_call":{"name":"f"}}]`, "function_call (an object) is not supported", 0},
		"legacy functions":   {"", `{"functions":[{}],"messages":[]}`, "legacy functions are not supported", 0},
		"no content":         {"", `[{"role":"user"}]`, "content is missing", 0},
		"content a number":   {"", `[{"role":"user","content":3}]`, "content: it is a number, not a string or an array of parts", 0},
		"unknown part":       {"", `[{"role":"user","content":[{"type":"input_audio","input_audio":{}}]}]`, `content[0]: a part of type "input_audio" is not supported`, 0},
		"image without url":  {"", `[{"role":"user","content":[{"type":"image_url","image_url":{}}]}]`, "content[0]: image_url: url is missing", 0},
		"nothing said":       {"", `[{"role":"assistant","content":null}]`, "neither content nor tool calls", 0},
		"call without id":    {"", `[{"role":"assistant","tool_calls":[{"type":"function","function":{"name":"f","arguments":""}}]}]`, "tool_calls[0]: id is missing", 0},
		"custom call":        {"", `[{"role":"assistant","tool_calls":[{"id":"a","type":"custom","custom":{}}]}]`, `its type is "custom"`, 0},
		"arguments a number": {"", `[{"role":"assistant","tool_calls":[{"id":"a","function":{"name":"f","arguments":7}}]}]`, "arguments: it is a number", 0},
		"unknown in call":    {"", `[{"role":"assistant","tool_calls":[{"id":"a","function":{"name":"f","arguments":"","x":1}}]}]`, `keys that are not known: {"x":1}`, 0},
		"result of no call":  {"", "[" + call("a") + "," + `{"role":"tool","tool_call_id":"b","content":""}]`, `[1]: it is the result of call "b", and no call with that id is open`, 1},
		"result twice":       {"", "[" + call("a") + strings.Repeat(`,{"role":"tool","tool_call_id":"a","content":""}`, 2) + "]", `[2]: it is the result of call "a"`, 2},
		"result without id":  {"", "[" + call("a") + `,{"role":"tool","content":""}]`, "tool_call_id is missing", 1},
		"result of another":  {"", "[" + call("a") + `,{"role":"tool","tool_call_id":"a","name":"g","content":""}]`, `said to be the result of "g", and call "a" is of "f"`, 1},
		"tools no array":     {"", `{"tools":{},"messages":[` + u + `]}`, "line 1: tools: it is an object, not an array", 0},
		"tool without name":  {"", `{"tools":[{"type":"function","function":{}}],"messages":[` + u + `]}`, "tool 0: name is missing", 0},
		"path: no array":     {"[].traj", `{}`, "the path wants an array, and here is an object", 0},
		"path: no key":       {"[].traj", `[{"traj":[` + u + `]},{}]`, `line 1: [1]: there is no key "traj"`, 1},
		"path: empty array":  {"[]", `[]`, "there is no session in it", 0},
		"path: not one":      {"[0].x", `[]`, "is not keys and []", 0},
		"path: open bracket": {"a[", `[]`, "is not keys and []", 0},
		"path: empty key":    {"a..b", `[]`, "is not keys and []", 0},
		"id too long":        {"", `[` + u + `]`, "the session id has 201 bytes", 0},
	} {
		t.Run(name, func(t *testing.T) {
			opts := Options{Path: c.path}
			if name == "id too long" {
				opts.SessionID = strings.Repeat("x", 201)
			}
			source, err := Read(strings.NewReader(c.text), "f.json", opts)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want one with %q", err, c.want)
			}
			kept := 0
			for _, s := range source.Sessions {
				kept += len(s.Entries)
			}
			if kept != c.kept {
				t.Errorf("%d entries kept, want %d", kept, c.kept)
			}
		})
	}
}

// A bad line among many stops there; when it is mended, the sessions before it have nothing new.
func TestReadOneBadLine(t *testing.T) {
	line := func(i int) string { return fmt.Sprintf(`[{"role":"user","content":"%d"}]`+"\n", i) }
	var text strings.Builder
	for i := range 10000 {
		text.WriteString(line(i))
	}
	bad := strings.Replace(text.String(), line(6999), "[{\"role\":\"user\",}]\n", 1)
	source, err := Read(strings.NewReader(bad), "f.jsonl", Options{})
	if err == nil || !strings.Contains(err.Error(), "f.jsonl: line 7000: ") || len(source.Sessions) != 6999 {
		t.Errorf("%d sessions, %v", len(source.Sessions), err)
	}
	mended, err := Read(strings.NewReader(text.String()), "f.jsonl", Options{})
	if err != nil || len(mended.Sessions) != 10000 {
		t.Fatalf("%d sessions, %v", len(mended.Sessions), err)
	}
	if n := len(plan(t, mended.Sessions[5], tailOf(plan(t, source.Sessions[5], importer.Tail{})))); n != 0 {
		t.Errorf("%d events again", n)
	}
}

func tailOf(events []event.Event) importer.Tail {
	last := events[len(events)-1]
	return importer.Tail{Seq: int64(len(events)), EventID: last.EventID, RunID: last.RunID}
}

// A file that grew adds what is new; written differently it is the same; with an earlier message changed it is another.
func TestReadGrownAndChanged(t *testing.T) {
	read := func(text string) importer.Session {
		source, err := Read(strings.NewReader(text), "f.json", Options{})
		if err != nil {
			t.Fatal(err)
		}
		return source.Sessions[0]
	}
	first := plan(t, read(`[{"role":"user","content":"é"}]`), importer.Tail{})
	grown := plan(t, read(`[ {"content":"\u00e9", "role":"user"}, {"role":"assistant","content":"b"}]`), tailOf(first))
	if len(grown) != 3 || grown[0].Type != event.RunStartedType || grown[1].Type != event.ModelResponseCompletedType {
		t.Errorf("grown: %s", golden.Events(grown))
	}
	if _, err := importer.Plan(read(`[{"role":"user","content":"e"},{"role":"assistant","content":"b"}]`), tailOf(first)); err == nil {
		t.Error("a changed file passed for the same session")
	}
}

// The 200 sessions of tau-bench: each call has its result, paired by order where ids repeat.
func TestReadTauBench(t *testing.T) {
	source, err := Read(golden.Shared(t, "tau-bench/gpt-4o-airline.json"), "gpt-4o-airline.json", Options{Path: "[].traj"})
	if err != nil {
		t.Fatal(err)
	}
	calls, results, entries := 0, 0, 0
	for _, s := range source.Sessions {
		var open []event.ToolCall
		entries += len(s.Entries)
		for _, e := range plan(t, s, importer.Tail{}) {
			if p, ok := e.Payload.(event.ModelResponseCompleted); ok {
				for _, item := range p.Items {
					if call, ok := item.(event.ToolCall); ok {
						open, calls = append(open, call), calls+1
					}
				}
			}
			if r, ok := event.ToolResultOf(e.Payload); ok {
				results++
				if len(open) != 1 || open[0].CallID != r.CallID || open[0].Name != r.Name || r.ResultItem.Item.IsError.OK {
					t.Errorf("%s: result %+v for open calls %+v", s.ID, r, open)
				}
				open = nil
			}
		}
		if len(open) > 0 {
			t.Errorf("%s: open calls %+v", s.ID, open)
		}
	}
	if len(source.Sessions) != 200 || calls != 1164 || results != 1164 || entries != 5308 {
		t.Errorf("%d sessions, %d calls, %d results, %d entries", len(source.Sessions), calls, results, entries)
	}
	if id := source.Sessions[199].ID; id != "gpt-4o-airline-199" {
		t.Errorf("the last session is called %s", id)
	}
}

// A value that never ends is refused before it fills the memory.
func TestReadBounds(t *testing.T) {
	if testing.Short() {
		t.Skip("it reads 64 MiB")
	}
	_, err := Read(io.MultiReader(strings.NewReader(`[{"role":"user","content":"`), endless{}), "f.json", Options{})
	if err == nil || !strings.Contains(err.Error(), "a value is longer than 64 MiB") {
		t.Errorf("error %v", err)
	}
}

// endless is text without an end.
type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}

func FuzzRead(f *testing.F) {
	parking, err := os.ReadFile("testdata/parking.json")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(parking, "")
	f.Add([]byte(`[{"traj":[{"role":"user","content":"hi"}]}]`), "[].traj")
	f.Add([]byte("[{\"role\":\"user\",\"content\":\"hi\"}]\n[]"), "")
	f.Fuzz(func(t *testing.T, text []byte, path string) {
		source, err := Read(strings.NewReader(string(text)), "f.json", Options{Path: path})
		if err == nil && len(source.Sessions) == 0 {
			t.Error("neither sessions nor an error")
		}
		for _, s := range source.Sessions {
			plan(t, s, importer.Tail{})
		}
	})
}
