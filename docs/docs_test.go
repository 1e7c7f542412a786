// Package docs_test holds the documents to the program: it runs the commands that they show, in order, and compares what they print.
//
// A block of sh is run by sh -eu, in a folder of its own beside a running "tooltape dev --demo", with its settings in the environment. The
// block of text or json directly after it is what it prints on both streams (match_test.go says how to elide). "go run ./x/y" runs the
// program y, built once. A block that cannot run here says why, in a comment right before it: <!-- not run: REASON -->. Its syntax is
// checked, and that each tooltape command in it exists with its flags.
package docs_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// root is the repository's, from this package's folder.
const root = ".."

// programs are what the documents run.
var programs = []string{"./cmd/tooltape", "./docs/examples/badevent"}

// settled waits until the demo's sessions are projected to their ends.
const settled = `
tooltape history demo-denied-v1 --at-least 25 --wait 20s
tooltape history demo-refused --at-least 10 --wait 20s
tooltape history demo-approval --at-least 18 --wait 20s
tooltape history demo-parallel --at-least 17 --wait 20s
`

func TestDocuments(t *testing.T) {
	s := start(t)
	s.script(t, settled)
	for _, page := range pages(t) {
		if page == "CONTRIBUTING.md" { // its commands are those of the build
			continue
		}
		for _, b := range blocks(t, page) {
			switch {
			case b.language != "sh":
			case b.notRun != "":
				s.check(t, b)
			default:
				s.run(t, b)
			}
		}
	}
	t.Run("example", s.example)
	t.Run("operations", s.operations)
}

// session is a folder in which blocks run, beside a running dev.
type session struct {
	dir string
	env []string
}

// start builds the programs and starts dev, as the documents tell their readers to.
func start(t *testing.T) *session {
	t.Helper()
	s := &session{dir: openDir(t)}
	bin := filepath.Join(s.dir, "bin")
	build := exec.CommandContext(t.Context(), "go", append([]string{"build", "-o", bin + "/"}, programs...)...)
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building the programs: %s\n%s", err, out)
	}
	docs, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(docs, filepath.Join(s.dir, "docs")); err != nil { // the examples' files
		t.Fatal(err)
	}
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, "TOOLTAPE_") { // those of dev are to be found
			s.env = append(s.env, e)
		}
	}
	s.env = append(s.env, "PATH="+bin+":"+os.Getenv("PATH"))
	s.dev(t)
	return s
}

// openDir is a folder that PostgreSQL's user can enter.
func openDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "tooltape-docs-test-") //nolint:usetesting // t.TempDir makes one below a closed one
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// dev runs the README's first command until the test ends, and returns once it is ready.
func (s *session) dev(t *testing.T) {
	t.Helper()
	log, err := os.Create(filepath.Join(s.dir, "dev.log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd := exec.Command(filepath.Join(s.dir, "bin", "tooltape"), "dev", "--demo")
	cmd.Dir, cmd.Env, cmd.Stderr = s.dir, s.env, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var ending error
	ended := make(chan struct{})
	go func() { ending = cmd.Wait(); close(ended) }()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGINT)
		select {
		case <-ended:
			if ending != nil {
				t.Errorf("dev did not end well: %s\n%s", ending, s.said())
			}
		case <-time.After(30 * time.Second):
			_ = cmd.Process.Kill()
			t.Errorf("dev does not end on SIGINT\n%s", s.said())
		}
	})
	tooLong := time.After(3 * time.Minute) // PostgreSQL may have to be downloaded
	for !strings.Contains(s.said(), "Ctrl-C stops.") {
		select {
		case <-ended:
			t.Fatalf("dev ended: %v\n%s", ending, s.said())
		case <-tooLong:
			t.Fatalf("dev is not ready\n%s", s.said())
		case <-time.After(20 * time.Millisecond):
		}
	}
	settings, err := os.ReadFile(filepath.Join(s.dir, ".tooltape", "env"))
	if err != nil {
		t.Fatal(err)
	}
	s.env = append(s.env, strings.Fields(string(settings))...)
}

// said is what dev has said so far.
func (s *session) said() string {
	text, _ := os.ReadFile(filepath.Join(s.dir, "dev.log"))
	return string(text)
}

var goRun = regexp.MustCompile(`go run \./(?:\w+/)*(\w+)`)

// run runs a block and compares what it prints with what the page shows.
func (s *session) run(t *testing.T, b block) {
	t.Helper()
	out, err := s.sh(t, "sh -eu", goRun.ReplaceAllString(b.text, "$1"))
	if err != nil {
		t.Errorf("%s:%d: %s\n%s\nprints\n%s", b.page, b.line, err, b.text, out)
		return
	}
	if b.output != nil && !matches(t, *b.output, out) {
		t.Errorf("%s:%d:\n%s\nprints\n%s\nnot\n%s", b.page, b.output.line, b.text, out, b.output.text)
	}
}

// script runs what no page shows.
func (s *session) script(t *testing.T, text string) string {
	t.Helper()
	out, err := s.sh(t, "sh -eu", text)
	if err != nil {
		t.Fatalf("%s\n%s\n%s\n%s", text, err, out, s.said())
	}
	return out
}

// sh gives a shell a text, and returns what it prints on both streams.
func (s *session) sh(t *testing.T, shell, text string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	words := strings.Fields(shell)
	cmd := exec.CommandContext(ctx, words[0], words[1:]...)
	cmd.Dir, cmd.Env, cmd.Stdin = s.dir, s.env, strings.NewReader(text)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// command is a tooltape command in a script: up to a pipe, a comment, or what else ends it.
var command = regexp.MustCompile(`(?m)(?:^|[|;&(] *|go run \./cmd/)tooltape +([^|;&#\n)]*)`)

// check looks at a block that is not run: its syntax, and whether its commands and their flags exist.
func (s *session) check(t *testing.T, b block) {
	t.Helper()
	if out, err := s.sh(t, "sh -n", b.text); err != nil {
		t.Errorf("%s:%d: %s\n%s", b.page, b.line, err, out)
	}
	script := strings.ReplaceAll(b.text, "\\\n", " ")
	for _, m := range command.FindAllStringSubmatch(script, -1) {
		words := strings.Fields(strings.NewReplacer(`"`, "", `'`, "").Replace(m[1]))
		if problem := s.exists(t, words); problem != "" {
			t.Errorf("%s:%d: tooltape %s: %s", b.page, b.line, m[1], problem)
		}
	}
}

var usage = regexp.MustCompile(`(?m)^  tooltape (.*)$`)

// exists says what is wrong with a command, if anything: its help must be that of the command, and its flags must be known.
func (s *session) exists(t *testing.T, words []string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), filepath.Join(s.dir, "bin", "tooltape"), append(words, "--help")...).CombinedOutput()
	m := usage.FindStringSubmatch(string(out))
	switch {
	case err != nil:
		return err.Error() + ": " + string(out)
	case m == nil, strings.Contains(m[1], "[command]"):
		return "there is no such command"
	}
	return ""
}
