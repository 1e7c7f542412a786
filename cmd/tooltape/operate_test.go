package main

import (
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/tooltape/tooltape/processors/topics"
	"github.com/tooltape/tooltape/processors/topics/topicstest"
	"github.com/tooltape/tooltape/schemas"
)

// onNewTopics has a prefix under which there are no topics yet.
func onNewTopics(t *testing.T) *cli {
	t.Helper()
	c := withKafka(t)
	c.flags[len(c.flags)-1] += ".new"
	admin := topicstest.Admin(t)
	names := schemas.Topics{Prefix: c.prefix()}
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		_, _ = admin.DeleteTopics(ctx, names.Events(), names.Runs(), names.Decisions(), names.Retries())
		admin.Close()
	})
	return c
}

// actions are the actions of what topics printed.
func actions(t *testing.T, out string) string {
	t.Helper()
	var words []string
	for _, c := range decoded[[]topics.Change](t, out) {
		words = append(words, c.Action)
	}
	return strings.Join(words, " ")
}

func TestTopicsArePlannedAppliedAndRefused(t *testing.T) {
	c := onNewTopics(t)
	size := []string{"--partitions", "4", "--replication-factor", "1", "-o", "json"}
	topics := func(args ...string) result { return c.run(append(append([]string{"topics"}, args...), size...)...) }
	const create, none = "create create create create", "none none none none"
	for _, step := range []struct{ command, want string }{{"plan", create}, {"apply", create}, {"plan", none}, {"apply", none}} {
		if r := topics(step.command); r.code != exitDone || actions(t, r.out) != step.want {
			t.Errorf("topics %s: exit code %d, %s%s, want %s", step.command, r.code, r.out, r.errs, step.want)
		}
	}
	size[1] = "8"
	r := topics("apply")
	c.failed(r, exitFailed, `"code":"refused"`, "4 partitions, not 8")
	if actions(t, r.out) != "refuse refuse refuse refuse" {
		t.Errorf("refused are %s", r.out)
	}
	if r := topics("plan"); r.code != exitDone {
		t.Errorf("a plan that says what would be refused is no failure, but the exit code is %d", r.code)
	}
}

func TestATopicThatWasMadeAgainIsRefusedOnceItWasProjected(t *testing.T) {
	c := withKafka(t).withDatabase()
	size := []string{"--partitions", "4", "--replication-factor", "1", "-o", "json"}
	c.done(append([]string{"topics", "plan"}, size...)...)
	c.doneOn(said("a", "one"), "produce", "-")
	c.project()
	c.done(append([]string{"topics", "plan"}, size...)...)
	if _, err := topicstest.Admin(t).DeleteTopics(t.Context(), schemas.Topics{Prefix: c.prefix()}.Events()); err != nil {
		t.Fatal(err)
	}
	without := &cli{t, c.flags[2:]} // of the database, that is
	without.done(append([]string{"topics", "apply"}, size...)...)
	c.failed(c.run(append([]string{"topics", "apply"}, size...)...), exitFailed, "deleted and made again")
}

func TestListsOfNothingAreEmptyArrays(t *testing.T) {
	c := withKafka(t).withDatabase()
	for _, command := range []string{"parked", "set-aside"} {
		if out := c.done(command, "-o", "json"); out != "[]\n" {
			t.Errorf("%s prints %q", command, out)
		}
	}
	if out := c.done("cat"); out != "" {
		t.Errorf("cat of an empty log prints %q", out)
	}
}

func TestWhatIsParkedIsListedWithItsColumns(t *testing.T) {
	c := withKafka(t).withDatabase()
	c.doneOn(said("s", "hello")+"\n"+denialV1, "produce", "--backfill", "-")
	c.project()
	if out := c.done("parked", "-o", "json"); out != "[]\n" {
		t.Errorf("a denial of version 1 parks nothing, but parked prints %s", out)
	}
	c.put(schemas.EventKey("s", 3, "018f0000-0000-7000-8000-000000000003"), "s", []byte{7})
	c.put("no key of ours", "s", []byte{8})
	c.project()
	rows := decoded[[]map[string]any](t, c.done("parked", "-o", "json"))
	want := []string{"builds", "code", "held", "message", "offset", "partition", "payload_version", "projection", "seq", "session_id", "since", "type"}
	if len(rows) != 1 || !slices.Equal(slices.Sorted(maps.Keys(rows[0])), want) || rows[0]["code"] != "bad_frame" || rows[0]["session_id"] != "s" {
		t.Errorf("parked are %v, want session s for bad_frame, with the columns %v", rows, want)
	}
	aside := decoded[[]map[string]any](t, c.done("set-aside", "-o", "json"))
	if len(aside) != 1 || aside[0]["code"] != "bad_key" || aside[0]["value"] != "CA==" {
		t.Errorf("set aside are %v, want one record for bad_key", aside)
	}
	c.failed(c.run("history", "s", "-o", "json"), exitFailed, `"code":"parked"`, "bad_frame")
	c.failed(c.run("history", "nobody", "-o", "json"), exitFailed, `"code":"not_yet"`)
	// What the history has not taken, a writer cannot go beyond either: it reads on from there.
	c.doneOn(said("s", "after it"), "produce", "-")
	if n := count(c.run("cat", "--session", "s").out); n != 3 {
		t.Errorf("of session s, %d events can be read, want 3", n)
	}
}

func TestSchemasAreListedAndShown(t *testing.T) {
	c := bare(t)
	rows := decoded[[]schemaRow](t, c.done("schemas", "list", "-o", "json"))
	n, denials := 0, ""
	for _, s := range schemas.Types() {
		n += schemas.Latest(s)
	}
	for _, r := range rows {
		if r.Type == "tool.call.denied" {
			denials += r.Subject
			if r.Current != (r.PayloadVersion == 2) || len(r.Fingerprint) != 16 {
				t.Errorf("the row is %+v", r)
			}
		}
	}
	if want := "tooltape.events-tooltape.tool.call.denied.V1tooltape.events-tooltape.tool.call.denied.V2"; len(rows) != n || denials != want {
		t.Errorf("%d schemas, of denials %s, want %d and %s", len(rows), denials, n, want)
	}
	for args, name := range map[string]string{"tool.call.denied": "V2", "tool.call.denied 1": "V1"} {
		schema := decoded[map[string]any](t, c.done(append([]string{"schemas", "show"}, strings.Fields(args)...)...))
		if schema["name"] != name || schema["namespace"] != "tooltape.tool.call.denied" {
			t.Errorf("schemas show %s is of %v", args, schema["name"])
		}
	}
	c.failed(c.run("schemas", "show", "tool.call.denied", "3"), exitFailed, "no schema")
	c.failed(c.run("schemas", "show", "tool.call.dreamt"), exitFailed, "no schema")
	c.failed(c.run("schemas", "show", "tool.call.denied", "one"), exitUsage, "payload version")
	c.failed(c.run("schemas", "register"), exitUsage, "TOOLTAPE_REGISTRY_URL")
	c.failed(c.run("schemas", "check", "--registry-url", "http://127.0.0.1:1"), exitFailed, "127.0.0.1:1")
}

// newRegistry is as much of a schema registry as the commands ask for.
func newRegistry(t *testing.T) (url string, forget func(subject string)) {
	t.Helper()
	var mu sync.Mutex
	texts, ids := []string{}, map[string]int{} // by subject
	mux := http.NewServeMux()
	answer := func(w http.ResponseWriter, code int, v any) {
		w.Header().Set("Content-Type", "application/vnd.schemaregistry.v1+json")
		w.WriteHeader(code)
		_ = json.NewEncoder(w).Encode(v)
	}
	version := func(subject string) map[string]any {
		return map[string]any{"subject": subject, "version": 1, "id": ids[subject], "schema": texts[ids[subject]-1]}
	}
	notFound := map[string]any{"error_code": 40401, "message": "not found"}
	mux.HandleFunc("POST /subjects/{subject}/versions", func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		var body struct{ Schema string }
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			t.Error(err)
		}
		if subject := r.PathValue("subject"); ids[subject] == 0 {
			texts = append(texts, body.Schema)
			ids[subject] = len(texts)
		}
		answer(w, 200, version(r.PathValue("subject")))
	})
	read := func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		switch subject := r.PathValue("subject"); {
		case ids[subject] == 0:
			answer(w, 404, notFound)
		case r.PathValue("version") == "":
			answer(w, 200, []int{1})
		default:
			answer(w, 200, version(subject))
		}
	}
	mux.HandleFunc("GET /subjects/{subject}/versions", read)
	mux.HandleFunc("GET /subjects/{subject}/versions/{version}", read)
	mux.HandleFunc("GET /schemas/ids/{id}", func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		for subject, id := range ids {
			if r.PathValue("id") == json.Number(strings.TrimSpace(string(mustJSON(t, id)))).String() {
				answer(w, 200, version(subject))
				return
			}
		}
		answer(w, 404, map[string]any{"error_code": 40403, "message": "not found"})
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return server.URL, func(subject string) {
		mu.Lock()
		defer mu.Unlock()
		delete(ids, subject)
	}
}

func mustJSON(t *testing.T, v any) []byte {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestWithARegistryTheSchemasAreRegisteredCheckedAndWrittenWith(t *testing.T) {
	url, forget := newRegistry(t)
	c := withKafka(t)
	c.flags = append([]string{"--registry-url", url}, c.flags...)
	r := c.run("schemas", "check", "-o", "json")
	c.failed(r, exitFailed)
	if rows := decoded[[]differenceRow](t, r.out); len(rows) != len(c.schemaRows()) {
		t.Errorf("of an empty registry, %d differences are told", len(rows))
	}
	if rows := decoded[[]schemaRow](t, c.done("schemas", "register", "-o", "json")); len(rows) != len(c.schemaRows()) {
		t.Errorf("%d schemas are registered", len(rows))
	}
	if out := c.done("schemas", "check", "-o", "json"); out != "[]\n" {
		t.Errorf("after registering, check prints %s", out)
	}
	forget(c.prefix() + ".events-tooltape.run.started.V1")
	c.failed(c.run("schemas", "check"), exitFailed)

	c.doneOn(said("a", "one"), "produce", "-")
	log := c.done("cat")
	without := &cli{t, c.flags[2:]}
	without.failed(without.run("cat"), exitFailed, "unknown_schema", "no schema registry is configured")
	without.doneOn(said("b", "without a registry"), "produce", "-")
	if both := c.done("cat"); count(log) != 1 || count(both) != 2 {
		t.Errorf("with the registry, read are %s", both)
	}
}

// schemaRows are all released schemas.
func (c *cli) schemaRows() []schemaRow { return (&app{}).schemaRows() }
