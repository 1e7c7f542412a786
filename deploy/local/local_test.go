//go:build unix

package local

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// helperVar makes this test binary a process that starts a service in the directory it names, says where, and waits: a
// parent that a test can kill.
const helperVar = "TOOLTAPE_LOCAL_HELPER"

func TestMain(m *testing.M) {
	if service := os.Getenv(helperVar); service != "" {
		if err := help(service); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// started is what a helper says of its service.
type started struct{ Address, Error string }

func help(service string) error {
	name, dir, _ := strings.Cut(service, ":")
	var s started
	switch name {
	case "postgres":
		if p, err := StartPostgres(context.Background(), PostgresOptions{Dir: dir, NoSync: true}); err != nil {
			s.Error = err.Error()
		} else {
			s.Address = p.URL
		}
	case "kafka":
		if k, err := StartKafka(context.Background(), KafkaOptions{Dir: dir, Topics: map[string]int32{"t": 1}}); err != nil {
			s.Error = err.Error()
		} else {
			s.Address = k.Brokers[0]
		}
	}
	if err := json.NewEncoder(os.Stdout).Encode(s); err != nil {
		return err
	}
	_, err := io.Copy(io.Discard, os.Stdin)
	return err
}

// startHelper starts a service in another process.
func startHelper(t *testing.T, service, dir string) (*exec.Cmd, started) {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	if _, err := os.Stat(cmd.Path); err != nil {
		cmd = exec.Command(os.Args[0])
	}
	cmd.Env = append(os.Environ(), helperVar+"="+service+":"+dir)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	must(t, err)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	t.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadBytes('\n')
	must(t, err)
	var s started
	must(t, json.Unmarshal(line, &s))
	return cmd, s
}

// kill is what nothing can prepare for.
func kill(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	must(t, cmd.Process.Signal(syscall.SIGKILL))
	_ = cmd.Wait()
}

// openDir is a directory that every user can enter, unlike testing's own.
func openDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "tooltape-local-test-") //nolint:usetesting // t.TempDir makes one below a closed one
	must(t, err)
	must(t, os.Chmod(dir, 0o755))
	t.Cleanup(func() { must(t, os.RemoveAll(dir)) })
	return dir
}

// occupy takes a port, any free one for 0, and returns it.
func occupy(t *testing.T, port int) int {
	t.Helper()
	l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	must(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return l.Addr().(*net.TCPAddr).Port
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// refused demands an error that says each of the words.
func refused(t *testing.T, err error, words ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error; want one that says %q", words)
	}
	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("the error %q does not say %q", err, word)
		}
	}
}

// eventually waits for a condition.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	deadline, tick := time.After(20*time.Second), time.NewTicker(5*time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("not within 20 s: %s", what)
		}
	}
}

// TestAsAnOrdinaryUser runs the other tests once more, not as root.
func TestAsAnOrdinaryUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("the other tests run as one already")
	}
	if testing.Short() {
		t.Skip("runs everything once more")
	}
	as, err := serverAccount("")
	must(t, err)
	home := openDir(t)
	must(t, os.Chown(home, int(as.uid), int(as.gid)))
	cmd := exec.Command("/proc/self/exe", "-test.v", "-test.timeout=5m")
	cmd.Dir = home
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "TMPDIR=" + home}
	as.attach(cmd, syscall.SIGKILL)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("as the user %s: %v\n%s", as.name, err, out)
	}
	if !strings.Contains(string(out), "--- PASS: TestPostgresKeepsItsData") {
		t.Fatalf("as the user %s the tests did not run:\n%s", as.name, out)
	}
}

func TestALockedDirectorySaysWho(t *testing.T) {
	dir := t.TempDir()
	held, err := lock(dir, "kafka")
	must(t, err)
	_, err = lock(dir, "kafka")
	refused(t, err, dir, fmt.Sprintf("pid %d", os.Getpid()), "choose another directory")
	must(t, held.Close())
	again, err := lock(dir, "kafka")
	must(t, err)
	must(t, again.Close())
}

func TestTemporaryDirectoriesOfTheDeadAreCleared(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	dead, err := temporary("postgres")
	must(t, err)
	young, err := temporary("postgres")
	must(t, err)
	live, err := temporary("postgres")
	must(t, err)
	held, err := lock(live, "postgres")
	must(t, err)
	defer func() { must(t, held.Close()) }()
	hourAgo := time.Now().Add(-time.Hour)
	must(t, os.Chtimes(dead, hourAgo, hourAgo))
	must(t, os.Chtimes(live, hourAgo, hourAgo))

	_, err = temporary("postgres")
	must(t, err)
	for dir, want := range map[string]bool{dead: false, young: true, live: true} {
		if _, err := os.Stat(dir); (err == nil) != want {
			t.Errorf("%s exists: %t, want %t", filepath.Base(dir), err == nil, want)
		}
	}
}
