package journey_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/tooltape/tooltape/loadtest/tooltapetest"
	"github.com/tooltape/tooltape/processors/topics/topicstest"
	"github.com/tooltape/tooltape/schemas"
)

// said is a user's message as a line for produce.
func said(session, run, text string) string {
	line := map[string]any{
		"session_id": session, "type": "user.message.created", "actor_type": "principal",
		"payload": map[string]any{"content": []any{map[string]string{"type": "text", "text": text}}, "trust": "user"},
	}
	if run != "" {
		line["run_id"] = run
	}
	out, err := json.Marshal(line)
	if err != nil {
		panic(err)
	}
	return string(out) + "\n"
}

func runEvent(session, run, kind, payload string) string {
	return fmt.Sprintf(`{"session_id":%q,"run_id":%q,"type":%q,"actor_type":"runtime","payload":%s}`+"\n", session, run, kind, payload)
}

// eventually waits until what a command prints is as wanted.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !ok(); <-time.After(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not in 30 s: %s", what)
		}
	}
}

func TestAPurgedRunLeavesItsPlaceAndNoWord(t *testing.T) {
	in := tooltapetest.NewInstall(t, 4)
	tooltapetest.Start(t, in.Env, "run", "history")
	log := said("s", "", "before") +
		runEvent("s", "r1", "run.started", `{"skills":[]}`) + said("s", "r1", "secret")
	tooltapetest.MustRun(t, in.Env, strings.NewReader(log), "produce", "-")
	if r := tooltapetest.Run(t, in.Env, nil, "purge", "--session", "s", "--run", "r1"); r.Code != 1 || !strings.Contains(r.Errs, "is open") {
		t.Errorf("an open run: exit code %d, %s", r.Code, r.Errs)
	}
	tooltapetest.MustRun(t, in.Env, strings.NewReader(runEvent("s", "r1", "run.completed", `{"reason":"completed"}`)+said("s", "", "after")), "produce", "-")
	tooltapetest.MustRun(t, in.Env, nil, "history", "s", "--at-least", "5", "--wait", "30s")
	tooltapetest.MustRun(t, in.Env, nil, "purge", "--session", "s", "--run", "r1")
	eventually(t, "the history without the run", func() bool {
		h := tooltapetest.MustRun(t, in.Env, nil, "history", "s")
		return !strings.Contains(h, "secret") && strings.Contains(h, "before") && strings.Contains(h, "after")
	})
	tooltapetest.MustRun(t, in.Env, strings.NewReader(said("s", "", "later")), "produce", "-")
	if h := tooltapetest.MustRun(t, in.Env, nil, "history", "s", "--at-least", "6", "--wait", "30s"); !strings.Contains(h, "later") {
		t.Errorf("the session does not go on: %s", h)
	}
	if c := tooltapetest.MustRun(t, in.Env, nil, "cat", "--session", "s"); strings.Contains(c, "secret") || strings.Count(c, "event.purged") != 3 {
		t.Errorf("the log holds %s", c)
	}
}

func TestAPurgedSessionIsGoneAndItsForksAreNamed(t *testing.T) {
	in := tooltapetest.NewInstall(t, 4)
	tooltapetest.Start(t, in.Env, "run", "history")
	fork := `{"session_id":"fork","type":"session.created","actor_type":"application","payload":{"forked_from":{"session_id":"s","seq":1}}}` + "\n"
	tooltapetest.MustRun(t, in.Env, strings.NewReader(said("s", "", "secret")+said("other", "", "stays")+fork), "produce", "-")
	tooltapetest.MustRun(t, in.Env, nil, "history", "s", "--wait", "30s")
	r := tooltapetest.Run(t, in.Env, nil, "purge", "--session", "s")
	if r.Code != 0 || !strings.Contains(r.Errs, "session fork was forked from it") {
		t.Errorf("exit code %d, %s", r.Code, r.Errs)
	}
	eventually(t, "the session is gone", func() bool { return tooltapetest.Run(t, in.Env, nil, "history", "s").Code == 1 })
	tooltapetest.MustRun(t, in.Env, nil, "history", "other")
	if aside := tooltapetest.MustRun(t, in.Env, nil, "set-aside", "--output", "json"); strings.TrimSpace(aside) != "[]" {
		t.Errorf("announced tombstones were set aside: %s", aside)
	}
}

func TestASettledConflictGoesOnWithWhatWasKept(t *testing.T) {
	in := tooltapetest.NewInstall(t, 4)
	p := tooltapetest.Start(t, in.Env, "run", "history")
	tooltapetest.MustRun(t, in.Env, strings.NewReader(said("s", "", "one")+said("s", "", "two")+said("s", "", "three")), "produce", "-")
	tooltapetest.MustRun(t, in.Env, nil, "history", "s", "--at-least", "3", "--wait", "30s")
	kept, rival := rivals(t, in)
	eventually(t, "the conflict is seen", func() bool {
		return strings.Contains(tooltapetest.MustRun(t, in.Env, nil, "parked"), "conflict")
	})
	gone := tooltapetest.MustRun(t, in.Env, nil, "settle", "s", "--keep", kept, "--output", "json")
	if !strings.Contains(gone, rival) || strings.Contains(gone, kept) {
		t.Errorf("withdrawn are %s, want %s and not %s", gone, rival, kept)
	}
	eventually(t, "the session goes on", func() bool {
		r := tooltapetest.Run(t, in.Env, nil, "history", "s", "--at-least", "3")
		return r.Code == 0 && !strings.Contains(r.Out, "rival") && strings.Contains(r.Out, "three")
	})
	if err := p.Stop(); err != nil {
		t.Error(err)
	}
}

// rivals writes, past every writer, another event at the place of the session's last. It returns both ids.
func rivals(t *testing.T, in tooltapetest.Install) (kept, rival string) {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(tooltapetest.MustRun(t, in.Env, nil, "cat", "--session", "s")), "\n")
	stored, err := schemas.ParseJSON([]byte(strings.ReplaceAll(lines[2], "three", "rival")))
	if err != nil {
		t.Fatal(err)
	}
	kept, rival = stored.EventID, "018f0000-0000-7000-8000-00000000000f"
	stored.EventID = rival
	value, err := schemas.NewEncoder().Encode(nil, stored)
	if err != nil {
		t.Fatal(err)
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(topicstest.Brokers(t)...), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	r := &kgo.Record{Topic: in.Topics.Events(), Partition: schemas.Partition("s", 4), Key: []byte(schemas.EventKey("s", 3, rival)), Value: value}
	if err := client.ProduceSync(t.Context(), r).FirstErr(); err != nil {
		t.Fatal(err)
	}
	return kept, rival
}

func TestAfterACrashTheSessionIsClosedWithWhatIsKnown(t *testing.T) {
	in := tooltapetest.NewInstall(t, 4)
	tooltapetest.Start(t, in.Env, "run", "history")
	log := said("s", "", "do it") + runEvent("s", "r1", "run.started", `{"skills":[]}`) +
		runEvent("s", "r1", "model.response.completed", `{"round":1,"items":[{"kind":"tool_call","call_id":"c1","name":"send","arguments":"{}"},{"kind":"tool_call","call_id":"c2","name":"read","arguments":"{}"}]}`) +
		runEvent("s", "r1", "tool.call.started", `{"call_id":"c1","name":"send"}`)
	tooltapetest.MustRun(t, in.Env, strings.NewReader(log), "produce", "-")
	r := tooltapetest.Run(t, in.Env, nil, "history", "s", "--at-least", "4", "--wait", "30s", "--format", "anthropic")
	if r.Code != 1 || !strings.Contains(r.Errs, "tooltape close") {
		t.Errorf("exit code %d, %s", r.Code, r.Errs)
	}
	closed := tooltapetest.MustRun(t, in.Env, nil, "close", "s", "--reason", "the machine went away", "--output", "json")
	if !strings.Contains(closed, "tool.call.uncertain") || !strings.Contains(closed, "tool.call.cancelled") {
		t.Errorf("recorded are %s", closed)
	}
	shown := tooltapetest.MustRun(t, in.Env, nil, "history", "s", "--at-least", "6", "--wait", "30s", "--format", "anthropic")
	if !strings.Contains(shown, "the machine went away") || strings.Count(shown, `"tool_result"`) != 2 {
		t.Errorf("the model is shown %s", shown)
	}
	if again := tooltapetest.MustRun(t, in.Env, nil, "close", "s", "--reason", "again", "--output", "json"); strings.TrimSpace(again) != "[]" {
		t.Errorf("closing again recorded %s", again)
	}
}
