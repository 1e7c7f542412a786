package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tooltape/tooltape/processors"
	"github.com/tooltape/tooltape/schemas"
	"github.com/tooltape/tooltape/sinks/history"
	"github.com/tooltape/tooltape/sinks/postgres"
	"github.com/tooltape/tooltape/sinks/sinktest"
)

// testdata of the importers: one whole session each.
const (
	parking    = "../../producer/importer/openaichat/testdata/parking.json"
	greenhouse = "../../producer/importer/claudecode/testdata/greenhouse.jsonl"
)

// message is a line of OpenAI chat messages.
func message(role, text string) string { return fmt.Sprintf(`{"role":%q,"content":%q}`, role, text) }

// turn is a line of a Claude Code transcript.
func turn(n int) string {
	parent := "null"
	if n > 1 {
		parent = fmt.Sprintf(`"u%d"`, n-1)
	}
	return fmt.Sprintf(`{"type":"user","uuid":"u%d","parentUuid":%s,"sessionId":"walk","timestamp":"2026-03-01T08:00:00Z","message":{"role":"user","content":"step %d"}}`, n, parent, n)
}

// imports runs an import that must succeed and is its rows.
func (c *cli) imports(format string, files ...string) []importedRow {
	c.Helper()
	return decoded[[]importedRow](c, c.done(append([]string{"import", format, "-o", "json"}, files...)...))
}

// project brings the history up to date.
func (c *cli) project() {
	c.Helper()
	a := &app{in: strings.NewReader(""), out: os.Stdout, errs: os.Stderr}
	root := a.root()
	if err := root.ParseFlags(c.flags); err != nil {
		c.Fatal(err)
	}
	pool := sinktest.Connect(c, a.settings.databaseURL)
	kafka, err := a.settings.kafka()
	if err != nil {
		c.Fatal(err)
	}
	p, err := processors.New(processors.Config{
		Projection: history.Name, Topics: a.settings.topics(), Sink: postgres.New(pool, history.View()), Decoder: schemas.NewDecoder(nil), Build: "test", Kafka: kafka,
	})
	if err != nil {
		c.Fatal(err)
	}
	log, err := a.eventLog(c.Context())
	if err != nil {
		c.Fatal(err)
	}
	defer log.Close()
	bounds, err := log.Bounds(c.Context())
	if err != nil {
		c.Fatal(err)
	}
	ctx, cancel := context.WithCancel(c.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	c.until(ended, func() (bool, error) { return projected(c.Context(), pool, bounds) })
	cancel()
	if err := <-ended; err != nil {
		c.Fatal(err)
	}
}

func TestImportingAFileAgainAddsNothing(t *testing.T) {
	for format, file := range map[string]string{"openai-chat": parking, "claude-code": greenhouse} {
		for store, projects := range map[string]bool{"without a database": false, "with one that has projected it": true} {
			t.Run(format+" "+store, func(t *testing.T) {
				c := withKafka(t)
				if projects {
					c = c.withDatabase()
				}
				rows := c.imports(format, file, file)
				if len(rows) != 2 || rows[0].Events < 10 || rows[0].Sessions != 1 || rows[1].Events != 0 {
					t.Fatalf("imported are %+v, want events of one session, and of the same file nothing more", rows)
				}
				log := c.done("cat")
				if projects {
					c.project()
				}
				if again := c.imports(format, file); again[0].Events != 0 {
					t.Errorf("again, imported are %+v", again)
				}
				if c.done("cat") != log {
					t.Error("the log has changed")
				}
			})
		}
	}
}

func TestAFileThatHasGrownAppendsWhatIsNewAsAFurtherRun(t *testing.T) {
	for format, grow := range map[string]func(n int) string{
		"openai-chat": func(n int) string { return message("user", fmt.Sprint("step ", n)) },
		"claude-code": turn,
	} {
		for store, projects := range map[string]bool{"without a database": false, "with one that has projected it": true} {
			t.Run(format+" "+store, func(t *testing.T) {
				c := withKafka(t)
				if projects {
					c = c.withDatabase()
				}
				path := filepath.Join(t.TempDir(), "walk.jsonl")
				write := func(n int) {
					var lines []string
					for i := range n {
						lines = append(lines, grow(i+1))
					}
					text := strings.Join(lines, "\n")
					if format == "openai-chat" {
						path = filepath.Join(filepath.Dir(path), "walk.json")
						text = "[" + strings.Join(lines, ",") + "]"
					}
					if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
						t.Fatal(err)
					}
				}
				write(2)
				first := c.imports(format, path)[0].Events
				log := c.done("cat")
				if projects {
					c.project()
				}
				write(4)
				if more := c.imports(format, path)[0].Events; more != first-1 { // all but session.created
					t.Errorf("grown by as much as it was, the file gives %d events, and at first %d", more, first)
				}
				grown := c.done("cat")
				if !strings.HasPrefix(grown, log) {
					t.Errorf("the log is\n%s, and was\n%s", grown, log)
				}
				if runs := count(c.done("cat", "--type", "run.started")); runs != 2 {
					t.Errorf("the session has %d runs, want 2", runs)
				}
				if texts := strings.Count(grown, "step "); texts != 4 {
					t.Errorf("the session has %d messages, want 4", texts)
				}
			})
		}
	}
}

func TestAnImportThatBrokeOffAmidstARunIsFinished(t *testing.T) {
	for store, projects := range map[string]bool{"without a database": false, "with one that has projected it": true} {
		t.Run(store, func(t *testing.T) {
			whole := withKafka(t)
			whole.imports("claude-code", greenhouse)
			log := whole.done("cat")
			lines := strings.SplitAfter(log, "\n")
			c := withKafka(t)
			if projects {
				c = c.withDatabase()
			}
			c.doneOn(strings.Join(lines[:5], ""), "produce", "-")
			if projects {
				c.project()
			}
			if rows := c.imports("claude-code", greenhouse); rows[0].Events != len(lines)-1-5 {
				t.Errorf("imported are %+v, want what the %d lines of the whole lack", rows, len(lines)-1)
			}
			if c.done("cat") != log {
				t.Error("the log is not that of an undisturbed import")
			}
		})
	}
}

func TestAFileThatCannotBeImportedSaysWhereAndWhatWasGoodIsKept(t *testing.T) {
	chat := `{"messages":[` + message("user", "x") + "]}\n" // a session a line
	var walk strings.Builder
	for n := range 9_999 {
		walk.WriteString(turn(n+1) + "\n")
	}
	for name, f := range map[string]struct {
		format, file, text string
		says               []string
		good               int // messages
	}{
		"an empty file":                          {"openai-chat", "f.json", "", []string{"the file is empty"}, 0},
		"an empty transcript":                    {"claude-code", "f.jsonl", "", []string{"the file is empty"}, 0},
		"a file cut off in the middle":           {"openai-chat", "f.json", `[` + message("user", "x") + `,{"role":"user","con`, []string{"line 1", "[1]"}, 1},
		"a transcript cut off in the middle":     {"claude-code", "f.jsonl", turn(1) + "\n" + turn(2)[:50], []string{"line 2"}, 1},
		"something else":                         {"openai-chat", "f.json", "%PDF-1.7 \x00", []string{"line 1"}, 0},
		"something else for a transcript":        {"claude-code", "f.jsonl", "%PDF-1.7 \x00", []string{"line 1"}, 0},
		"a transcript for chat messages":         {"openai-chat", "f.jsonl", turn(1), []string{"line 1"}, 0},
		"chat messages for a transcript":         {"claude-code", "f.jsonl", message("user", "x"), []string{"line 1", "no line of Claude Code"}, 0},
		"one bad line in 10,000":                 {"openai-chat", "f.jsonl", strings.Repeat(chat, 999) + "{\"messages\":[}]}\n" + strings.Repeat(chat, 9_000), []string{"line 1000"}, 999},
		"one bad line in a transcript of 10,000": {"claude-code", "f.jsonl", walk.String() + `{"type":"user","uuid":"u"`, []string{"line 10000"}, 9_999},
	} {
		t.Run(name, func(t *testing.T) {
			c := withKafka(t)
			file := c.file(f.file, f.text)
			for range 2 { // a second try adds nothing twice
				r := c.run("import", f.format, file, "-o", "json")
				c.failed(r, exitFailed, append(f.says, file)...)
				if rows := decoded[[]importedRow](t, r.out); len(rows) != 1 || rows[0].File != file || rows[0].Skipped == nil {
					t.Errorf("imported are %+v, want a row of the file", rows)
				}
				if n := count(c.done("cat", "--type", "user.message.created")); n != f.good {
					t.Errorf("the log has %d messages, want %d", n, f.good)
				}
			}
		})
	}
}

func TestAnImportOfNothingIsAWrongUse(t *testing.T) {
	c := withKafka(t)
	c.failed(c.run("import", "openai-chat"), exitUsage, "requires at least 1 arg")
	c.failed(c.run("import", "openai-chat", "no-such-file.json"), exitFailed, "no-such-file.json")
	c.failed(c.run("import", "openai-chat", "--path", "traj[", parking), exitFailed, "path")
}

func TestTheSessionsOfAContainerAreImported(t *testing.T) {
	c := withKafka(t)
	file := c.file("runs.json", `[{"traj":[`+message("user", "one")+`]},{"traj":[`+message("user", "two")+`]}]`)
	if rows := c.imports("openai-chat", "--path", "[].traj", "--session", "mine", file); rows[0].Sessions != 2 || !slices.Equal(rows[0].SessionIDs, sessionIDs{"mine-0", "mine-1"}) {
		t.Errorf("imported are %+v, want 2 sessions", rows)
	}
	if n := count(c.done("cat", "--session", "mine-1")); n == 0 {
		t.Error("there is no session mine-1")
	}
}

func TestImportSaysWhichSessionsItMet(t *testing.T) {
	c := withKafka(t)
	line := `{"messages":[` + message("user", "x") + "]}\n"
	file := c.file("many.jsonl", strings.Repeat(line, 5)+`{"messages":[}]}`)
	for range 2 { // also where nothing is added, and where the file is bad
		r := c.run("import", "openai-chat", file)
		c.failed(r, exitFailed, "line 6")
		if rows := strings.Split(r.out, "\n"); !strings.HasSuffix(rows[0], "  SESSION_IDS") || !strings.HasSuffix(rows[1], "  many-0,many-1,many-2 … (5)") {
			t.Errorf("printed is\n%s", r.out)
		}
	}
	if r := c.run("import", "openai-chat", "no-such-file.json", "-o", "json"); !strings.Contains(r.out, `"session_ids":[]`) {
		t.Errorf("of no session, printed is %s", r.out)
	}
}
