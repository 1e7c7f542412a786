package importer

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tooltape/tooltape/schemas/event"
)

// log is a session as a store would hold it.
type log []event.Event

func (l log) tail() Tail {
	if len(l) == 0 {
		return Tail{}
	}
	last := l[len(l)-1]
	return Tail{Seq: int64(len(l)), EventID: last.EventID, RunID: last.RunID}
}

// contents is what the session says, apart from where its runs and its responses begin: what the model did, and what it was
// shown, each in order.
func (l log) contents() (did, shown []string) {
	for _, e := range l {
		switch p := e.Payload.(type) {
		case event.SessionCreated, event.RunStarted, event.RunCompleted:
		case event.ContextCompacted:
			shown = append(shown, fmt.Sprint("compacted ", p.Content))
		case event.ModelResponseCompleted:
			for _, item := range p.Items {
				did = append(did, fmt.Sprint(item))
			}
		default:
			shown = append(shown, fmt.Sprint(p))
		}
	}
	return did, shown
}

func (l log) usage() (output int64) {
	for _, e := range l {
		if p, ok := e.Payload.(event.ModelResponseCompleted); ok {
			output += p.Usage.Value.OutputTokens
		}
	}
	return output
}

// grow appends what Plan says is new, at most limit events of it: a crash.
func (l log) grow(t *rapid.T, s Session, limit int) log {
	events, err := Plan(s, l.tail())
	if err != nil {
		t.Fatalf("Plan: %v", err)
	}
	return append(slices.Clip(l), events[:min(limit, len(events))]...)
}

func drawSession(t *rapid.T) Session {
	s := Session{ID: "s"}
	n := rapid.IntRange(0, 14).Draw(t, "entries")
	response := 0
	for i := range n {
		e := Entry{ID: fmt.Sprint("line ", i)}
		text := []event.Part{event.Text{Text: fmt.Sprint(i)}}
		switch rapid.SampledFrom([]string{"user", "piece", "piece", "next", "result", "results", "note", "compact"}).Draw(t, "kind") {
		case "user":
			e.Payloads = []event.Payload{event.UserMessageCreated{Content: text}}
		case "next":
			response++
			fallthrough
		case "piece":
			e.Response = fmt.Sprint("response ", response)
			e.Payloads = []event.Payload{event.ModelResponseCompleted{Round: response, Items: []event.ResponseItem{event.AssistantMessage{Content: text}},
				Usage: event.Some(event.Usage{OutputTokens: int64(i)})}}
		case "results":
			e.Payloads = append(e.Payloads, event.ToolCallFailed{ToolResult: event.ToolResult{CallID: fmt.Sprint("b", i)}})
			fallthrough
		case "result":
			e.Payloads = append(e.Payloads, event.ToolCallCompleted{ToolResult: event.ToolResult{CallID: fmt.Sprint("a", i)}})
		case "note":
			e.Payloads = []event.Payload{event.NoteRecorded{Name: "n", Data: fmt.Sprint(i)}}
		case "compact":
			e.Payloads = []event.Payload{event.ContextCompacted{Content: text}}
		}
		s.Entries = append(s.Entries, e)
	}
	return s
}

func (s Session) prefix(n int) Session {
	s.Entries = s.Entries[:n]
	return s
}

// However a file grows between imports, and wherever imports break off, the session ends up with the same content as by one
// import of the whole file, in runs that follow each other, with no id twice; and then there is nothing more to do.
func TestPlanGrowsAndResumes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawSession(t)
		whole := log(nil).grow(t, s, 1<<30)

		var l log
		cuts := rapid.SliceOfN(rapid.IntRange(0, len(s.Entries)), 0, 4).Draw(t, "cuts")
		slices.Sort(cuts)
		for _, cut := range cuts {
			l = l.grow(t, s.prefix(cut), rapid.IntRange(0, 20).Draw(t, "crash after"))
		}
		for range rapid.IntRange(0, 3).Draw(t, "crashes") {
			l = l.grow(t, s, rapid.IntRange(0, 4).Draw(t, "crash after"))
		}
		l = l.grow(t, s, 1<<30)

		wantDid, wantShown := whole.contents()
		did, shown := l.contents()
		if !slices.Equal(did, wantDid) || !slices.Equal(shown, wantShown) {
			t.Fatalf("content differs:\n%s\n%s\nwant:\n%s\n%s", did, shown, wantDid, wantShown)
		}
		if l.usage() != whole.usage() {
			t.Fatalf("%d output tokens, want %d", l.usage(), whole.usage())
		}
		checkRuns(t, l)
		if again := l.grow(t, s, 1<<30); len(again) != len(l) {
			t.Fatalf("importing again added %d events", len(again)-len(l))
		}
	})
}

// checkRuns checks the frame of a session: created once and first, runs one after the other, each with an id of its own, every
// event in one; and no event id twice.
func checkRuns(t *rapid.T, l log) {
	ids, runs := map[string]bool{}, map[string]bool{}
	run := event.Opt[string]{}
	for i, e := range l {
		if ids[e.EventID] {
			t.Fatalf("event id %s twice", e.EventID)
		}
		ids[e.EventID] = true
		switch p := e.Payload.(type) {
		case event.SessionCreated:
			if i != 0 || e.RunID.OK {
				t.Fatalf("session.created at %d in run %v", i, e.RunID)
			}
			continue
		case event.RunStarted:
			if run.OK || runs[e.RunID.Value] {
				t.Fatalf("run %v began at %d", e.RunID, i)
			}
			run, runs[e.RunID.Value] = e.RunID, true
		case event.ContextCompacted:
			if p.ThroughSeq != int64(i) {
				t.Fatalf("compacted through %d at seq %d", p.ThroughSeq, i+1)
			}
		}
		if e.RunID != run || !run.OK {
			t.Fatalf("event %d is in run %v, want %v", i, e.RunID, run)
		}
		if e.Type == event.RunCompletedType {
			run = event.Opt[string]{}
		}
	}
	if run.OK {
		t.Fatalf("run %v did not end", run)
	}
}

// A file whose earlier entries are others than those recorded has no tail in it, whatever is the last recorded event.
func TestPlanRefusesAnotherFile(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawSession(t)
		if len(s.Entries) == 0 {
			t.Skip("nothing to change")
		}
		l := log(nil).grow(t, s, rapid.IntRange(3, 40).Draw(t, "crash after"))
		if len(l) < 3 {
			t.Skip("nothing recorded")
		}
		changed := s
		changed.Entries = nil
		for _, e := range s.Entries {
			e.ID += " changed"
			changed.Entries = append(changed.Entries, e)
		}
		var tailErr *TailError
		if _, err := Plan(changed, l.tail()); !errors.As(err, &tailErr) {
			t.Fatalf("Plan of a changed file: %v", err)
		}
	})
}

func TestPlanRefuses(t *testing.T) {
	user := []event.Payload{event.UserMessageCreated{}}
	for name, c := range map[string]struct {
		session Session
		tail    Tail
		want    string
	}{
		"no id":            {Session{}, Tail{}, "the session id is empty"},
		"long id":          {Session{ID: strings.Repeat("x", 201)}, Tail{}, "201 bytes, more than 200"},
		"control":          {Session{ID: "a\nb"}, Tail{}, "control character U+000A"},
		"bad utf-8":        {Session{ID: "\xff"}, Tail{}, "not valid UTF-8"},
		"entry without id": {Session{ID: "s", Entries: []Entry{{Payloads: user}}}, Tail{}, "entry 0 has no id"},
		"entry twice":      {Session{ID: "s", Entries: []Entry{{ID: "a"}, {ID: "a"}}}, Tail{}, `two entries have the id "a"`},
		"no piece":         {Session{ID: "s", Entries: []Entry{{ID: "a", Response: "r", Payloads: user}}}, Tail{}, "piece of a response"},
		"unknown tail":     {Session{ID: "s", Entries: []Entry{{ID: "a", Payloads: user}}}, Tail{7, "e", event.Some("r")}, "session s ends with event e (seq 7)"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := Plan(c.session, c.tail); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want one with %q", err, c.want)
			}
		})
	}
}

// A response that was still being written when it was imported goes on in the next run, and what came between its lines stands
// after the whole of it where the whole was there.
func TestPlanOfAResponseInPieces(t *testing.T) {
	piece := func(id, text string) Entry {
		return Entry{ID: id, Response: "r", Payloads: []event.Payload{event.ModelResponseCompleted{Round: 1,
			Items: []event.ResponseItem{event.AssistantMessage{Content: []event.Part{event.Text{Text: text}}}}}}}
	}
	result := Entry{ID: "x", Payloads: []event.Payload{event.ToolCallCompleted{}}}
	s := Session{ID: "s", Entries: []Entry{piece("1", "a"), piece("2", "b"), result, piece("3", "c")}}

	shape := func(events []event.Event) string {
		var b strings.Builder
		for _, e := range events {
			b.WriteString(string(e.Type))
			if p, ok := e.Payload.(event.ModelResponseCompleted); ok {
				fmt.Fprint(&b, p.Items)
			}
			b.WriteString(" ")
		}
		return b.String()
	}
	whole, err := Plan(s, Tail{})
	want := "session.created run.started model.response.completed[{[{a}] {  false}} {[{b}] {  false}} {[{c}] {  false}}] tool.call.completed run.completed "
	want = strings.ReplaceAll(want, "{  false}", "{ false}")
	if got := shape(whole); err != nil || got != want {
		t.Errorf("whole:\n%s\nwant:\n%s (%v)", got, want, err)
	}
	first, _ := Plan(s.prefix(1), Tail{})
	second, err := Plan(s, log(first).tail())
	want = "run.started model.response.completed[{[{b}] { false}} {[{c}] { false}}] tool.call.completed run.completed "
	if got := shape(second); err != nil || got != want {
		t.Errorf("grown:\n%s\nwant:\n%s (%v)", got, want, err)
	}
}
