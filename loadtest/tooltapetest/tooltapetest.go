// Package tooltapetest runs the tooltape binary as its users do, for tests. It ships in no binary.
package tooltapetest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tooltape/tooltape/processors/topics/topicstest"
	"github.com/tooltape/tooltape/schemas"
	"github.com/tooltape/tooltape/sinks/history"
	"github.com/tooltape/tooltape/sinks/sinktest"
)

// binary is built once for all tests of a process.
var binary = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "tooltape-binary")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "tooltape")
	out, err := exec.Command("go", "build", "-o", path, "github.com/tooltape/tooltape/cmd/tooltape").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("building tooltape: %w\n%s", err, out)
	}
	return path, nil
})

// Main is for TestMain: it runs the tests with their database and deletes the binary.
func Main(m *testing.M) int {
	code := sinktest.Main(m)
	if path, err := binary(); err == nil {
		_ = os.RemoveAll(filepath.Dir(path)) // a temporary folder
	}
	return code
}

// Install is a Kafka with topics of its own, a database of its own, and how to reach both.
type Install struct {
	Topics   schemas.Topics
	Database string
	Env      []string
}

// NewInstall makes one for a test.
func NewInstall(t testing.TB, partitions int32) Install {
	t.Helper()
	names, database := topicstest.New(t, partitions), sinktest.Database(t, history.View())
	return Install{Topics: names, Database: database, Env: Env(strings.Join(topicstest.Brokers(t), ","), database, names.Prefix)}
}

// Env is the environment of a tooltape process.
func Env(brokers, database, prefix string) []string {
	return []string{"TOOLTAPE_BROKERS=" + brokers, "TOOLTAPE_DATABASE_URL=" + database, "TOOLTAPE_TOPIC_PREFIX=" + prefix}
}

// Result is how a command ended.
type Result struct {
	Out, Errs string
	Code      int
}

// Run runs a command to its end, a minute at most.
func Run(t testing.TB, env []string, in io.Reader, args ...string) Result {
	t.Helper()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = append(os.Environ(), env...), in, &out, &errs
	err = cmd.Run()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatalf("tooltape %s: %s", strings.Join(args, " "), err)
	}
	return Result{out.String(), errs.String(), cmd.ProcessState.ExitCode()}
}

// MustRun is Run for a command that must succeed; it returns what it printed.
func MustRun(t testing.TB, env []string, in io.Reader, args ...string) string {
	t.Helper()
	r := Run(t, env, in, args...)
	if r.Code != 0 {
		t.Fatalf("tooltape %s: exit code %d\n%s", strings.Join(args, " "), r.Code, r.Errs)
	}
	return r.Out
}

// Altered is a binary built from sources that a test has changed: for each file, by its path in the repository, what it should say instead.
func Altered(t testing.TB, root string, instead map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	replace := map[string]string{}
	for file, text := range instead {
		path := filepath.Join(dir, strings.ReplaceAll(file, "/", "_"))
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		replace[filepath.Join(root, file)] = path
	}
	spec, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	overlay, path := filepath.Join(dir, "overlay.json"), filepath.Join(dir, "tooltape")
	if err := os.WriteFile(overlay, spec, 0o600); err != nil {
		t.Fatal(err)
	}
	// Its build is not named for the commit: it is another than that of the same commit, unaltered.
	cmd := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-overlay", overlay, "-o", path, "./cmd/tooltape")
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("building the altered tooltape: %s\n%s", err, out)
	}
	return path
}

// Process is a tooltape that runs.
type Process struct {
	cmd  *exec.Cmd
	errs bytes.Buffer
	done chan struct{}
	err  error
}

// Start starts a command; it is killed at the end of the test if it still runs then.
func Start(t testing.TB, env []string, args ...string) *Process {
	t.Helper()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	return StartBinary(t, path, env, args...)
}

// StartBinary is Start with a binary of the test's own.
func StartBinary(t testing.TB, path string, env []string, args ...string) *Process {
	t.Helper()
	p := &Process{cmd: exec.Command(path, args...), done: make(chan struct{})}
	p.cmd.Env, p.cmd.Stderr = append(os.Environ(), env...), &p.errs
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { p.err = p.cmd.Wait(); close(p.done) }()
	t.Cleanup(p.Kill)
	return p
}

// Stall stops the process where it stands, as a machine that is overloaded or suspended does; Wake lets it go on.
func (p *Process) Stall() error { return p.cmd.Process.Signal(syscall.SIGSTOP) }

// Wake lets a stalled process go on.
func (p *Process) Wake() error { return p.cmd.Process.Signal(syscall.SIGCONT) }

// Kill ends the process as a power cut would, and waits for its end.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill() // it may have ended
	<-p.done
}

// Stop asks the process to end and waits for it. The error is that of a process that did not end well, with what it said.
func (p *Process) Stop() error {
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	<-p.done
	if p.err != nil {
		return fmt.Errorf("%w\n%s", p.err, p.errs.String())
	}
	return nil
}

// Ended is closed when the process has ended.
func (p *Process) Ended() <-chan struct{} { return p.done }

// Said is what an ended process wrote on standard error.
func (p *Process) Said() string {
	<-p.done
	return p.errs.String()
}
