package journey_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tooltape/tooltape/loadtest/tooltapetest"
)

// devHome is a directory for dev. Where the tests run as root, PostgreSQL's user must be able to enter it.
func devHome(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "tooltape-dev") //nolint:usetesting // t.TempDir is closed to other users
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil { //nolint:gosec // it holds a test's data
		t.Fatal(err)
	}
	return filepath.Join(dir, "data")
}

func once(t *testing.T, dir string, args ...string) (r tooltapetest.Result, summary map[string]float64) {
	t.Helper()
	r = tooltapetest.Run(t, nil, nil, append([]string{"dev", "--once", "--output", "json", "--data", dir}, args...)...)
	if err := json.Unmarshal([]byte(r.Out), &summary); err != nil {
		t.Fatalf("%s: %q, %s", err, r.Out, r.Errs)
	}
	return r, summary
}

func TestDevKeepsItsDataWhenItIsKilled(t *testing.T) {
	dir := devHome(t)
	p := tooltapetest.Start(t, nil, "dev", "--demo", "--data", dir)
	env := waitForEnv(t, dir, p)
	tooltapetest.MustRun(t, env, nil, "history", "demo-parallel", "--wait", "30s")
	p.Kill()
	r, got := once(t, dir)
	if r.Code != 0 || got["sessions"] != 4 || got["events"] != 70 || got["items"] != 32 || got["parked"] != 0 || got["set_aside"] != 0 {
		t.Errorf("after a kill the store holds %v (exit code %d), want the demo's 4 sessions, 70 events and 32 items", got, r.Code)
	}
	if r, got := once(t, dir, "--demo"); r.Code != 0 || got["events"] != 70 {
		t.Errorf("the demo a second time makes %v (exit code %d), want nothing new", got, r.Code)
	}
}

// waitForEnv waits until dev has said how to reach it.
func waitForEnv(t *testing.T, dir string, p *tooltapetest.Process) []string {
	t.Helper()
	for deadline := time.After(time.Minute); ; {
		text, err := os.ReadFile(filepath.Join(dir, "env"))
		if err == nil {
			return strings.Fields(string(text))
		}
		select {
		case <-p.Ended():
			t.Fatalf("dev ended: %s", p.Said())
		case <-deadline:
			t.Fatal("dev wrote no env in a minute")
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func TestDevImportsAtTheStartAndRefusesWhatItCannotRead(t *testing.T) {
	dir := devHome(t)
	file := filepath.Join(t.TempDir(), "events.jsonl")
	write(t, file, `{"session_id":"good","type":"user.message.created","actor_type":"principal","payload":{"content":[{"type":"text","text":"hello"}],"trust":"user"}}`+"\n")
	r, got := once(t, dir, "--import", "events="+file)
	if r.Code != 0 || got["sessions"] != 1 || got["events"] != 1 {
		t.Fatalf("%v, exit code %d, %s", got, r.Code, r.Errs)
	}
	for name, file := range map[string]string{"no such format": "chat=" + file, "no such file": "events=nowhere.jsonl"} {
		if r := tooltapetest.Run(t, nil, nil, "dev", "--once", "--data", dir, "--import", file); r.Code != 2 {
			t.Errorf("%s: exit code %d, want 2: %s", name, r.Code, r.Errs)
		}
	}
}
