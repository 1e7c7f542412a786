package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// process is a contestant that runs.
type process struct {
	cmd        *exec.Cmd
	stored     atomic.Int64 // the last number that it printed
	complaints bytes.Buffer
	ended      chan struct{}
	err        error
}

// start runs a command whose standard output is numbers, one a line.
func start(ctx context.Context, cmd *exec.Cmd) (*process, error) {
	p := &process{cmd: cmd, ended: make(chan struct{})}
	cmd.Stderr = &p.complaints
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	go p.follow(ctx, out)
	return p, nil
}

func (p *process) follow(ctx context.Context, out io.Reader) {
	defer close(p.ended)
	kill := context.AfterFunc(ctx, func() { _ = p.cmd.Process.Kill() })
	defer kill()
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if n, err := strconv.ParseInt(lines.Text(), 10, 64); err == nil {
			p.stored.Store(max(n, p.stored.Load()))
		}
	}
	p.err = p.cmd.Wait()
}

// fault says why the process ended, or nil while it runs.
func (p *process) fault() error {
	select {
	case <-p.ended:
		return fmt.Errorf("%s ended too early (%v): %s", p.cmd.Path, p.err, bytes.TrimSpace(p.complaints.Bytes()))
	default:
		return nil
	}
}

// stop asks the process to end, and demands that it does so cleanly.
func (p *process) stop() error {
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-p.ended:
	case <-time.After(20 * time.Second):
		_ = p.cmd.Process.Kill()
		<-p.ended
	}
	if p.err != nil {
		return fmt.Errorf("%s did not end cleanly (%w): %s", p.cmd.Path, p.err, bytes.TrimSpace(p.complaints.Bytes()))
	}
	return nil
}

// ticks is the unit in which the kernel counts processor time for others to see: USER_HZ, which is 100 everywhere.
const ticks = time.Second / 100

// processorTime is what a process has used so far, as far as this machine tells (/proc); the files are Linux's.
func processorTime(pid int) time.Duration {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	// The second field, the program's name, is in parentheses and may hold spaces. utime and stime are the 14th and the 15th.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) < 13 {
		return 0
	}
	user, _ := strconv.ParseInt(fields[11], 10, 64)
	system, _ := strconv.ParseInt(fields[12], 10, 64)
	return time.Duration(user+system) * ticks
}

var highWater = regexp.MustCompile(`VmHWM:\s+(\d+) kB`)

// peakMemory is the most that a process has had in memory, in bytes. getrusage would not do: there a child begins with what its
// parent had.
func peakMemory(pid int) int64 {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	found := highWater.FindSubmatch(status)
	if err != nil || found == nil {
		return 0
	}
	kB, _ := strconv.ParseInt(string(found[1]), 10, 64)
	return kB << 10
}
