// Package tooltapetest runs the tooltape binary as its users do, for tests. It ships in no binary.
package tooltapetest

import (
	"bytes"
	"context"
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
	p := &Process{cmd: exec.Command(path, args...), done: make(chan struct{})}
	p.cmd.Env, p.cmd.Stderr = append(os.Environ(), env...), &p.errs
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { p.err = p.cmd.Wait(); close(p.done) }()
	t.Cleanup(p.Kill)
	return p
}

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
