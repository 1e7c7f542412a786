package projection

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/tooltape/tooltape/schemas/event"
)

const anthropic = "anthropic"

// anthropicIDs is the rule of the Messages API.
var anthropicIDs = idRule{legal: plainID, most: math.MaxInt}

// RenderAnthropic renders a conversation for the Anthropic Messages API: {"system"?,"messages":[…]}.
//
// The API is stricter than the items. Roles alternate, so messages of one role become one with several blocks; all results of
// a message's calls come at once, and first, in the next one; text of nothing but white space is left out, for it says
// nothing and is refused. What it cannot say without saying something else is an error.
func RenderAnthropic(c Conversation) ([]byte, error) {
	var system []byte
	if s, ok := c.system(); ok {
		texts, err := anthropicSystem(s)
		if err != nil {
			return nil, err
		}
		system = texts
	}
	messages, err := anthropicMessages(c)
	if err != nil {
		return nil, err
	}
	rendered := make([][]byte, len(messages))
	for n, m := range messages {
		rendered[n] = object(field{"role", str(m.role)}, field{"content", appendList(nil, m.blocks)})
	}
	return object(field{"system", system}, field{"messages", appendList(nil, rendered)}), nil
}

// anthropicMessage is a message on its way: blocks of one role.
type anthropicMessage struct {
	role   string
	blocks [][]byte
}

// anthropicMessages are the messages, of alternating roles, the first a user's.
func anthropicMessages(c Conversation) ([]anthropicMessage, error) {
	var messages []anthropicMessage
	say := func(role string, blocks [][]byte) {
		switch last := len(messages) - 1; {
		case len(blocks) == 0:
		case last >= 0 && messages[last].role == role:
			messages[last].blocks = append(messages[last].blocks, blocks...)
		default:
			messages = append(messages, anthropicMessage{role, blocks})
		}
	}
	ids := callIDs(c, anthropicIDs)
	for _, s := range steps(c) {
		if s.message >= 0 {
			blocks, err := anthropicContent(c.Items[s.message], contentOf(c.Items[s.message]))
			if err != nil {
				return nil, err
			}
			say("user", blocks)
			continue
		}
		said, err := anthropicResponse(c, s, ids)
		if err != nil {
			return nil, err
		}
		if len(messages) == 0 && len(said) > 0 {
			return nil, cannot(c.Items[s.said[0]], anthropic, "the first message must be a user's, and the conversation has none before it")
		}
		say("assistant", said)
		results, err := anthropicResults(c, s, ids)
		if err != nil {
			return nil, err
		}
		say("user", results)
	}
	if len(messages) == 0 {
		return nil, errors.New("the conversation cannot be rendered for anthropic: nobody has said anything yet, and the first message must be a user's")
	}
	return messages, nil
}

func anthropicSystem(s System) ([]byte, error) {
	for _, part := range s.Content {
		if _, ok := part.(event.Text); !ok {
			return nil, cannot(s, anthropic, "the system prompt holds text only")
		}
	}
	blocks, err := anthropicContent(s, s.Content)
	if err != nil || len(blocks) == 0 {
		return nil, err
	}
	return appendList(nil, blocks), nil
}

// anthropicContent is the content of a message or result in blocks.
func anthropicContent(item Item, parts []event.Part) ([][]byte, error) {
	var blocks [][]byte
	for _, part := range parts {
		switch part := part.(type) {
		case event.Text:
			if strings.TrimSpace(part.Text) != "" {
				blocks = append(blocks, textBlock("text", part.Text))
			}
		case event.Image:
			if !isWeb(part.Media) {
				return nil, cannot(item, anthropic, "an image must be at an http or https address")
			}
			blocks = append(blocks, anthropicMedia("image", part.Media))
		case event.File:
			if !isWeb(part.Media) || part.MediaType != "application/pdf" {
				return nil, cannot(item, anthropic, "a file must be a PDF at an http or https address")
			}
			blocks = append(blocks, anthropicMedia("document", part.Media))
		}
	}
	return blocks, nil
}

func anthropicMedia(kind string, m event.Media) []byte {
	return object(field{"type", str(kind)}, field{"source", object(field{"type", str("url")}, field{"url", str(m.URI)})})
}

// anthropicResponse is what the model said in one response, in order.
func anthropicResponse(c Conversation, s step, ids []string) ([][]byte, error) {
	var blocks []block
	for _, n := range s.said {
		switch item := c.Items[n].(type) {
		case Assistant:
			texts, err := spoken(item, anthropic)
			if err != nil {
				return nil, err
			}
			for _, text := range texts {
				if strings.TrimSpace(text) != "" {
					blocks = append(blocks, block{json: textBlock("text", text)})
				}
			}
		case ToolCall:
			call, err := anthropicCall(item, ids[n])
			if err != nil {
				return nil, err
			}
			blocks = append(blocks, block{json: call})
		case Provider:
			if item.Provider != anthropic {
				continue
			}
			b, err := providerBlock(item, anthropic)
			if err != nil {
				return nil, err
			}
			blocks = append(blocks, b)
		}
	}
	return withoutLastThoughts(blocks), nil
}

// anthropicCall embeds the arguments as the model wrote them, so that no number loses its digits.
func anthropicCall(item ToolCall, id string) ([]byte, error) {
	if item.Name == "" {
		return nil, cannot(item, anthropic, fmt.Sprintf("the call %q has no name", item.CallID))
	}
	input, ok := appendObject(nil, arguments(item))
	if !ok {
		return nil, cannot(item, anthropic, fmt.Sprintf("the arguments of the call %q are not a JSON object", item.CallID))
	}
	return object(field{"type", str("tool_use")}, field{"id", str(id)}, field{"name", str(item.Name)}, field{"input", input}), nil
}

// anthropicResults are the results of a response's calls.
func anthropicResults(c Conversation, s step, ids []string) ([][]byte, error) {
	var blocks [][]byte
	for _, n := range s.results {
		item := c.Items[n].(ToolResult)
		parts, err := anthropicContent(item, item.Content)
		if err != nil {
			return nil, err
		}
		var content, isError []byte
		if len(parts) > 0 {
			content = appendList(nil, parts)
		}
		if item.IsError.OK {
			isError = strconv.AppendBool(nil, item.IsError.Value)
		}
		if content == nil && item.IsError.Value {
			return nil, cannot(item, anthropic, fmt.Sprintf("the result of the call %q is an error without any text", item.CallID))
		}
		blocks = append(blocks, object(field{"type", str("tool_result")}, field{"tool_use_id", str(ids[n])}, field{"content", content},
			field{"is_error", isError}))
	}
	return blocks, nil
}
