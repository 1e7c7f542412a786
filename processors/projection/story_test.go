package projection

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/tooltape/tooltape/schemas/event"
)

// tape is a history that events are added to without numbering them by hand.
type tape struct {
	*History
	t *testing.T
}

func newTape(t *testing.T, parent *Parent) tape { return tape{&History{Parent: parent}, t} }

func (s tape) add(payloads ...event.Payload) {
	s.t.Helper()
	for _, p := range payloads {
		if err := s.Append(at(s.Seq()+1, p)); err != nil {
			s.t.Fatal(err)
		}
	}
}

// says is a user's message, answers a response of text alone, asks a response that makes calls.
func says(s string) event.Payload {
	return event.UserMessageCreated{Content: text(s), Trust: event.User}
}

func answers(s string) event.Payload {
	return event.ModelResponseCompleted{Items: []event.ResponseItem{event.AssistantMessage{Content: text(s)}}}
}

func asks(items ...event.ResponseItem) event.Payload {
	return event.ModelResponseCompleted{Items: items}
}

func call(id, name, arguments string) event.ResponseItem {
	return event.ToolCall{CallID: id, Name: name, Arguments: arguments}
}

// resultOf is a recorded result.
func resultOf(id, name, content string, isError event.Opt[bool], trust event.Trust) event.ToolResult {
	return event.ToolResult{CallID: id, Name: name, ResultItem: event.Recorded(event.ResultItem{CallID: id, Content: text(content),
		IsError: isError, Trust: trust})}
}

func completed(id, content string) event.Payload {
	return event.ToolCallCompleted{ToolResult: resultOf(id, "tool", content, event.Some(false), event.InternalTool)}
}

// theStory is one small session with all that makes histories hard: parallel calls of which one fails, a denial from before
// items were recorded with it, an approval that comes user turns later, a recorded denial, one call id used twice, thinking,
// reasoning of another provider, a picture.
func theStory(t *testing.T) tape {
	s := newTape(t, nil)
	s.add(
		event.SessionCreated{AgentID: event.Some("mail-agent")},
		event.SystemMessageCreated{Content: text("You are a clerk.")},
		event.SystemMessageCreated{Content: text("You are a careful clerk.")},
		event.UserMessageCreated{Content: []event.Part{event.Text{Text: "Schick die Rechnung für „Müller & Söhne“ 📧 raus."},
			event.Image{Media: event.Media{URI: "https://files.test/rechnung.png", MediaType: "image/png"}}}, Trust: event.User},
		event.RunStarted{AgentID: event.Some("mail-agent")},
		event.ModelRequestStarted{Round: 1},
		asks(
			event.ProviderItem{Provider: "anthropic", ProviderKind: "thinking", Text: event.Some("Read first."),
				Data: `{"type":"thinking","thinking":"Read first.","signature":"EqQBCg=="}`},
			event.AssistantMessage{Content: text("Ich lese zuerst die Rechnung und suche das Archiv.")},
			call("toolu_01A", "read_file", `{"path": "rechnungen/müller.txt", "line": 12345678901234567890}`),
			call("toolu_01B", "shell", `{"command":"tar tf archive.tgz"}`),
		),
		event.ToolCallProposed{CallID: "toolu_01A", Name: "read_file", Effect: event.Some(event.ReadOnly)},
		event.ToolCallFailed{ToolResult: resultOf("toolu_01B", "shell", "tar: archive.tgz: Cannot open\nExit code 2", event.Some(true),
			event.InternalTool)},
		event.ToolCallCompleted{ToolResult: resultOf("toolu_01A", "read_file", "Rechnung 4711\nBetrag: 98,70 €", event.Opt[bool]{},
			event.ExternalUntrusted)},
		event.ModelRequestStarted{Round: 2},
		asks(call("toolu_01A", "send_email", `{"to":"buchhaltung@example.com"}`), call("archive:1", "archive", "")),
		event.ApprovalRequested{ApprovalID: "ap_1", CallIDs: []string{"toolu_01A"}},
		event.ToolCallDenied{ToolResult: event.ToolResult{CallID: "archive:1", Name: "archive", ReasonCode: event.Some("policy.refused"),
			ResultItem: event.RecordedItem{State: event.Null}}},
		says("Noch da?"),
		says("Hallo?"),
		answers("Ich warte auf die Freigabe."),
		says("Ist freigegeben."),
		event.ApprovalResolved{ApprovalID: "ap_1", Approved: true, Resolution: "approve_once", CallIDs: []string{"toolu_01A"}},
		event.ToolCallCompleted{ToolResult: resultOf("toolu_01A", "send_email", "sent", event.Some(false), event.InternalTool)},
		asks(event.ProviderItem{Provider: "openai", ProviderKind: "reasoning",
			Data: "{\n  \"type\": \"reasoning\",\n  \"id\": \"rs_1\",\n  \"summary\": []\n}"},
			event.AssistantMessage{Content: text("")}, call("call_9", "delete_draft", `{}`)),
		event.ToolCallDenied{ToolResult: resultOf("call_9", "delete_draft", "The user does not want this.", event.Some(true),
			event.Platform)},
		answers("Die E-Mail ist raus; der Entwurf bleibt."),
		event.RunCompleted{Reason: "completed"},
	)
	return s
}

// toldThreeWays compares a conversation with its golden files: the items, and one file a rendering.
func toldThreeWays(t *testing.T, name string, h *History) {
	t.Helper()
	c, err := h.Conversation()
	if err != nil {
		t.Fatal(err)
	}
	golden(t, name+"/conversation.jsonl", lines(c.Items))
	tools := []event.ToolDefinition{{Name: "shell", Description: event.Some("Run a command."),
		Parameters: "{\n\"type\": \"object\"\n}"}, {Name: "archive"}}
	for file, data := range map[string][]byte{
		"anthropic.json":        must(t, RenderAnthropic, c),
		"openai_responses.json": must(t, RenderOpenAIResponses, c),
		"openai_chat.json":      must(t, func(c Conversation) ([]byte, error) { return RenderOpenAIChat(c, tools) }, c),
	} {
		if bytes.ContainsAny(data, "\r\n") {
			t.Errorf("%s: a rendering is one line, so that it can be one of many", file)
		}
		var readable bytes.Buffer
		if err := json.Indent(&readable, data, "", "  "); err != nil {
			t.Fatal(err)
		}
		readable.WriteByte('\n')
		golden(t, name+"/"+file, readable.Bytes())
	}
	for _, broken := range brokenRules(must(t, RenderAnthropic, c)) {
		t.Errorf("anthropic: %s", broken)
	}
}

func must(t *testing.T, render func(Conversation) ([]byte, error), c Conversation) []byte {
	t.Helper()
	data, err := render(c)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestASessionIsToldToEachProviderInItsOwnWay(t *testing.T) {
	toldThreeWays(t, "story", theStory(t).History)
}

// The summary was made while the mail still waited for its approval, so that exchange stays whole.
func TestACompactedSessionGoesOnFromItsSummary(t *testing.T) {
	s := theStory(t)
	s.add(says("Und der Entwurf?"),
		event.ContextCompacted{ThroughSeq: 18, Content: text("The invoice was read; the mail waits for approval."), Method: "summary"},
		answers("Er liegt noch im Ordner."))
	toldThreeWays(t, "compacted", s.History)
}

func TestAForkGoesOnFromWhatItsParentHadSaidThen(t *testing.T) {
	parent := theStory(t)
	parent.add(says("This was said after the fork."))
	fork := newTape(t, parent.Through(23))
	fork.add(event.SessionCreated{ForkedFrom: event.Some(event.SessionRef{SessionID: "s", Seq: 23})},
		event.SystemMessageCreated{Content: text("You are a clerk who may delete drafts.")},
		says("Doch, lösch ihn."),
		asks(call("call_9", "delete_draft", `{"force":true}`)),
		completed("call_9", "deleted"),
		answers("Gelöscht."))
	toldThreeWays(t, "fork", fork.History)
}
