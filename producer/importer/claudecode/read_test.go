package claudecode

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/tooltape/tooltape/producer/importer"
	"github.com/tooltape/tooltape/producer/importer/internal/golden"
	"github.com/tooltape/tooltape/schemas/event"
)

func plan(t *testing.T, s importer.Session, recorded []event.Event) []event.Event {
	t.Helper()
	tail := importer.Tail{}
	if n := len(recorded); n > 0 {
		tail = importer.Tail{Seq: int64(n), EventID: recorded[n-1].EventID, RunID: recorded[n-1].RunID}
	}
	events, err := importer.Plan(s, tail)
	if err != nil {
		t.Fatal(err)
	}
	return events
}

func greenhouse(t testing.TB) []byte {
	text, err := os.ReadFile("testdata/greenhouse.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestReadGolden(t *testing.T) {
	source, err := Read(bytes.NewReader(greenhouse(t)), "greenhouse.jsonl", Options{})
	if err != nil {
		t.Fatal(err)
	}
	if len(source.Sessions) != 1 || source.Sessions[0].ID != "greenhouse" {
		t.Fatalf("found %d sessions", len(source.Sessions))
	}
	if got, want := fmt.Sprint(source.Skipped), "map[file-history-snapshot line:1 line for the transcript's reader only:1 line of a subagent:1 system line:1]"; got != want {
		t.Errorf("skipped %s, want %s", got, want)
	}
	golden.Compare(t, "testdata/greenhouse.events", golden.Events(plan(t, source.Sessions[0], nil)))
}

// items is what the session's model did and was shown, whatever the runs and events that it is recorded in; and its tokens.
func items(events []event.Event) (did, shown []string, output int64) {
	for _, e := range events {
		switch p := e.Payload.(type) {
		case event.SessionCreated, event.RunStarted, event.RunCompleted:
		case event.ContextCompacted:
			shown = append(shown, fmt.Sprint(p.Content))
		case event.ModelResponseCompleted:
			for _, item := range p.Items {
				did = append(did, fmt.Sprint(item))
			}
			output += p.Usage.Value.OutputTokens
		case event.ModelResponseFailed:
			p.Round = 0 // rounds are counted in runs, and where a run begins depends on the cut
			shown = append(shown, fmt.Sprint(p))
		default:
			shown = append(shown, fmt.Sprint(p))
		}
	}
	return did, shown, output
}

// A transcript that is imported while it is written, cut after any line or inside one, ends up with the same content as one that
// is imported whole, also when the first import broke off anywhere.
func TestReadGrowing(t *testing.T) {
	checkGrowing(t, greenhouse(t), 1)
}

func checkGrowing(t *testing.T, text []byte, step int) {
	whole, err := Read(bytes.NewReader(text), "f", Options{})
	if err != nil {
		t.Fatal(err)
	}
	wantDid, wantShown, wantOutput := items(plan(t, whole.Sessions[0], nil))
	lines := bytes.SplitAfter(text, []byte("\n"))
	for cut := 2; cut < len(lines); cut += step {
		head := bytes.Join(lines[:cut], nil)
		head = append(head, lines[cut][:len(lines[cut])/2]...)
		part, err := Read(bytes.NewReader(head), "f", Options{})
		if len(lines[cut]) > 1 && err == nil {
			t.Fatalf("a line that is cut off after line %d passed", cut)
		}
		first := plan(t, part.Sessions[0], nil)
		for crash := 1; crash <= len(first); crash += step {
			events := append([]event.Event{}, first[:crash]...)
			events = append(events, plan(t, whole.Sessions[0], events)...)
			did, shown, output := items(events)
			if fmt.Sprint(did) != fmt.Sprint(wantDid) || fmt.Sprint(shown) != fmt.Sprint(wantShown) || output != wantOutput {
				t.Fatalf("cut after line %d, broken off after event %d:\n%s", cut, crash, golden.Events(events))
			}
			if round := firstRounds(events); round != "" {
				t.Fatalf("cut after line %d, broken off after event %d: %s", cut, crash, round)
			}
			if again := plan(t, whole.Sessions[0], events); len(again) > 0 {
				t.Fatalf("cut after line %d, broken off after event %d: %d events again", cut, crash, len(again))
			}
		}
	}
}

// firstRounds says of which run the rounds do not begin at 1.
func firstRounds(events []event.Event) string {
	seen := map[string]bool{}
	for _, e := range events {
		round := 0
		switch p := e.Payload.(type) {
		case event.ModelResponseCompleted:
			round = p.Round
		case event.ModelResponseFailed:
			round = p.Round
		}
		if round > 1 && !seen[e.RunID.Value] {
			return fmt.Sprintf("run %s begins with round %d", e.RunID.Value, round)
		}
		seen[e.RunID.Value] = seen[e.RunID.Value] || round == 1
	}
	return ""
}

const (
	user   = `{"type":"user","uuid":"%s","parentUuid":"%s","sessionId":"s","message":{"role":"user","content":"hi"}}` + "\n"
	reply  = `{"type":"assistant","uuid":"%s","parentUuid":"%s","sessionId":"s","message":{"id":"m%[1]s","role":"assistant","content":[{"type":"text","text":"ho"}]}}` + "\n"
	call   = `{"type":"assistant","uuid":"c","sessionId":"s","message":{"id":"mc","role":"assistant","content":[{"type":"tool_use","id":"t","name":"Look","input":{}}]}}` + "\n"
	result = `{"type":"user","uuid":"r","sessionId":"s"%s,"message":{"role":"user","content":[{"type":"tool_result","tool_use_id":"t"%s}]}}` + "\n"
)

func TestReadResults(t *testing.T) {
	for name, c := range map[string]struct {
		line, block string
		want        event.Type
		reason      string
	}{
		"no flag":          {``, `,"content":"x"`, event.ToolCallCompletedType, ""},
		"no content":       {``, ``, event.ToolCallCompletedType, ""},
		"no error":         {``, `,"is_error":false,"content":"x"`, event.ToolCallCompletedType, ""},
		"error":            {``, `,"is_error":true,"content":"x"`, event.ToolCallFailedType, ""},
		"a refusing text":  {``, `,"is_error":true,"content":"The user doesn't want to proceed with this tool use."`, event.ToolCallFailedType, ""},
		"denied":           {`,"toolDenialKind":"automode-blocked"`, `,"is_error":true,"content":"x"`, event.ToolCallDeniedType, "automode-blocked"},
		"denied, older":    {`,"toolUseResult":"User rejected tool use"`, `,"is_error":true,"content":"x"`, event.ToolCallDeniedType, "user-rejected"},
		"denied by rule":   {`,"tool_result_meta":[{"id":"t","non_execution_kind":"permission-rule"}]`, `,"is_error":true,"content":"x"`, event.ToolCallDeniedType, "permission-rule"},
		"interrupted":      {`,"tool_result_meta":[{"id":"t","non_execution_kind":"interrupted"}]`, `,"is_error":true,"content":"x"`, event.ToolCallCancelledType, "interrupted"},
		"another was":      {`,"tool_result_meta":[{"id":"u","non_execution_kind":"interrupted"}]`, `,"is_error":true,"content":"x"`, event.ToolCallFailedType, ""},
		"rejected by text": {`,"toolUseResult":"Error: User rejected tool use"`, `,"is_error":true,"content":"x"`, event.ToolCallFailedType, ""},
	} {
		t.Run(name, func(t *testing.T) {
			source, err := Read(strings.NewReader(call+fmt.Sprintf(result, c.line, c.block)), "f", Options{SessionID: "mine"})
			if err != nil {
				t.Fatal(err)
			}
			if id := source.Sessions[0].ID; id != "mine" {
				t.Errorf("the session is called %s", id)
			}
			events := plan(t, source.Sessions[0], nil)
			r, _ := event.ToolResultOf(events[3].Payload)
			if events[3].Type != c.want || r.ReasonCode.Value != c.reason || r.Name != "Look" || r.ResultItem.State != event.Present {
				t.Errorf("%s", golden.Events(events[3:4]))
			}
		})
	}
}

// What is wrong is said with file and line, and what is good before it is kept: so many entries in all.
func TestReadRefuses(t *testing.T) {
	hi := fmt.Sprintf(user, "1", "")
	res := func(line, block string) string { return fmt.Sprintf(result, line, block) }
	for name, c := range map[string]struct {
		text, want string
		kept       int
	}{
		"empty":               {"", "f.jsonl: the file is empty", 0},
		"blank":               {"\n\n", "f.jsonl: there is no user or assistant line", 0},
		"no JSON":             {"hello", "f.jsonl: line 1: the line is not good: it is not JSON", 0},
		"cut off":             {hi + `{"type":"user","uuid":"2`, "f.jsonl: line 2: the line is not good: it is cut off in the middle", 1},
		"two values":          {hi + `{} {}`, "line 2: the line is not good: it is followed by something else", 1},
		"no object":           {hi + "\n7", "line 3: it is a number, not an object", 1},
		"duplicate key":       {hi + `{"type":"user","type":"user"}`, "a key stands twice", 1},
		"bad UTF-8":           {hi + "{\"type\":\"\xff\"}", "invalid UTF-8", 1},
		"another format":      {`{"role":"user","content":"hi"}`, "it is no line of Claude Code: type is missing", 0},
		"no conversation":     {`{"type":"response_item","payload":{}}`, "there is no user or assistant line", 0},
		"only a subagent":     {strings.Replace(hi, `"uuid"`, `"isSidechain":true,"uuid"`, 1), "there is no user or assistant line of a main conversation", 0},
		"no uuid":             {`{"type":"user","sessionId":"s","message":{}}`, "uuid is missing", 0},
		"no session":          {`{"type":"user","uuid":"1","message":{}}`, "sessionId is missing", 0},
		"uuid twice":          {hi + hi, "line 2: its uuid is that of line 1", 1},
		"bad session id":      {strings.Replace(hi, `"s"`, `"a\nb"`, 1), "control character U+000A", 0},
		"bad time":            {strings.Replace(hi, `"uuid"`, `"timestamp":"today","uuid"`, 1), `timestamp: "today" is not a time`, 0},
		"flag no boolean":     {strings.Replace(hi, `"uuid"`, `"isMeta":1,"uuid"`, 1), "isMeta: it is a number, not true or false", 0},
		"no message":          {`{"type":"user","uuid":"1","sessionId":"s"}`, "message is missing", 0},
		"another role":        {strings.Replace(hi, `"role":"user"`, `"role":"assistant"`, 1), `the role is "assistant" in a line of type user`, 0},
		"no content":          {strings.Replace(hi, `"content":"hi"`, `"x":1`, 1), "content is missing", 0},
		"content a number":    {strings.Replace(hi, `"hi"`, `1`, 1), "content: it is a number, not an array", 0},
		"block without type":  {strings.Replace(hi, `"hi"`, `[{}]`, 1), "content[0]: type is missing", 0},
		"text without text":   {strings.Replace(hi, `"hi"`, `[{"type":"text"}]`, 1), "content[0]: text is missing", 0},
		"no message id":       {strings.Replace(fmt.Sprintf(reply, "1", ""), `"id"`, `"idd"`, 1), "message: id is missing", 0},
		"call without id":     {strings.Replace(call, `"id":"t"`, `"x":1`, 1), "message: content[0]: id is missing", 0},
		"call without input":  {strings.Replace(call, `"input"`, `"in"`, 1), "message: content[0]: input is missing", 0},
		"bad usage":           {strings.Replace(call, `"role"`, `"usage":{"input_tokens":-1},"role"`, 1), "usage: input_tokens: -1 is not a count", 0},
		"result of no call":   {hi + res("", ""), `line 2: content[0]: it is the result of call "t", and no call with that id is open`, 1},
		"result twice":        {call + res("", "") + strings.Replace(res("", ""), `"r"`, `"r2"`, 1), `line 3: content[0]: it is the result of call "t"`, 2},
		"denied and no error": {call + res(`,"tool_result_meta":[{"id":"t","non_execution_kind":"x"}]`, `,"is_error":false`), "said not to have been run (x), and its result not to be an error", 1},
		"partial compaction": {hi + `{"type":"system","sessionId":"s","compactMetadata":{"preservedSegment":{"headUuid":"1"}}}` + "\n" +
			strings.Replace(fmt.Sprintf(user, "2", ""), `"uuid"`, `"isCompactSummary":true,"uuid"`, 1), "line 3: the compaction keeps some of the earlier messages", 1},
		"went back": {hi + fmt.Sprintf(reply, "2", "1") + fmt.Sprintf(user, "3", "2") + fmt.Sprintf(reply, "4", "3") + fmt.Sprintf(user, "5", "2"),
			"line 5: the user went back to the message of line 2", 4},
	} {
		t.Run(name, func(t *testing.T) {
			source, err := Read(strings.NewReader(c.text), "f.jsonl", Options{})
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

func TestReadSeveralSessions(t *testing.T) {
	text := fmt.Sprintf(user, "1", "") + strings.ReplaceAll(fmt.Sprintf(user, "1", ""), `"s"`, `"other"`) + fmt.Sprintf(reply, "2", "1")
	source, err := Read(strings.NewReader(text), "f", Options{})
	if err != nil || len(source.Sessions) != 2 || source.Sessions[0].ID != "s" || len(source.Sessions[0].Entries) != 2 || source.Sessions[1].ID != "other" {
		t.Errorf("sessions %+v, %v", source.Sessions, err)
	}
	if _, err := Read(strings.NewReader(text), "f", Options{SessionID: "mine"}); err == nil || !strings.Contains(err.Error(), "2 sessions, which cannot all be called mine") {
		t.Errorf("one id for two sessions: %v", err)
	}
}

// The real session: its calls and results, and the one call that has none, at the end of the last response.
func TestReadRealSession(t *testing.T) {
	text, err := io.ReadAll(golden.Shared(t, "claude-code/main.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	source, err := Read(bytes.NewReader(text), "main.jsonl", Options{})
	if err != nil || len(source.Sessions) != 1 {
		t.Fatalf("%d sessions, %v", len(source.Sessions), err)
	}
	counts := map[event.Type]int{}
	thinking, open := 0, map[string]bool{}
	calls := 0
	for _, e := range plan(t, source.Sessions[0], nil) {
		counts[e.Type]++
		if p, ok := e.Payload.(event.ModelResponseCompleted); ok {
			for _, item := range p.Items {
				switch item := item.(type) {
				case event.ToolCall:
					calls++
					open[item.CallID] = true
				case event.ProviderItem:
					thinking++
				}
			}
		}
		if r, ok := event.ToolResultOf(e.Payload); ok {
			delete(open, r.CallID)
		}
	}
	if calls != 152 || counts[event.ToolCallCompletedType] != 149 || counts[event.ToolCallFailedType] != 2 || len(open) != 1 {
		t.Errorf("%d calls, %v, open %v", calls, counts, open)
	}
	if counts[event.ModelResponseCompletedType] != 100 || thinking != 100 || counts[event.UserMessageCreatedType] != 19 || len(source.Sessions[0].Entries) != 496 {
		t.Errorf("%v, %d thinking blocks, %d entries", counts, thinking, len(source.Sessions[0].Entries))
	}
	if got, want := fmt.Sprint(source.Skipped), "map[file-history-snapshot line:24 system line:16]"; got != want {
		t.Errorf("skipped %s, want %s", got, want)
	}
	checkGrowing(t, text, 83)
}

// A value that never ends is refused before it fills the memory.
func TestReadBounds(t *testing.T) {
	if testing.Short() {
		t.Skip("it reads 64 MiB")
	}
	_, err := Read(io.MultiReader(strings.NewReader(`{"type":"user","uuid":"`), endless{}), "f.json", Options{})
	if err == nil || !strings.Contains(err.Error(), "line 1: the line is longer than 64 MiB") {
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
	f.Add(greenhouse(f))
	f.Add([]byte(call + fmt.Sprintf(result, "", "")))
	f.Fuzz(func(t *testing.T, text []byte) {
		source, err := Read(bytes.NewReader(text), "f", Options{})
		if err == nil && len(source.Sessions) == 0 {
			t.Error("neither sessions nor an error")
		}
		for _, s := range source.Sessions {
			plan(t, s, nil)
		}
	})
}
