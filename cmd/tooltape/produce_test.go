package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/tooltape/tooltape/schemas"
)

// said is a user message's line, with more fields if there are any.
func said(session, text string, more ...string) string {
	return fmt.Sprintf(`{"session_id":%q,"type":"user.message.created","actor_type":"principal","payload":{"content":[{"type":"text","text":%q}],"trust":"user"}%s}`,
		session, text, strings.Join(append([]string{""}, more...), ","))
}

// at is the place that a line states.
func at(seq int) string {
	return fmt.Sprintf(`"seq":%d,"event_id":"018f0000-0000-7000-8000-%012d"`, seq, seq)
}

const (
	denialV1 = `{"session_id":"s","type":"tool.call.denied","payload_version":1,"actor_type":"runtime","payload":{"call_id":"c1","name":"send_email","reason_code":"user_denied"}}`
	denialV3 = `{"session_id":"s","type":"tool.call.denied","payload_version":3,"actor_type":"runtime","payload":{"call_id":"c1","name":"send_email","reason_code":"user_denied"}}`
)

// wrote demands what produce says it wrote.
func (c *cli) wrote(out string, events, sessions int) {
	c.Helper()
	if got := decoded[produced](c, out); got != (produced{events, sessions}) {
		c.Errorf("produced are %+v, want %d events of %d sessions", got, events, sessions)
	}
}

func TestProducedEventsComeOutOfCatInTheOrderOfTheirSessions(t *testing.T) {
	c := withKafka(t)
	file := c.file("events.jsonl", said("a", "one"), said("b", "uno"), "", said("a", "two"), said("a", "three"))
	c.wrote(c.done("produce", file, "--output", "json"), 4, 2)
	c.wrote(c.doneOn(said("a", "four"), "produce", "-", "-o", "json"), 1, 1)
	var texts []string
	for line := range strings.Lines(c.done("cat", "--session", "a")) {
		e := decoded[struct {
			Seq     int
			Payload struct{ Content []struct{ Text string } }
		}](t, line)
		texts = append(texts, fmt.Sprint(e.Seq, e.Payload.Content[0].Text))
	}
	if want := []string{"1one", "2two", "3three", "4four"}; !slices.Equal(texts, want) {
		t.Errorf("session a is %v, want %v", texts, want)
	}
	if n := count(c.done("cat")); n != 5 {
		t.Errorf("the log has %d lines, want 5", n)
	}
	if n := count(c.done("cat", "--type", "run.started")) + count(c.done("cat", "--run", "r")); n != 0 {
		t.Errorf("%d lines of a type and a run that are not there", n)
	}
}

func TestProducingAFileAgainAddsNothingWhereItsLinesStateTheirPlaces(t *testing.T) {
	for name, store := range map[string]struct{ database, projects bool }{
		"with the log alone": {}, "with a database that has projected nothing": {database: true}, "with one that has projected it": {true, true},
	} {
		t.Run(name, func(t *testing.T) {
			c := withKafka(t)
			if store.database {
				c = c.withDatabase()
			}
			lines := []string{said("a", "one", at(1)), said("a", "two", at(2)), said("b", "uno", at(1)), said("a", "three", at(3))}
			file := c.file("events.jsonl", lines...)
			first := c.done("produce", file)
			before := c.done("cat")
			if store.projects {
				c.project()
			}
			if again := c.done("produce", file); again != first {
				t.Errorf("the second time it says %q, and the first time %q", again, first)
			}
			grown := c.file("grown.jsonl", append(lines, lines[0], said("a", "four", at(4)))...)
			c.done("produce", grown)
			after := c.done("cat")
			if !strings.HasPrefix(sorted(after), sorted(before)) || count(after) != 5 {
				t.Errorf("the log is\n%s\nand was\n%s", after, before)
			}
		})
	}
}

// sorted has the lines of a text in order.
func sorted(text string) string { return strings.Join(slices.Sorted(strings.Lines(text)), "") }

func TestABadLineEndsProduceWhatIsBeforeItIsKeptAndNothingOfItIsWritten(t *testing.T) {
	for name, l := range map[string]struct{ line, code, says string }{
		"no JSON":                     {`{"session_id":"a"`, "bad_envelope", "is cut off"},
		"a key twice":                 {`{"session_id":"a","session_id":"a"}`, "bad_envelope", "session_id: stands there twice"},
		"a key in another case":       {strings.Replace(said("a", "x"), `"type"`, `"Type"`, 1), "bad_envelope", ""},
		"an unknown key":              {said("a", "x", `"sequence":3`), "bad_envelope", ""},
		"bad UTF-8":                   {said("a", "x", `"actor_id":"`+"\xff"+`"`), "bad_envelope", "actor_id"},
		"a lone surrogate":            {said("a", "x", `"actor_id":"\ud800"`), "bad_envelope", "actor_id"},
		"no session":                  {`{"type":"run.started"}`, "", ""},
		"an empty session":            {said("", "x"), "bad_envelope", "session_id: must not be empty"},
		"a seq beyond the next":       {said("a", "x", `"seq":4`), "gap", "seq: it states 4, the session's next is 3"},
		"a seq that is taken":         {said("a", "x", `"seq":1`), "conflict", "seq: it states 1"},
		"another event before":        {said("a", "x", `"prev_event_id":"018f0000-0000-7000-8000-000000000009"`), "conflict", "prev_event_id"},
		"an old version":              {strings.Replace(denialV1, `"s"`, `"a"`, 1), "bad_envelope", "payload_version: is 1, the current one of tool.call.denied is 2"},
		"a newer version":             {strings.Replace(denialV3, `"s"`, `"a"`, 1), "newer_version", "newer than this build knows"},
		"a denial without its item":   {strings.NewReplacer(`"s"`, `"a"`, `"payload_version":1,`, "").Replace(denialV1), "result_item_missing", "payload.result_item"},
		"an unknown type":             {`{"session_id":"a","type":"run.dreamt","payload":{}}`, "unknown_type", "type"},
		"no actor":                    {`{"session_id":"a","type":"session.created","payload":{}}`, "bad_envelope", "actor_type"},
		"a partition key of its own":  {said("a", "x", `"partition_key":"b"`), "bad_envelope", "partition_key"},
		"two objects":                 {said("a", "x") + said("a", "y"), "bad_envelope", "followed by something else"},
		"an array":                    {`[` + said("a", "x") + `]`, "bad_envelope", "not a JSON object"},
		"a line longer than an event": {said("a", strings.Repeat("x", schemas.MaxLine)), "bad_envelope", "longer than"},
	} {
		t.Run(name, func(t *testing.T) {
			c := withKafka(t)
			file := c.file("events.jsonl", said("a", "one"), "", "", said("a", "two"), l.line, said("a", "never"))
			r := c.run("produce", file, "--output", "json")
			c.failed(r, exitFailed, file+" line 5: ", l.says)
			if got := decoded[map[string]map[string]string](t, r.errs)["error"]["code"]; l.code != "" && got != l.code {
				t.Errorf("the code is %s, want %s: %s", got, l.code, r.errs)
			}
			c.wrote(r.out, 2, 1)
			if log := c.done("cat"); count(log) != 2 {
				t.Errorf("the log is %s", log)
			}
		})
	}
}

func TestAnOldVersionIsKeptByABackfillAndRefusedWithout(t *testing.T) {
	c := withKafka(t)
	file := c.file("old.jsonl", denialV1)
	c.failed(c.run("produce", file), exitFailed, "payload_version", "backfill")
	c.done("produce", "--backfill", file)
	log := c.done("cat")
	if !strings.Contains(log, `"payload_version":1`) || strings.Contains(log, "result_item\":{") {
		t.Errorf("the log is %s, want the denial as it was", log)
	}
	if upcast := c.done("cat", "--upcast"); !strings.Contains(upcast, `"payload_version":1`) || !strings.Contains(upcast, `"result_item":null`) {
		t.Errorf("upcast it is %s, want an explicit null", upcast)
	}
	c.failed(c.run("produce", "--backfill", c.file("new.jsonl", denialV3)), exitFailed, "newer than this build knows")
}

func TestCatAndBackfillCopyALog(t *testing.T) {
	c := withKafka(t)
	c.done("produce", "--backfill", c.file("demo.jsonl", string(demo), denialV1))
	log := c.done("cat")
	if count(log) != count(string(demo))+1 {
		t.Fatalf("the log has %d lines, and the demo %d", count(log), count(string(demo)))
	}
	to := c.copied()
	to.doneOn(log, "produce", "--backfill", "-")
	if copied := to.done("cat"); copied != log {
		t.Errorf("the copy differs")
	}
	to.doneOn(log, "produce", "--backfill", "-")
	if copied := to.done("cat"); copied != log {
		t.Errorf("copied again, the copy differs")
	}
}

func TestCatTellsWhatItCannotPrintAndGoesOn(t *testing.T) {
	c := withKafka(t)
	c.done("produce", c.file("events.jsonl", said("a", "one", at(1)), said("a", "two", at(2)), said("b", "uno", at(1))))
	encode := func(line string) []byte {
		stored, err := schemas.ParseJSON([]byte(line))
		if err != nil {
			t.Fatal(err)
		}
		stored.EnvelopeVersion, stored.TenantID, stored.PartitionKey = 1, "default", stored.SessionID
		value, err := schemas.NewEncoder().Encode(nil, stored)
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
	const rival = "018f0000-0000-7000-8000-0000000000ff"
	for key, value := range map[string][]byte{
		"no key of ours":                       encode(said("a", "x", at(1))),
		schemas.EventKey("a", 3, rival):        {7},
		schemas.EventKey("a", 9, rival):        encode(said("a", "x", at(1))),
		schemas.EventKey("b", 1, rival):        encode(said("b", "x", `"seq":1,"event_id":"`+rival+`"`)),
		schemas.EventKey("b", 7, rival):        encode(said("b", "beyond a hole", `"seq":7,"event_id":"`+rival+`","prev_event_id":"018f0000-0000-7000-8000-000000000001"`)),
		schemas.ClosedKey("z"):                 {},
		schemas.EventKey("a", 1, at(1)[20:56]): encode(said("a", "one", at(1))), // sent again
	} {
		c.put(key, key[:1], value)
	}
	r := c.run("cat")
	c.failed(r, exitFailed, "the key has fewer than three parts", "bad_frame", "key_mismatch", "conflict: event "+rival+" claims seq 1 of session b", "session b: seq 2 is not in the log")
	if count(r.out) != 4 || count(r.errs) != 5 {
		t.Errorf("printed are\n%s\nand told\n%s", r.out, r.errs)
	}
	if out := c.done("cat", "--session", "c"); out != "" {
		t.Errorf("of a session that is not there, printed is %s", out)
	}
}

func TestItemsShowsWhatEventsBecome(t *testing.T) {
	c := bare(t)
	out := c.doneOn(said("s", "hello", at(1))+"\n\n"+strings.Replace(denialV1, `"type"`, `"event_id":"018f0000-0000-7000-8000-000000000002","seq":2,"prev_event_id":"018f0000-0000-7000-8000-000000000001","type"`, 1), "items", "-")
	want := []string{
		`{"kind":"user","content":[{"type":"text","text":"hello"}],`,
		`{"kind":"tool_result","call_id":"c1","content":[{"type":"text","text":"{\"status\":\"denied\",\"action\":\"send_email\",\"reason_code\":\"user_denied\"}"}],"is_error":true,"trust":"external_untrusted","source_seq":2}`,
	}
	lines := slices.Collect(strings.Lines(out))
	if len(lines) != 2 || !strings.HasPrefix(lines[0], want[0]) || lines[1] != want[1]+"\n" {
		t.Errorf("the items are\n%s, want\n%s", out, strings.Join(want, "\n"))
	}
	for name, e := range map[string]struct{ line, code, says string }{
		"a v3 denial":              {denialV3, "newer_version", "newer than this build knows (2)"},
		"a v2 denial, no item":     {strings.Replace(denialV1, `"payload_version":1`, `"payload_version":2`, 1), "result_item_missing", "payload.result_item"},
		"an item that is a string": {strings.Replace(denialV1, `"reason_code"`, `"result_item":"no","reason_code"`, 1), "bad_payload", "payload.result_item"},
		"an empty reason":          {strings.Replace(denialV1, `"user_denied"`, `""`, 1), "bad_payload", "payload.reason_code"},
		"no call id":               {strings.Replace(denialV1, `"call_id":"c1",`, "", 1), "bad_payload", "payload.call_id"},
	} {
		t.Run(name, func(t *testing.T) {
			c := bare(t)
			file := c.file("events.jsonl", said("s", "hello", at(1)), e.line)
			r := c.run("items", file, "-o", "json")
			c.failed(r, exitFailed, file+" line 2: ", e.says)
			if got := decoded[map[string]map[string]string](t, r.errs)["error"]; got["code"] != e.code || !slices.Equal(slices.Sorted(maps.Keys(got)), []string{"code", "message"}) {
				t.Errorf("the error is %v, want the code %s and a message", got, e.code)
			}
			if count(r.out) != 1 || !json.Valid([]byte(r.out)) {
				t.Errorf("printed is %q, want the item before it", r.out)
			}
		})
	}
}

func TestALineThatIsTooLongIsSaidToBe(t *testing.T) {
	c := bare(t)
	file := c.file("events.jsonl", "", strings.Repeat("x", maxLine+1))
	c.failed(c.run("items", file), exitFailed, fmt.Sprintf("%s line 2: the line is longer than %d bytes", file, maxLine))
	c.failed(c.run("items", c.file("bom.jsonl", "\ufeff"+said("s", "x"))), exitFailed, "line 1", "byte order mark")
}

// The partition key is fixed by the first event, and the history's tables do not say it.
func TestASessionAboutARecordKeepsItsPartitionKeyOnceItIsProjected(t *testing.T) {
	c := withKafka(t).withDatabase()
	for i := range 8 { // by chance the session's own id leads to the same partition: one of four times
		session := fmt.Sprint("s", i)
		c.doneOn(said(session, "one", fmt.Sprintf(`"partition_key":"default/batch/%d"`, i)), "produce", "-")
	}
	c.project()
	for i := range 8 {
		c.doneOn(said(fmt.Sprint("s", i), "two"), "produce", "-")
	}
	for line := range strings.Lines(c.done("cat")) {
		e := decoded[struct {
			SessionID    string `json:"session_id"`
			PartitionKey string `json:"partition_key"`
		}](t, line)
		if want := "default/batch/" + e.SessionID[1:]; e.PartitionKey != want {
			t.Errorf("session %s has an event with the partition key %s, want %s", e.SessionID, e.PartitionKey, want)
		}
	}
}

func TestWhatTheHistoryHasNotReadYetIsFoundInTheLog(t *testing.T) {
	c := withKafka(t).withDatabase()
	c.doneOn(said("a", "one", at(1)), "produce", "-")
	c.project()
	for _, session := range []string{"a", "b", "c", "d", "e"} { // some of them begin exactly where the history stands
		lines := said(session, "one", at(1)) + "\n" + said(session, "two", at(2))
		c.doneOn(lines, "produce", "-")
		c.doneOn(lines+"\n"+said(session, "three", at(3)), "produce", "-")
	}
	if log := c.done("cat"); count(log) != 15 {
		t.Errorf("the log has %d events, want 15:\n%s", count(log), log)
	}
}
