package journey_test

import (
	"os"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/tooltape/tooltape/loadtest/tooltapetest"
	"github.com/tooltape/tooltape/processors/eventlog"
	"github.com/tooltape/tooltape/processors/topics/topicstest"
)

func TestWithARegistryTheLogIsInItsWireFormatAndGoesTheWholeWay(t *testing.T) {
	registry := os.Getenv("TOOLTAPE_TEST_REGISTRY_URL")
	if registry == "" {
		t.Skip("TOOLTAPE_TEST_REGISTRY_URL names no registry")
	}
	in := tooltapetest.NewInstall(t, 4)
	// What was written before there was a registry stays readable beside what is written with it.
	tooltapetest.MustRun(t, in.Env, strings.NewReader(said("s", "", "before")), "produce", "-")
	env := append(in.Env, "TOOLTAPE_REGISTRY_URL="+registry)
	tooltapetest.Start(t, env, "run", "history")
	tooltapetest.MustRun(t, env, strings.NewReader(beforeDenial+denialV1), "produce", "--backfill", "-")
	tooltapetest.MustRun(t, env, strings.NewReader(afterDenial), "produce", "-")
	shown := tooltapetest.MustRun(t, env, nil, "history", "s", "--at-least", "11", "--wait", "60s", "--format", "anthropic")
	if !strings.Contains(shown, "before") || !strings.Contains(shown, "And now?") || resultText(t, shown) != `{"status":"denied","action":"send_email","reason_code":"user_denied"}` {
		t.Errorf("the model is shown %s", shown)
	}
	if got := framings(t, in); got["\x00"] != 10 || got["\xc3"] != 1 {
		t.Errorf("the values begin with %v, want 10 in the registry's wire format and the one from before", got)
	}
	tooltapetest.MustRun(t, env, nil, "schemas", "check")
}

// framings counts the values of the log by their first byte.
func framings(t *testing.T, in tooltapetest.Install) map[string]int {
	t.Helper()
	log, err := eventlog.Open([]kgo.Opt{kgo.SeedBrokers(topicstest.Brokers(t)...)}, in.Topics.Events())
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	first := map[string]int{}
	if err := log.ReadAll(t.Context(), func(r *kgo.Record) error { first[string(r.Value[:1])]++; return nil }); err != nil {
		t.Fatal(err)
	}
	return first
}
