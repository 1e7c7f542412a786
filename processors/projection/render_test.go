package projection

import (
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tooltape/tooltape/schemas/event"
)

// anthropicDoc is a rendering as an independent reader sees it.
type anthropicDoc struct {
	Messages []struct {
		Role    string
		Content []struct {
			Type, ID, Text string
			ToolUseID      string `json:"tool_use_id"`
			Input          any
		}
	}
}

var anthropicID = regexp.MustCompile(`^[a-zA-Z0-9_-]+$`)

// brokenRules is what the Messages API would refuse: the rules that its types do not say.
func brokenRules(data []byte) (broken []string) {
	var doc anthropicDoc
	if err := json.Unmarshal(data, &doc); err != nil {
		return []string{err.Error()}
	}
	add := func(format string, args ...any) { broken = append(broken, fmt.Sprintf(format, args...)) }
	if len(doc.Messages) == 0 || doc.Messages[0].Role != "user" {
		add("the first message is not a user's")
	}
	seen, open := map[string]bool{}, map[string]bool{}
	for n, m := range doc.Messages {
		if n > 0 && doc.Messages[n-1].Role == m.Role {
			add("messages.%d: roles do not alternate", n)
		}
		if len(m.Content) == 0 {
			add("messages.%d: no content", n)
		}
		asked, others := map[string]bool{}, false
		for _, b := range m.Content {
			switch b.Type {
			case "tool_use":
				if _, object := b.Input.(map[string]any); !object || seen[b.ID] || !anthropicID.MatchString(b.ID) {
					add("messages.%d: call %q", n, b.ID)
				}
				seen[b.ID], asked[b.ID] = true, true
			case "tool_result":
				if !open[b.ToolUseID] || others {
					add("messages.%d: result %q", n, b.ToolUseID)
				}
				delete(open, b.ToolUseID)
			case "text":
				if others = true; strings.TrimSpace(b.Text) == "" {
					add("messages.%d: empty text", n)
				}
			}
		}
		if last := m.Content; m.Role == "assistant" && len(last) > 0 && last[len(last)-1].Type == "thinking" {
			add("messages.%d: ends with thinking", n)
		}
		if len(open) > 0 {
			add("messages.%d: calls without a result: %v", n, open)
		}
		open = asked
	}
	if len(open) > 0 {
		add("calls without a result: %v", open)
	}
	return broken
}

func TestEveryConversationKeepsTheRulesAndAllThatWasSaid(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c, err := Assemble(aSession(t, false), nil)
		if err != nil {
			t.Fatal(err)
		}
		renderings := map[string][]byte{}
		if renderings["openai-chat"], err = RenderOpenAIChat(c, nil); err != nil {
			t.Fatal(err)
		}
		if renderings["openai-responses"], err = RenderOpenAIResponses(c); err != nil {
			t.Fatal(err)
		}
		if renderings["anthropic"], err = RenderAnthropic(c); err != nil {
			if !strings.Contains(err.Error(), "first message must be a user's") {
				t.Fatal(err)
			}
			delete(renderings, "anthropic")
		} else if broken := brokenRules(renderings["anthropic"]); broken != nil {
			t.Fatalf("%s\n%s", renderings["anthropic"], strings.Join(broken, "\n"))
		}
		if broken := brokenChatRules(renderings["openai-chat"]); broken != "" {
			t.Fatalf("%s\n%s", renderings["openai-chat"], broken)
		}
		for name, data := range renderings {
			for _, item := range c.Items {
				if parts := contentOf(item); parts != nil && strings.Count(string(data), string(str(parts[0].(event.Text).Text))) != 1 {
					t.Fatalf("%s says the %s item of seq %d more or less than once:\n%s", name, item.Kind(), item.Seq(), data)
				}
			}
		}
	})
}

// brokenChatRules says where calls and results do not stand together, or an id is not one of a kind.
func brokenChatRules(data []byte) string {
	var doc struct {
		Messages []struct {
			Role       string
			ToolCallID string                `json:"tool_call_id"`
			ToolCalls  []struct{ ID string } `json:"tool_calls"`
		}
	}
	if err := json.Unmarshal(data, &doc); err != nil {
		return err.Error()
	}
	var due []string
	seen := map[string]bool{}
	for n, m := range doc.Messages {
		if m.Role == "tool" {
			if len(due) == 0 || due[0] != m.ToolCallID {
				return fmt.Sprintf("messages.%d: result %q", n, m.ToolCallID)
			}
			due = due[1:]
			continue
		}
		if len(due) > 0 {
			return fmt.Sprintf("messages.%d: calls without a result: %v", n, due)
		}
		for _, call := range m.ToolCalls {
			if seen[call.ID] || len(call.ID) > 40 {
				return fmt.Sprintf("messages.%d: id %q", n, call.ID)
			}
			seen[call.ID], due = true, append(due, call.ID)
		}
	}
	if len(due) > 0 {
		return fmt.Sprintf("calls without a result: %v", due)
	}
	return ""
}

func TestIDsStayWhereTheProviderTakesThem(t *testing.T) {
	long := strings.Repeat("x", 45)
	for name, tc := range map[string]struct {
		rule     idRule
		ids      []string
		rendered []string
	}{
		"as recorded":                  {anthropicIDs, []string{"a", "b"}, []string{"a", "b"}},
		"used again":                   {anthropicIDs, []string{"a", "a", "a"}, []string{"a", "a-2", "a-3"}},
		"a recorded id is not taken":   {anthropicIDs, []string{"a", "a", "a-2"}, []string{"a", "a-3", "a-2"}},
		"not legal there":              {anthropicIDs, []string{"call:1", "ü", ""}, []string{"call_1", "_", "call"}},
		"legal here":                   {openAIChatIDs, []string{"call:1", "ü"}, []string{"call:1", "ü"}},
		"made legal, and taken":        {anthropicIDs, []string{"call:1", "call_1", "call 1"}, []string{"call_1-2", "call_1", "call_1-3"}},
		"too long for chat":            {openAIChatIDs, []string{long, long}, []string{long[:40], long[:38] + "-2"}},
		"not too long for the others":  {openAIResponsesIDs, []string{long}, []string{long}},
		"too long, and used before it": {openAIChatIDs, []string{long[:40], long}, []string{long[:40], long[:38] + "-2"}},
	} {
		t.Run(name, func(t *testing.T) {
			var items []Item
			for n, id := range tc.ids {
				items = append(items, c(int64(2*n+1), id), r(int64(2*n+2), id))
			}
			conversation, err := Assemble(items, nil)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for n, id := range callIDs(conversation, tc.rule) {
				if n%2 == 0 {
					got = append(got, id)
				} else if id != got[n/2] {
					t.Errorf("the result has %q, its call %q", id, got[n/2])
				}
			}
			if !reflect.DeepEqual(got, tc.rendered) {
				t.Errorf("%q; want %q", got, tc.rendered)
			}
		})
	}
}

// renderings are the three, by name.
var renderings = map[string]func(Conversation) ([]byte, error){
	"anthropic":        RenderAnthropic,
	"openai-chat":      func(c Conversation) ([]byte, error) { return RenderOpenAIChat(c, nil) },
	"openai-responses": RenderOpenAIResponses,
}

func TestSmallConversationsAreRenderedExactlySo(t *testing.T) {
	pdf := event.File{Media: event.Media{URI: "HTTPS://x.test/a.pdf", MediaType: "application/pdf"}}
	image := event.Image{Media: event.Media{URI: "https://x.test/a.png", MediaType: "image/png"}}
	thinking := Provider{Provider: "anthropic", Data: `{"type":"thinking","thinking":"hm","signature":"s"}`, SourceSeq: 2}
	reasoning := Provider{Provider: "openai", Data: `{"type":"reasoning","id":"rs_1","summary":[]}`, SourceSeq: 2}
	search := Provider{Provider: "anthropic", Data: `{"type":"server_tool_use","id":"srvtoolu_1","name":"web_search","input":{}}`, SourceSeq: 2}
	for _, tc := range []struct {
		name, rendering string
		items           []Item
		want            string
	}{
		{"system parts stay apart", "anthropic", []Item{System{Content: append(text("A"), text("B")...)}, u(1)},
			`{"system":[{"type":"text","text":"A"},{"type":"text","text":"B"}],"messages":[{"role":"user","content":[{"type":"text","text":"u1"}]}]}`},
		{"instructions are one string", "openai-responses", []Item{System{Content: append(text("A"), text("B")...)}, u(1)},
			`{"instructions":"A\n\nB","input":[{"type":"message","role":"user","content":"u1"}]}`},
		{"empty instructions are none", "openai-chat", []Item{System{Content: text("")}, u(1)}, `{"messages":[{"role":"user","content":"u1"}]}`},
		{"messages of one role become one", "anthropic", []Item{u(1), u(2), a(3), a(4)},
			`{"messages":[{"role":"user","content":[{"type":"text","text":"u1"},{"type":"text","text":"u2"}]},{"role":"assistant","content":[{"type":"text","text":"a3"},{"type":"text","text":"a4"}]}]}`},
		{"messages of one role stay two", "openai-chat", []Item{u(1), u(2), a(3), a(4)},
			`{"messages":[{"role":"user","content":"u1"},{"role":"user","content":"u2"},{"role":"assistant","content":"a3"},{"role":"assistant","content":"a4"}]}`},
		{"white space says nothing", "anthropic", []Item{User{Content: append(text(" \n"), text("x")...)}, Assistant{Content: text("\n\n"), SourceSeq: 2}, c(2, "x"), r(3, "x")},
			`{"messages":[{"role":"user","content":[{"type":"text","text":"x"}]},{"role":"assistant","content":[{"type":"tool_use","id":"x","name":"n","input":{}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"x","content":[{"type":"text","text":"r3"}]}]}]}`},
		{"an empty result", "anthropic", []Item{u(1), c(2, "x"), ToolResult{CallID: "x", IsError: event.Some(false), SourceSeq: 3}},
			`{"messages":[{"role":"user","content":[{"type":"text","text":"u1"}]},{"role":"assistant","content":[{"type":"tool_use","id":"x","name":"n","input":{}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"x","is_error":false}]}]}`},
		{"an empty result and a call without words", "openai-chat", []Item{u(1), Assistant{Content: text(""), SourceSeq: 2}, c(2, "x"), ToolResult{CallID: "x", SourceSeq: 3}},
			`{"messages":[{"role":"user","content":"u1"},{"role":"assistant","content":null,"tool_calls":[{"id":"x","type":"function","function":{"name":"n","arguments":"{}"}}]},{"role":"tool","tool_call_id":"x","content":""}]}`},
		{"one response is one message", "openai-chat", []Item{u(1), a(2), Assistant{Content: text("more"), SourceSeq: 2}, c(2, "x"), r(3, "x")},
			`{"messages":[{"role":"user","content":"u1"},{"role":"assistant","content":[{"type":"text","text":"a2"},{"type":"text","text":"more"}],"tool_calls":[{"id":"x","type":"function","function":{"name":"n","arguments":"{}"}}]},{"role":"tool","tool_call_id":"x","content":"r3"}]}`},
		{"arguments as the model wrote them", "openai-responses", []Item{u(1), ToolCall{CallID: "x", Name: "n", Arguments: "{oops", SourceSeq: 2}, r(3, "x")},
			`{"input":[{"type":"message","role":"user","content":"u1"},{"type":"function_call","call_id":"x","name":"n","arguments":"{oops"},{"type":"function_call_output","call_id":"x","output":"r3"}]}`},
		{"numbers keep their digits, keys stay twice", "anthropic", []Item{u(1), ToolCall{CallID: "x", Name: "n", Arguments: " {\"a\": 1.0,\n\"a\":\t12345678901234567890} ", SourceSeq: 2}, r(3, "x")},
			`{"messages":[{"role":"user","content":[{"type":"text","text":"u1"}]},{"role":"assistant","content":[{"type":"tool_use","id":"x","name":"n","input":{"a":1.0,"a":12345678901234567890}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"x","content":[{"type":"text","text":"r3"}]}]}]}`},
		{"media by its address", "anthropic", []Item{User{Content: []event.Part{image, pdf}}},
			`{"messages":[{"role":"user","content":[{"type":"image","source":{"type":"url","url":"https://x.test/a.png"}},{"type":"document","source":{"type":"url","url":"HTTPS://x.test/a.pdf"}}]}]}`},
		{"media by its address", "openai-responses", []Item{User{Content: append(text("x"), image, pdf)}},
			`{"input":[{"type":"message","role":"user","content":[{"type":"input_text","text":"x"},{"type":"input_image","image_url":"https://x.test/a.png","detail":"auto"},{"type":"input_file","file_url":"HTTPS://x.test/a.pdf"}]}]}`},
		{"media by its address", "openai-chat", []Item{User{Content: []event.Part{image}}},
			`{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"https://x.test/a.png"}}]}]}`},
		{"provider items in their place", "anthropic", []Item{u(1), thinking, reasoning, search, a(2)},
			`{"messages":[{"role":"user","content":[{"type":"text","text":"u1"}]},{"role":"assistant","content":[{"type":"thinking","thinking":"hm","signature":"s"},{"type":"server_tool_use","id":"srvtoolu_1","name":"web_search","input":{}},{"type":"text","text":"a2"}]}]}`},
		{"provider items of its own", "openai-responses", []Item{u(1), thinking, reasoning, search, a(2)},
			`{"input":[{"type":"message","role":"user","content":"u1"},{"type":"reasoning","id":"rs_1","summary":[]},{"type":"message","role":"assistant","content":"a2"}]}`},
		{"provider items are left out", "openai-chat", []Item{u(1), thinking, reasoning, search, u(3)},
			`{"messages":[{"role":"user","content":"u1"},{"role":"user","content":"u3"}]}`},
		{"thinking that nothing came of", "anthropic", []Item{u(1), thinking, u(3), a(4)},
			`{"messages":[{"role":"user","content":[{"type":"text","text":"u1"},{"type":"text","text":"u3"}]},{"role":"assistant","content":[{"type":"text","text":"a4"}]}]}`},
		{"two texts of a model", "openai-responses", []Item{u(1), Assistant{Content: append(text("A"), text("B")...)}},
			`{"input":[{"type":"message","role":"user","content":"u1"},{"type":"message","role":"assistant","content":[{"type":"output_text","text":"A"},{"type":"output_text","text":"B"}]}]}`},
	} {
		t.Run(tc.rendering+": "+tc.name, func(t *testing.T) {
			c, err := Assemble(tc.items, nil)
			if err != nil {
				t.Fatal(err)
			}
			got, err := renderings[tc.rendering](c)
			if err != nil || string(got) != tc.want {
				t.Errorf("%s, %v;\nwant %s", got, err, tc.want)
			}
		})
	}
}

func TestWhatAProviderCannotSayIsAnErrorThatSaysWhy(t *testing.T) {
	at := func(uri string) event.Media { return event.Media{URI: uri, MediaType: "image/png"} }
	image := []event.Part{event.Image{Media: at("https://x.test/a.png")}}
	local := []event.Part{event.Image{Media: at("file:///a.png")}}
	file := []event.Part{event.File{Media: at("https://x.test/a.csv")}}
	asked := func(arguments string) []Item {
		return []Item{u(1), ToolCall{CallID: "x", Name: "n", Arguments: arguments, SourceSeq: 7}, r(8, "x")}
	}
	gave := func(parts []event.Part) []Item {
		return []Item{u(1), c(2, "x"), ToolResult{CallID: "x", Content: parts, SourceSeq: 7}}
	}
	data := func(provider, data string) []Item {
		return []Item{u(1), Provider{Provider: provider, Data: data, SourceSeq: 7}, a(7)}
	}
	user := func(parts []event.Part) []Item { return []Item{User{Content: parts, SourceSeq: 7}} }
	for _, tc := range []struct {
		name, rendering string
		items           []Item
		want            string
	}{
		{"a model speaks first", "anthropic", []Item{a(7), u(8)}, "the first message must be a user's"},
		{"a call comes first", "anthropic", []Item{c(7, "x"), r(8, "x")}, "the first message must be a user's"},
		{"nobody has spoken", "anthropic", []Item{s(7)}, "nobody has said anything"},
		{"arguments cut off", "anthropic", asked(`{"a":`), `the arguments of the call "x" are not a JSON object`},
		{"arguments a list", "anthropic", asked(`[1]`), `the arguments of the call "x" are not a JSON object`},
		{"arguments and more", "anthropic", asked(`{} {}`), `the arguments of the call "x" are not a JSON object`},
		{"an error without text", "anthropic", []Item{u(1), c(2, "x"), ToolResult{CallID: "x", IsError: event.Some(true), SourceSeq: 7}}, "an error without any text"},
		{"a call without a name", "anthropic", []Item{u(1), ToolCall{CallID: "x", SourceSeq: 7}, r(8, "x")}, "has no name"},
		{"a call without a name", "openai-chat", []Item{u(1), ToolCall{CallID: "x", SourceSeq: 7}, r(8, "x")}, "has no name"},
		{"a call without a name", "openai-responses", []Item{u(1), ToolCall{CallID: "x", SourceSeq: 7}, r(8, "x")}, "has no name"},
		{"an image that is not on the web", "anthropic", user(local), "http"},
		{"an image that is not on the web", "openai-chat", user(local), "http"},
		{"an image that is not on the web", "openai-responses", user(local), "http"},
		{"a file that is no PDF", "anthropic", user(file), "PDF"},
		{"a file", "openai-chat", user(file), "file"},
		{"an image in a result", "openai-chat", gave(image), "a user's message"},
		{"an image as instructions", "anthropic", []Item{System{Content: image, SourceSeq: 7}, u(8)}, "text only"},
		{"an image as instructions", "openai-chat", []Item{System{Content: image, SourceSeq: 7}, u(8)}, "a user's message"},
		{"an image as instructions", "openai-responses", []Item{System{Content: image, SourceSeq: 7}, u(8)}, "text only"},
		{"an image by the model", "anthropic", []Item{u(1), Assistant{Content: image, SourceSeq: 7}}, "text only"},
		{"an image by the model", "openai-chat", []Item{u(1), Assistant{Content: image, SourceSeq: 7}}, "text only"},
		{"an image by the model", "openai-responses", []Item{u(1), Assistant{Content: image, SourceSeq: 7}}, "text only"},
		{"a block that is no JSON", "anthropic", data("anthropic", "{"), "not a JSON object"},
		{"a block without a type", "openai-responses", data("openai", `{"id":"x"}`), "with a type"},
		{"a call in disguise", "anthropic", data("anthropic", `{"type":"tool_use","id":"x"}`), "not recorded as one"},
		{"a call in disguise", "openai-responses", data("openai", `{"type":"function_call","id":"x"}`), "not recorded as one"},
	} {
		t.Run(tc.rendering+": "+tc.name, func(t *testing.T) {
			c, err := Assemble(tc.items, nil)
			if err != nil {
				t.Fatal(err)
			}
			got, err := renderings[tc.rendering](c)
			if err == nil || got != nil {
				t.Fatalf("rendered as %s", got)
			}
			if !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), "seq 7") && tc.name != "nobody has spoken" {
				t.Errorf("%v", err)
			}
		})
	}
	c, _ := Assemble([]Item{u(1)}, nil)
	if _, err := RenderOpenAIChat(c, []event.ToolDefinition{{Name: "ls", Parameters: "[]"}}); err == nil || !strings.Contains(err.Error(), `"ls"`) {
		t.Errorf("%v", err)
	}
}
