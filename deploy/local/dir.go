package local

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// lock takes a service's directory for this process. The kernel gives it back when the process ends, so a lock is never
// stale; the pid inside is only for the error that the next one sees.
func lock(dir, service string) (*os.File, error) {
	name := filepath.Join(dir, service+".lock")
	// Read only, so that a lock file that root made serves an ordinary user too.
	f, err := os.OpenFile(name, os.O_RDONLY|os.O_CREATE, 0o644)
	if err != nil {
		return nil, fmt.Errorf("cannot lock %s: %w", dir, err)
	}
	taken, err := tryLock(f)
	if err == nil && taken {
		_ = os.WriteFile(name, []byte(strconv.Itoa(os.Getpid())), 0o644)
		return f, nil
	}
	_ = f.Close()
	if err != nil {
		return nil, fmt.Errorf("cannot lock %s: %w", dir, err)
	}
	holder, _ := os.ReadFile(name)
	return nil, fmt.Errorf("%s is in use by another tooltape (pid %s): stop that one, or choose another directory",
		dir, strings.TrimSpace(string(holder)))
}

// temporary makes a directory that goes with the service, and clears away those of processes that were killed.
func temporary(service string) (string, error) {
	prefix := "tooltape-" + service + "-"
	old, _ := filepath.Glob(filepath.Join(os.TempDir(), prefix+"*"))
	for _, dir := range old {
		// A younger one may belong to a process that has made it and not locked it yet.
		if info, err := os.Stat(dir); err != nil || time.Since(info.ModTime()) < time.Minute {
			continue
		}
		if held, err := lock(dir, service); err == nil {
			_ = os.RemoveAll(dir)
			_ = held.Close()
		}
	}
	return os.MkdirTemp("", prefix)
}

// lastPort is the port that a service had in dir before, or 0.
func lastPort(dir, service string) int {
	text, err := os.ReadFile(filepath.Join(dir, service+".port"))
	if err != nil {
		return 0
	}
	port, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || port < 1 || port > 65535 {
		return 0
	}
	return port
}

// rememberPort keeps a service's port, so that a restart has the same and clients find it again.
func rememberPort(dir, service string, port int) error {
	return os.WriteFile(filepath.Join(dir, service+".port"), []byte(strconv.Itoa(port)+"\n"), 0o644)
}

// tryPort says whether a port on 127.0.0.1 can be had, and which one: 0 asks the kernel for a free one. Between this and
// the use of it another process may take it; so callers try again.
func tryPort(port int) (int, error) {
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return 0, err
	}
	defer func() { _ = l.Close() }()
	return l.Addr().(*net.TCPAddr).Port, nil
}

// portTaken is the error of a port that the caller asked for and that cannot be had.
func portTaken(service string, port int, cause error) error {
	return fmt.Errorf("%s cannot have port %d (%w): stop the program that uses it, or choose another port", service, port, cause)
}
