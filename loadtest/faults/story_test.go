package faults_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tooltape/tooltape/loadtest/tooltapetest"
	"github.com/tooltape/tooltape/schemas/event"
	"github.com/tooltape/tooltape/sinks/history"
	"github.com/tooltape/tooltape/sinks/postgres"
	"github.com/tooltape/tooltape/sinks/sinktest"
)

// oldBuild is a tooltape of before version 2 of the denial.
func oldBuild(t *testing.T) string {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	return tooltapetest.Altered(t, root, map[string]string{
		"schemas/frozen.txt": without(t, root, "schemas/frozen.txt", "tool.call.denied 2 "),
		"schemas/upcast.go":  without(t, root, "schemas/upcast.go", "{event.ToolCallDeniedType, 1}:"),
	})
}

// without is a file without the one line that begins so.
func without(t *testing.T, root, file, beginning string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, file))
	if err != nil {
		t.Fatal(err)
	}
	var kept strings.Builder
	dropped := 0
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(strings.TrimSpace(line), beginning) {
			dropped++
			continue
		}
		kept.WriteString(line)
	}
	if dropped != 1 {
		t.Fatalf("%s has %d lines that begin with %q, want one", file, dropped, beginning)
	}
	return kept.String()
}

// denial is a denial as version 2 records it.
func denial(call string) event.Event {
	return event.Event{Envelope: event.Envelope{ActorType: "runtime"}, Payload: event.ToolCallDenied{ToolResult: event.ToolResult{
		CallID: call, Name: "send_email", ReasonCode: event.Some("user_denied"),
		ResultItem: event.Recorded(event.ResultItem{
			CallID: call, Content: []event.Part{event.Text{Text: "denied " + call}}, IsError: event.Some(true), Trust: event.Platform,
		}),
	}}}
}

func message(text string) event.Event {
	return event.Event{Envelope: event.Envelope{ActorType: "principal"}, Payload: event.UserMessageCreated{
		Content: []event.Part{event.Text{Text: text}}, Trust: event.User,
	}}
}

// The story of the first decision record. A new release records denials as version 2 while an old build still projects: it parks those
// sessions and goes on with the others; the new build starts, and all is projected, as if the old one had never been.
func TestDenialsOfANewReleaseWaitForTheBuildThatKnowsThem(t *testing.T) {
	in := tooltapetest.NewInstall(t, 4)
	w := writer(t, in)
	pool := sinktest.Connect(t, in.Database)
	const sessions = 100
	write := func(id string, drafts ...event.Event) {
		if _, err := w.Append(t.Context(), id, drafts...); err != nil {
			t.Fatal(err)
		}
	}
	for i := range sessions {
		id := fmt.Sprint("session-", i)
		write(id, message("hello"), message("please"))
		if i%10 == 0 { // too few for the build to be taken for a bad one
			write(id, denial("c1"), message("and now?"))
		} else {
			write(id, message("fine"), message("and now?"))
		}
	}
	old := tooltapetest.StartBinary(t, oldBuild(t), in.Env, "run", "history", "--instance-id", "one")
	parkedAre(t, pool, func(parked []postgres.ParkedSession) bool { return len(parked) == sessions/10 })
	parked, err := postgres.ParkedSessions(t.Context(), pool, postgres.ParkedFilter{})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range parked {
		if p.Code != event.NewerVersion || p.Seq != 3 || p.PayloadVersion != 2 {
			t.Errorf("session %s is parked for %s at seq %d, want newer_version at the denial", p.SessionID, p.Code, p.Seq)
		}
	}
	until(t, "the neighbours went on", func() bool { return totals(t, pool).Events == sessions*4-sessions/10*2 })
	if err := old.Stop(); err != nil {
		t.Fatal(err)
	}
	tooltapetest.Start(t, in.Env, "run", "history", "--instance-id", "one")
	parkedAre(t, pool, func(parked []postgres.ParkedSession) bool { return len(parked) == 0 })
	until(t, "all is projected", func() bool { return totals(t, pool).Events == sessions*4 })

	never := sinktest.Database(t, history.View())
	untouched := sinktest.Connect(t, never)
	other := tooltapetest.Env(strings.TrimPrefix(in.Env[0], "TOOLTAPE_BROKERS="), never, in.Topics.Prefix)
	// The static member's name is taken over: the group gives its partitions to the newcomer.
	tooltapetest.Start(t, other, "run", "history", "--instance-id", "one")
	until(t, "all is projected by a build that never met the old one", func() bool { return totals(t, untouched).Events == sessions*4 })
	if got, want := digest(t, pool), digest(t, untouched); got != want {
		t.Errorf("the healed tables have the digest %s, those that never saw the old build %s", got, want)
	}
}
