package journey_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tooltape/tooltape/deploy/local/pythontest"
	"github.com/tooltape/tooltape/loadtest/tooltapetest"
)

// shared is where real agent logs and the checks that others wrote lie: beside this checkout, or where TOOLTAPE_SHARED says.
func shared(t *testing.T, path string) string {
	t.Helper()
	dir := os.Getenv("TOOLTAPE_SHARED")
	if dir == "" {
		dir = filepath.Join(repository(t), "..", "shared")
	}
	full := filepath.Join(dir, path)
	if _, err := os.Stat(full); err != nil {
		t.Skipf("the real agent logs are not here: %s", err)
	}
	return full
}

func TestEverySessionOfARealLogIsShownAsAProviderAcceptsIt(t *testing.T) {
	log, checks := shared(t, "data/tau-bench/gpt-4o-airline.json"), shared(t, "checks/check_exports.py")
	python := pythontest.With(t, "providers-1", "pydantic>=2.11,<3", "mistral-common==1.13.1", "openai==2.*", "anthropic")
	in := tooltapetest.NewInstall(t, 4)
	tooltapetest.Start(t, in.Env, "run", "history")
	tooltapetest.MustRun(t, in.Env, nil, "import", "openai-chat", "--path", "[].traj", log)
	again := tooltapetest.MustRun(t, in.Env, nil, "import", "openai-chat", "--path", "[].traj", "--output", "json", log)
	if !strings.Contains(again, `"events":0`) {
		t.Errorf("importing the file again appended something: %s", again)
	}
	const sessions = 200
	dir := t.TempDir()
	anthropic := make([]string, 0, sessions)
	var chat strings.Builder
	for i := range sessions {
		id := fmt.Sprintf("gpt-4o-airline-%d", i)
		path := filepath.Join(dir, id+".json")
		write(t, path, tooltapetest.MustRun(t, in.Env, nil, "history", id, "--wait", "60s", "--at-least", "4", "--format", "anthropic"))
		anthropic = append(anthropic, path)
		chat.WriteString(finetuningRow(t, tooltapetest.MustRun(t, in.Env, nil, "history", id, "--format", "openai-chat")))
	}
	rows := filepath.Join(dir, "chat.jsonl")
	write(t, rows, chat.String())
	check(t, python, append([]string{checks, "anthropic"}, anthropic...), "200 passed, 0 failed")
	check(t, python, []string{checks, "openai", rows}, "200 passed, 0 failed")
}

// finetuningRow is a session cut to its last assistant message without calls, as a trainer wants it.
func finetuningRow(t *testing.T, rendering string) string {
	t.Helper()
	var doc struct {
		Messages []map[string]any `json:"messages"`
	}
	if err := json.Unmarshal([]byte(rendering), &doc); err != nil {
		t.Fatal(err)
	}
	end := len(doc.Messages)
	for end > 0 && (doc.Messages[end-1]["role"] != "assistant" || doc.Messages[end-1]["tool_calls"] != nil) {
		end--
	}
	row, err := json.Marshal(map[string]any{"messages": doc.Messages[:end]})
	if err != nil {
		t.Fatal(err)
	}
	return string(row) + "\n"
}

func TestAnUnansweredCallOfARealLogIsNamed(t *testing.T) {
	log := shared(t, "data/claude-code/main.jsonl")
	in := tooltapetest.NewInstall(t, 4)
	tooltapetest.Start(t, in.Env, "run", "history")
	tooltapetest.MustRun(t, in.Env, nil, "import", "claude-code", "--session", "cc", log)
	stored := items(t, tooltapetest.MustRun(t, in.Env, nil, "history", "cc", "--at-least", "273", "--wait", "60s"))
	open := map[string]bool{}
	for _, line := range stored {
		var item struct {
			Kind   string `json:"kind"`
			CallID string `json:"call_id"`
		}
		if err := json.Unmarshal([]byte(line), &item); err != nil {
			t.Fatal(err)
		}
		switch item.Kind {
		case "tool_call":
			open[item.CallID] = true
		case "tool_result":
			delete(open, item.CallID)
		}
	}
	if len(open) != 1 {
		t.Fatalf("%d calls without a result, want the one of this log", len(open))
	}
	r := tooltapetest.Run(t, in.Env, nil, "history", "cc", "--format", "anthropic")
	for id := range open {
		if r.Code != 1 || !strings.Contains(r.Errs, id) || r.Out != "" {
			t.Errorf("exit code %d, %q; want 1 and the call %s named", r.Code, r.Errs, id)
		}
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// check runs the checks of others, whose last line counts.
func check(t *testing.T, python string, args []string, want string) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), python, args...).CombinedOutput()
	if err != nil || !strings.Contains(string(out), want) {
		t.Errorf("%s: %v\n%s", args[1], err, out)
	}
}
