package projection

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tooltape/tooltape/schemas/event"
)

// Short forms of items for tables: s(1) is a system item of seq 1, and so on.
func s(seq int64) Item { return System{Content: text(fmt.Sprint("s", seq)), SourceSeq: seq} }
func u(seq int64) Item {
	return User{Content: text(fmt.Sprint("u", seq)), Trust: event.User, SourceSeq: seq}
}
func a(seq int64) Item { return Assistant{Content: text(fmt.Sprint("a", seq)), SourceSeq: seq} }
func c(seq int64, id string) Item {
	return ToolCall{CallID: id, Name: "n", Arguments: "{}", SourceSeq: seq}
}
func r(seq int64, id string) Item {
	return ToolResult{CallID: id, Content: text(fmt.Sprint("r", seq)), Trust: event.InternalTool, SourceSeq: seq}
}
func k(seq, through int64) Item {
	return Compaction{ThroughSeq: through, Content: text(fmt.Sprint("k", seq)), Method: "summary", SourceSeq: seq}
}

// sketch shows a conversation as kinds and seqs: "s1 u2 c3>5 r5>3", a pair by the seq of its other half.
func sketch(c Conversation) string {
	var out []string
	for n, item := range c.Items {
		letter := map[string]string{"system": "s", "user": "u", "assistant": "a", "tool_call": "c", "tool_result": "r", "provider": "p",
			"compaction": "k"}[item.Kind()]
		entry := fmt.Sprint(letter, item.Seq())
		if c.Pair[n] >= 0 {
			entry += fmt.Sprint(">", c.Items[c.Pair[n]].Seq())
		}
		out = append(out, entry)
	}
	return strings.Join(out, " ")
}

func TestAssemblePutsAConversationTogether(t *testing.T) {
	grandparent := &Parent{Items: []Item{s(1), u(2), a(3), u(4)}, ThroughSeq: 3}
	parent := &Parent{Items: []Item{u(2), c(3, "x"), r(4, "x"), a(5), u(6)}, ThroughSeq: 5, Parent: grandparent}
	for name, tc := range map[string]struct {
		items  []Item
		parent *Parent
		want   string
	}{
		"nothing":                        {nil, nil, ""},
		"the last system item is first":  {[]Item{s(1), u(2), s(3), a(4)}, nil, "s3 u2 a4"},
		"a pair":                         {[]Item{u(1), c(2, "x"), r(3, "x")}, nil, "u1 c2>3 r3>2"},
		"parallel calls, any order":      {[]Item{c(2, "x"), c(2, "y"), r(3, "y"), r(4, "x")}, nil, "c2>4 c2>3 r3>2 r4>2"},
		"an id used again":               {[]Item{c(1, "x"), r(2, "x"), c(3, "x"), r(4, "x")}, nil, "c1>2 r2>1 c3>4 r4>3"},
		"an id used again while open":    {[]Item{c(1, "x"), c(2, "x"), r(3, "x"), r(4, "x")}, nil, "c1>4 c2>3 r3>2 r4>1"},
		"an id twice in one response":    {[]Item{c(1, "x"), c(1, "x"), r(3, "x"), r(4, "x")}, nil, "c1>3 c1>4 r3>1 r4>1"},
		"a late result":                  {[]Item{c(1, "x"), u(2), a(3), r(4, "x")}, nil, "c1>4 u2 a3 r4>1"},
		"a compaction":                   {[]Item{s(1), u(2), a(3), k(4, 3), u(5)}, nil, "s1 k4 u5"},
		"a compaction of a part":         {[]Item{u(1), a(2), u(3), a(4), k(5, 2), u(6)}, nil, "k5 u3 a4 u6"},
		"a second compaction":            {[]Item{u(1), k(2, 1), u(3), k(4, 3), u(5)}, nil, "k4 u5"},
		"a second, of less":              {[]Item{u(1), u(2), k(3, 2), u(4), k(5, 1)}, nil, "k5 k3 u4"},
		"a second, of as much":           {[]Item{u(1), u(2), k(3, 2), u(4), k(5, 2)}, nil, "k5 u4"},
		"a compaction of everything":     {[]Item{u(1), a(2), k(3, 99), u(4)}, nil, "k3 u4"},
		"system items survive":           {[]Item{u(1), s(2), k(3, 2), u(4)}, nil, "s2 k3 u4"},
		"a compacted open call":          {[]Item{u(1), c(2, "x"), k(3, 2), u(4)}, nil, "k3 u4"},
		"a compacted stray result":       {[]Item{u(1), r(2, "x"), k(3, 2), u(4)}, nil, "k3 u4"},
		"a call answered afterwards":     {[]Item{u(1), a(2), c(2, "x"), c(2, "y"), r(3, "y"), k(4, 3), r(5, "x")}, nil, "k4 a2 c2>5 c2>3 r3>2 r5>2"},
		"and compacted later":            {[]Item{u(1), c(2, "x"), k(3, 2), r(4, "x"), k(5, 4), u(6)}, nil, "k5 u6"},
		"an id used before and after":    {[]Item{c(1, "x"), r(2, "x"), k(3, 2), c(4, "x"), r(5, "x")}, nil, "k3 c4>5 r5>4"},
		"a fork of a fork":               {[]Item{u(2), a(3)}, parent, "s1 u2 a3 u2 c3>4 r4>3 a5 u2 a3"},
		"a fork's system item":           {[]Item{s(2), u(3)}, parent, "s2 u2 a3 u2 c3>4 r4>3 a5 u3"},
		"a fork's compaction":            {[]Item{u(2), a(3), k(4, 2), u(5)}, parent, "s1 k4 a3 u5"},
		"a fork's call answered by none": {[]Item{u(2)}, &Parent{Items: parent.Items, ThroughSeq: 2, Parent: grandparent}, "s1 u2 a3 u2 u2"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Assemble(tc.items, tc.parent)
			if err != nil || sketch(got) != tc.want {
				t.Errorf("%q, %v; want %q", sketch(got), err, tc.want)
			}
		})
	}
}

func TestResponsesOfTwoSessionsAreNeverOne(t *testing.T) {
	got, err := Assemble([]Item{a(3)}, &Parent{Items: []Item{u(2), a(3)}, ThroughSeq: 3})
	if err != nil || got.Response[1] == got.Response[2] {
		t.Errorf("%v, %v", got.Response, err)
	}
}

func TestOrphansAreListedAndNothingIsMadeUp(t *testing.T) {
	for name, tc := range map[string]struct {
		items []Item
		want  OrphansError
	}{
		"a call at the end":         {[]Item{u(1), c(2, "x")}, OrphansError{Calls: []Orphan{{"x", 2, false}}}},
		"one of two parallel calls": {[]Item{c(2, "x"), c(2, "y"), r(3, "y")}, OrphansError{Calls: []Orphan{{"x", 2, false}}}},
		"a result before its call":  {[]Item{r(1, "x"), c(2, "x")}, OrphansError{[]Orphan{{"x", 2, false}}, []Orphan{{"x", 1, false}}}},
		"a second result":           {[]Item{c(1, "x"), r(2, "x"), r(3, "x")}, OrphansError{Results: []Orphan{{"x", 3, false}}}},
		"a result of another case":  {[]Item{c(1, "x"), r(2, "X")}, OrphansError{[]Orphan{{"x", 1, false}}, []Orphan{{"X", 2, false}}}},
		"an earlier call with its id": {[]Item{c(1, "x"), c(2, "x"), r(3, "x")},
			OrphansError{Calls: []Orphan{{"x", 1, false}}}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Assemble(tc.items, nil)
			var got *OrphansError
			if !errors.As(err, &got) || !reflect.DeepEqual(*got, tc.want) {
				t.Fatalf("%v", err)
			}
			if !strings.Contains(err.Error(), "tooltape close") {
				t.Errorf("the error does not say what to do: %v", err)
			}
		})
	}
	parent := &Parent{Items: []Item{u(1), c(2, "x"), r(3, "x")}, ThroughSeq: 2}
	if _, err := Assemble([]Item{u(2)}, parent); err == nil || !strings.Contains(err.Error(), `"x" (seq 2 of the session it was forked from)`) {
		t.Errorf("%v", err)
	}
	var many []Item
	for n := range int64(12) {
		many = append(many, c(n+1, fmt.Sprint("x", n)))
	}
	if _, err := Assemble(many, nil); !strings.Contains(err.Error(), "and 2 more") || strings.Contains(err.Error(), "x10") {
		t.Errorf("%v", err)
	}
}

func TestWriteTaintReadsTheActiveTurnAlone(t *testing.T) {
	user := func(trust event.Trust) Item { return User{Content: text("x"), Trust: trust} }
	tool := func(trust event.Trust) Item { return ToolResult{CallID: "c", Trust: trust} }
	for name, tc := range map[string]struct {
		items []Item
		want  bool
	}{
		"nobody has spoken":                            {nil, true},
		"only an application has spoken":               {[]Item{user(event.Platform), tool(event.InternalTool)}, true},
		"a user has spoken":                            {[]Item{user(event.User)}, false},
		"a trusted result":                             {[]Item{user(event.User), tool(event.InternalTool), tool(event.Memory), tool(event.Platform)}, false},
		"an untrusted result":                          {[]Item{user(event.User), tool(event.ExternalUntrusted)}, true},
		"a result out of the knowledge base":           {[]Item{user(event.User), tool(event.Knowledge), a(1)}, true},
		"an old denial in an earlier turn":             {[]Item{user(event.User), tool(event.ExternalUntrusted), user(event.User), tool(event.InternalTool)}, false},
		"an application speaks after the result":       {[]Item{user(event.User), tool(event.ExternalUntrusted), user(event.Platform)}, true},
		"a late result of an earlier turn's call":      {[]Item{user(event.User), c(1, "c"), user(event.User), tool(event.ExternalUntrusted)}, true},
		"content of a message is not a tool's":         {[]Item{user(event.User), user(event.ExternalUntrusted)}, false},
		"a compaction does not begin a turn":           {[]Item{user(event.User), tool(event.Knowledge), k(1, 1)}, true},
		"a denial of which nothing but facts are left": {append([]Item{user(event.User)}, unrecorded(t)...), true},
	} {
		if got := WriteTaint(tc.items); got != tc.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func unrecorded(t *testing.T) []Item {
	items, err := Items(at(5, event.ToolCallDenied{ToolResult: event.ToolResult{CallID: "c", Name: "n", ReasonCode: event.Some("r"),
		ResultItem: event.RecordedItem{State: event.Null}}}))
	if err != nil {
		t.Fatal(err)
	}
	return items
}

// aSession draws the items of a session as runtimes write them, now and then with orphans. Each text is there once.
func aSession(t *rapid.T, orphaned bool) []Item {
	ids := rapid.SampledFrom([]string{"a", "b", "a-2", "c:1", "c_1", "ü", strings.Repeat("l", 70)})
	items, open, seq := []Item{u(1)}, []string{}, int64(1)
	for range rapid.IntRange(0, 14).Draw(t, "events") {
		seq++
		switch rapid.SampledFrom([]string{"user", "response", "result", "result", "system", "compaction", "stray"}).Draw(t, "event") {
		case "user":
			items = append(items, u(seq))
		case "system":
			items = append(items, s(seq))
		case "compaction":
			items = append(items, k(seq, rapid.Int64Range(1, seq-1).Draw(t, "through")))
		case "stray":
			if orphaned {
				items = append(items, r(seq, ids.Draw(t, "id")))
			}
		case "response":
			items = append(items, Provider{Provider: rapid.SampledFrom([]string{"anthropic", "openai", "x"}).Draw(t, "provider"),
				Data: fmt.Sprintf(`{"type":"thinking","thinking":"t%d"}`, seq), SourceSeq: seq})
			if rapid.Bool().Draw(t, "talks") {
				items = append(items, a(seq))
			}
			for range rapid.IntRange(0, 3).Draw(t, "calls") {
				id := ids.Draw(t, "id")
				items, open = append(items, c(seq, id)), append(open, id)
			}
		case "result":
			if len(open) > 0 {
				n := rapid.IntRange(0, len(open)-1).Draw(t, "which")
				items, open = append(items, r(seq, open[n])), append(open[:n:n], open[n+1:]...)
			}
		}
	}
	if !orphaned {
		for _, id := range open {
			seq++
			items = append(items, r(seq, id))
		}
	}
	return items
}

func TestEveryCallHasItsOneResultOrThereIsAnError(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		items := aSession(t, true)
		want := pairedSlowly(items)
		got, err := Assemble(items, nil)
		if err != nil {
			var orphans *OrphansError
			if !errors.As(err, &orphans) {
				t.Fatal(err)
			}
			return
		}
		for n, item := range got.Items {
			mate := got.Pair[n]
			switch item := item.(type) {
			case ToolCall, ToolResult:
				if mate < 0 || got.Pair[mate] != n || !reflect.DeepEqual(want[key(items, item)], got.Items[mate]) && item.Kind() == "tool_result" {
					t.Fatalf("%s: item %d, whose other half should be %v", sketch(got), n, want[key(items, item)])
				}
			default:
				if mate != -1 {
					t.Fatalf("%s: item %d has another half", sketch(got), n)
				}
			}
		}
	})
}

// key is the index of a result in a session; results have a seq of their own.
func key(items []Item, item Item) int {
	for n, other := range items {
		if other.Kind() == item.Kind() && other.Seq() == item.Seq() {
			return n
		}
	}
	return -1
}

// pairedSlowly is the rule of pairing told another way: the call of each result, by the result's index.
func pairedSlowly(items []Item) map[int]Item {
	calls, used := map[int]Item{}, map[int]bool{}
	for n, item := range items {
		result, ok := item.(ToolResult)
		best := -1
		for m := n - 1; ok && m >= 0; m-- {
			call, isCall := items[m].(ToolCall)
			if isCall && call.CallID == result.CallID && !used[m] && (best < 0 || call.SourceSeq == items[best].Seq()) {
				best = m
			}
		}
		if best >= 0 {
			used[best], calls[n] = true, items[best]
		}
	}
	return calls
}
