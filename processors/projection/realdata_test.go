package projection

import (
	"bufio"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tooltape/tooltape/schemas/event"
)

// realData opens a file of real agent logs, which developers' machines have beside the repository.
func realData(t *testing.T, name string) []byte {
	data, err := os.ReadFile(filepath.Join("../../../shared/data", name))
	if errors.Is(err, os.ErrNotExist) {
		t.Skip("no real data here: ", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// In these sessions call ids repeat, with other arguments each time.
func TestRealChatLogsAreRenderedForEveryProvider(t *testing.T) {
	var sessions []struct {
		Traj []struct {
			Role, Content string
			ToolCallID    string `json:"tool_call_id"`
			ToolCalls     []struct {
				ID       string
				Function struct{ Name, Arguments string }
			} `json:"tool_calls"`
		}
	}
	if err := json.Unmarshal(realData(t, "tau-bench/gpt-4o-airline.json"), &sessions); err != nil {
		t.Fatal(err)
	}
	repeated := 0
	for n, session := range sessions {
		var items []Item
		for seq, m := range session.Traj {
			seq, content := int64(seq+1), text(m.Content)
			switch m.Role {
			case "system":
				items = append(items, System{content, seq})
			case "user":
				items = append(items, User{content, event.User, seq})
			case "tool":
				items = append(items, ToolResult{CallID: m.ToolCallID, Content: content, Trust: event.ExternalUntrusted, SourceSeq: seq})
			case "assistant":
				items = append(items, Assistant{Content: content, SourceSeq: seq})
				for _, call := range m.ToolCalls {
					items = append(items, ToolCall{CallID: call.ID, Name: call.Function.Name, Arguments: call.Function.Arguments, SourceSeq: seq})
				}
			}
		}
		c, err := Assemble(items, nil)
		if err != nil {
			t.Fatalf("session %d: %v", n, err)
		}
		keepsTheRules(t, c)
		for i, id := range callIDs(c, openAIChatIDs) {
			if call, ok := c.Items[i].(ToolCall); ok && call.CallID != id {
				repeated++
			}
		}
	}
	if len(sessions) != 200 || repeated == 0 {
		t.Errorf("%d sessions, %d repeated ids", len(sessions), repeated)
	}
}

func keepsTheRules(t *testing.T, c Conversation) {
	t.Helper()
	for _, broken := range brokenRules(must(t, RenderAnthropic, c)) {
		t.Error(broken)
	}
	if broken := brokenChatRules(must(t, renderings["openai-chat"], c)); broken != "" {
		t.Error(broken)
	}
	must(t, RenderOpenAIResponses, c)
}

// One call of this session was never answered: that is said, and with an answer the session goes on.
func TestARealSessionWithACallThatWasNeverAnswered(t *testing.T) {
	var items []Item
	lines := bufio.NewScanner(strings.NewReader(string(realData(t, "claude-code/main.jsonl"))))
	lines.Buffer(nil, 16<<20)
	for seq := int64(1); lines.Scan(); seq++ {
		items = append(items, itemsOfLine(t, lines.Bytes(), seq)...)
	}
	_, err := Assemble(items, nil)
	var orphans *OrphansError
	if !errors.As(err, &orphans) || len(orphans.Calls) != 1 || len(orphans.Results) != 0 {
		t.Fatalf("%v", err)
	}
	items = append(items, ToolResult{CallID: orphans.Calls[0].CallID, Content: text("lost"), Trust: event.Platform, SourceSeq: 1 << 40})
	c, err := Assemble(items, nil)
	if err != nil {
		t.Fatal(err)
	}
	keepsTheRules(t, c)
}

func itemsOfLine(t *testing.T, line []byte, seq int64) (items []Item) {
	var l struct {
		Type    string
		Message struct{ Content json.RawMessage }
	}
	if err := json.Unmarshal(line, &l); err != nil {
		t.Fatal(err)
	}
	var said string
	if json.Unmarshal(l.Message.Content, &said) == nil {
		return []Item{User{text(said), event.User, seq}}
	}
	var blocks []json.RawMessage
	_ = json.Unmarshal(l.Message.Content, &blocks) // other lines have none
	for _, raw := range blocks {
		var b struct {
			Type, Text, ID, Name string
			Input, Content       json.RawMessage
			ToolUseID            string `json:"tool_use_id"`
			IsError              *bool  `json:"is_error"`
		}
		if err := json.Unmarshal(raw, &b); err != nil {
			t.Fatal(err)
		}
		switch {
		case b.Type == "tool_use":
			items = append(items, ToolCall{CallID: b.ID, Name: b.Name, Arguments: string(b.Input), SourceSeq: seq})
		case b.Type == "tool_result":
			result := ToolResult{CallID: b.ToolUseID, Content: text(string(b.Content)), Trust: event.ExternalUntrusted, SourceSeq: seq}
			if b.IsError != nil {
				result.IsError = event.Some(*b.IsError)
			}
			items = append(items, result)
		case b.Type == "text" && l.Type == "assistant":
			items = append(items, Assistant{Content: text(b.Text), SourceSeq: seq})
		case b.Type == "text":
			items = append(items, User{text(b.Text), event.User, seq})
		default:
			items = append(items, Provider{Provider: "anthropic", ProviderKind: b.Type, Data: string(raw), SourceSeq: seq})
		}
	}
	return items
}
