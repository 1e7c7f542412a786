package projection

import (
	"fmt"
	"strings"

	"github.com/tooltape/tooltape/schemas/event"
)

const openAIChat = "openai-chat"

// openAIChatIDs is the rule of the Chat Completions API.
var openAIChatIDs = idRule{legal: anyID, most: 40}

// RenderOpenAIChat renders a conversation as OpenAI chat messages: {"messages":[…],"tools"?}, for the Chat Completions API and
// for fine-tuning; tools are those of the last tools.offered, if any.
//
// The format has no error flag: whether a result is an error is in its text alone. It has no place for provider items.
func RenderOpenAIChat(c Conversation, tools []event.ToolDefinition) ([]byte, error) {
	messages, err := chatMessages(c)
	if err != nil {
		return nil, err
	}
	var offered []byte
	if len(tools) > 0 {
		if offered, err = chatTools(tools); err != nil {
			return nil, err
		}
	}
	return object(field{"messages", appendList(nil, messages)}, field{"tools", offered}), nil
}

func chatMessages(c Conversation) ([][]byte, error) {
	var messages [][]byte
	say := func(message []byte, err error) error {
		if err == nil && message != nil {
			messages = append(messages, message)
		}
		return err
	}
	if s, ok := c.system(); ok {
		if err := say(chatMessage("system", "", s, s.Content)); err != nil {
			return nil, err
		}
	}
	ids := callIDs(c, openAIChatIDs)
	for _, s := range steps(c) {
		if s.message >= 0 {
			item := c.Items[s.message]
			if err := say(chatMessage("user", "", item, contentOf(item))); err != nil {
				return nil, err
			}
			continue
		}
		if err := say(chatResponse(c, s, ids)); err != nil {
			return nil, err
		}
		for _, n := range s.results {
			if err := say(chatMessage("tool", ids[n], c.Items[n], contentOf(c.Items[n]))); err != nil {
				return nil, err
			}
		}
	}
	return messages, nil
}

// chatMessage is a message to the model; callID is empty in all but a tool's.
func chatMessage(role, callID string, item Item, parts []event.Part) ([]byte, error) {
	content, err := chatContent(role, item, parts)
	if err != nil {
		return nil, err
	}
	var answers []byte
	if role == "tool" {
		answers = str(callID)
	}
	return object(field{"role", str(role)}, field{"tool_call_id", answers}, field{"content", content}), nil
}

// chatContent is a string where it can be, else a list of parts. Only users show images.
func chatContent(role string, item Item, parts []event.Part) ([]byte, error) {
	if text, ok := plain(parts); ok {
		return str(text), nil
	}
	var blocks [][]byte
	for _, part := range parts {
		switch part := part.(type) {
		case event.Text:
			blocks = append(blocks, textBlock("text", part.Text))
		case event.Image:
			if role != "user" || !isWeb(part.Media) {
				return nil, cannot(item, openAIChat, "an image must be in a user's message and at an http or https address")
			}
			blocks = append(blocks, object(field{"type", str("image_url")}, field{"image_url", object(field{"url", str(part.URI)})}))
		case event.File:
			return nil, cannot(item, openAIChat, "a file cannot be named by its address")
		}
	}
	return appendList(nil, blocks), nil
}

// chatResponse is one message for all that the model said in a response; nil where it said nothing.
func chatResponse(c Conversation, s step, ids []string) ([]byte, error) {
	var texts []event.Part
	var calls [][]byte
	var speaker Item
	for _, n := range s.said {
		switch item := c.Items[n].(type) {
		case Assistant:
			said, err := spoken(item, openAIChat)
			if err != nil {
				return nil, err
			}
			for _, text := range said {
				texts = append(texts, event.Text{Text: text})
			}
			speaker = item
		case ToolCall:
			if item.Name == "" {
				return nil, cannot(item, openAIChat, fmt.Sprintf("the call %q has no name", item.CallID))
			}
			calls = append(calls, object(field{"id", str(ids[n])}, field{"type", str("function")},
				field{"function", object(field{"name", str(item.Name)}, field{"arguments", str(arguments(item))})}))
		}
	}
	content, made := []byte("null"), []byte(nil)
	if len(texts) > 0 {
		var err error
		if content, err = chatContent("assistant", speaker, texts); err != nil {
			return nil, err
		}
	}
	if len(calls) > 0 {
		made = appendList(nil, calls)
	} else if len(texts) == 0 {
		return nil, nil
	}
	return object(field{"role", str("assistant")}, field{"content", content}, field{"tool_calls", made}), nil
}

// chatTools are the tools as they were offered to the model.
func chatTools(tools []event.ToolDefinition) ([]byte, error) {
	var out [][]byte
	for _, tool := range tools {
		var description, parameters []byte
		if tool.Description.OK {
			description = str(tool.Description.Value)
		}
		if strings.TrimSpace(tool.Parameters) != "" {
			var ok bool
			if parameters, ok = appendObject(nil, tool.Parameters); !ok {
				return nil, fmt.Errorf("the parameters of the tool %q are not a JSON object, and openai-chat takes nothing else", tool.Name)
			}
		}
		out = append(out, object(field{"type", str("function")}, field{"function", object(field{"name", str(tool.Name)},
			field{"description", description}, field{"parameters", parameters})}))
	}
	return appendList(nil, out), nil
}
