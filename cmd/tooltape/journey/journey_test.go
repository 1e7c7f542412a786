// Package journey_test goes the ways that users go, with the binary, a Kafka and a PostgreSQL.
package journey_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tooltape/tooltape/loadtest/tooltapetest"
	"github.com/tooltape/tooltape/processors/projection"
	"github.com/tooltape/tooltape/schemas"
)

func TestMain(m *testing.M) { os.Exit(tooltapetest.Main(m)) }

// The story of the decision record: an approval is denied, and the next message of the session must work.
const (
	beforeDenial = `{"session_id":"s","type":"session.created","actor_type":"application","payload":{}}
{"session_id":"s","type":"user.message.created","actor_type":"principal","payload":{"content":[{"type":"text","text":"Send it."}],"trust":"user"}}
{"session_id":"s","type":"run.started","run_id":"r1","actor_type":"runtime","payload":{"skills":[]}}
{"session_id":"s","type":"model.response.completed","run_id":"r1","actor_type":"runtime","payload":{"round":1,"items":[{"kind":"tool_call","call_id":"c1","name":"send_email","arguments":"{\"to\":\"a@example.com\"}"}]}}
{"session_id":"s","type":"approval.requested","run_id":"r1","actor_type":"runtime","payload":{"approval_id":"a1","call_ids":["c1"]}}
{"session_id":"s","type":"approval.resolved","run_id":"r1","actor_type":"principal","payload":{"approval_id":"a1","approved":false,"resolution":"deny","call_ids":[]}}
`
	denialV1 = `{"session_id":"s","type":"tool.call.denied","payload_version":1,"run_id":"r1","actor_type":"runtime","payload":{"call_id":"c1","name":"send_email","reason_code":"user_denied"}}
`
	denialV2 = `{"session_id":"s","type":"tool.call.denied","payload_version":2,"run_id":"r1","actor_type":"runtime","payload":{"call_id":"c1","name":"send_email","reason_code":"user_denied","result_item":{"call_id":"c1","content":[{"type":"text","text":"{\"status\":\"denied\",\"action\":\"send_email\",\"message\":\"The owner said no.\"}"}],"is_error":true,"trust":"platform"}}}
`
	afterDenial = `{"session_id":"s","type":"model.response.completed","run_id":"r1","actor_type":"runtime","payload":{"round":2,"items":[{"kind":"assistant","content":[{"type":"text","text":"Not sent."}]}]}}
{"session_id":"s","type":"run.completed","run_id":"r1","actor_type":"runtime","payload":{"reason":"completed"}}
{"session_id":"s","type":"user.message.created","actor_type":"principal","payload":{"content":[{"type":"text","text":"And now?"}],"trust":"user"}}
`
)

func TestAfterADeniedApprovalTheNextMessageWorks(t *testing.T) {
	cases := map[string]struct{ denial, rendered string }{
		"a denial recorded with its item":                  {denialV2, `{"status":"denied","action":"send_email","message":"The owner said no."}`},
		"a denial that version 1 recorded without an item": {denialV1, `{"status":"denied","action":"send_email","reason_code":"user_denied"}`},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			in := tooltapetest.NewInstall(t, 4)
			p := tooltapetest.Start(t, in.Env, "run", "history")
			tooltapetest.MustRun(t, in.Env, strings.NewReader(beforeDenial+c.denial), "produce", "--backfill", "-")
			tooltapetest.MustRun(t, in.Env, strings.NewReader(afterDenial), "produce", "-")

			shown := tooltapetest.MustRun(t, in.Env, nil, "history", "s", "--at-least", "10", "--wait", "30s", "--format", "anthropic")
			if text := resultText(t, shown); text != c.rendered {
				t.Errorf("the model is shown %s, want %s", text, c.rendered)
			}
			if !strings.Contains(shown, "And now?") {
				t.Errorf("the next message is not there: %s", shown)
			}
			stored := tooltapetest.MustRun(t, in.Env, nil, "history", "s")
			if got, want := items(t, stored), inMemory(t, in); !slices.Equal(got, want) {
				t.Errorf("the history holds\n%s\nthe history in memory\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
			if err := p.Stop(); err != nil {
				t.Error(err)
			}
		})
	}
}

// resultText is the text of the first tool result in an Anthropic rendering.
func resultText(t *testing.T, rendering string) string {
	t.Helper()
	var doc struct {
		Messages []struct {
			Content []struct {
				Type    string
				Content []struct{ Text string }
			}
		}
	}
	if err := json.Unmarshal([]byte(rendering), &doc); err != nil {
		t.Fatal(err)
	}
	for _, m := range doc.Messages {
		for _, b := range m.Content {
			if b.Type == "tool_result" {
				return b.Content[0].Text
			}
		}
	}
	t.Fatalf("no tool result in %s", rendering)
	return ""
}

// items are the elements of the array that history prints, as they stand.
func items(t *testing.T, array string) []string {
	t.Helper()
	var raw []json.RawMessage
	if err := json.Unmarshal([]byte(array), &raw); err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, r := range raw {
		lines = append(lines, string(r))
	}
	return lines
}

// inMemory is the history that a runtime that holds its own events would have.
func inMemory(t *testing.T, in tooltapetest.Install) []string {
	t.Helper()
	var h projection.History
	for line := range strings.Lines(tooltapetest.MustRun(t, in.Env, nil, "cat", "--session", "s")) {
		stored, err := schemas.ParseJSON([]byte(strings.TrimSpace(line)))
		if err != nil {
			t.Fatal(err)
		}
		e, err := stored.Event()
		if err != nil {
			t.Fatal(err)
		}
		if err := h.Append(e); err != nil {
			t.Fatal(err)
		}
	}
	var lines []string
	for _, item := range h.Items() {
		lines = append(lines, string(projection.AppendJSON(nil, item)))
	}
	return lines
}

// TestWithoutTheUpcasterTheJourneyIsRed shows that the journey can fail: with the denial's upcaster taken out of the build, it does.
func TestWithoutTheUpcasterTheJourneyIsRed(t *testing.T) {
	if os.Getenv("TOOLTAPE_TEST_PLANTED") != "" {
		t.Skip("this is the build with the planted bug")
	}
	root := repository(t)
	file := filepath.Join(root, "schemas", "upcast.go")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	const step = `payload["result_item"] = branchValue(payload["result_item"])`
	planted := strings.Replace(string(text), step, "", 1)
	if planted == string(text) {
		t.Fatalf("%s no longer holds %q: say here what the upcaster is now", file, step)
	}
	dir := t.TempDir()
	mutant, overlay := filepath.Join(dir, "upcast.go"), filepath.Join(dir, "overlay.json")
	spec, err := json.Marshal(map[string]any{"Replace": map[string]string{file: mutant}})
	if err != nil {
		t.Fatal(err)
	}
	for path, content := range map[string][]byte{mutant: []byte(planted), overlay: spec} {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), "go", "test", "-count=1", "-run", "TestAfterADeniedApprovalTheNextMessageWorks", "./cmd/tooltape/journey")
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "GOFLAGS="+os.Getenv("GOFLAGS")+" -overlay="+overlay, "TOOLTAPE_TEST_PLANTED=1")
	out, err := cmd.CombinedOutput()
	if err == nil {
		t.Fatalf("the journey passes without the upcaster:\n%s", out)
	}
	if !strings.Contains(string(out), "--- FAIL: TestAfterADeniedApprovalTheNextMessageWorks/a_denial_that_version_1") {
		t.Fatalf("the journey failed for another reason:\n%s", out)
	}
}

// repository is the root of this checkout.
func repository(t testing.TB) string {
	t.Helper()
	dir, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "go.mod")); err != nil {
		t.Fatal(err)
	}
	return dir
}
