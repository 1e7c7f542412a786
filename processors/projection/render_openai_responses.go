package projection

import (
	"fmt"
	"strings"

	"github.com/tooltape/tooltape/schemas/event"
)

const (
	openAI          = "openai"
	openAIResponses = "openai-responses"
)

// openAIResponsesIDs is the rule of the Responses API.
var openAIResponsesIDs = idRule{legal: anyID, most: 64}

// RenderOpenAIResponses renders a conversation for the OpenAI Responses API: {"instructions"?,"input":[…]}.
//
// The format has no error flag: whether a result is an error is in its text alone. Instructions of several parts are joined by
// an empty line, for they are one string there.
func RenderOpenAIResponses(c Conversation) ([]byte, error) {
	var instructions []byte
	if s, ok := c.system(); ok {
		var texts []string
		for _, part := range s.Content {
			text, ok := part.(event.Text)
			if !ok {
				return nil, cannot(s, openAIResponses, "instructions hold text only")
			}
			texts = append(texts, text.Text)
		}
		instructions = str(strings.Join(texts, "\n\n"))
	}
	input, err := responsesInput(c)
	if err != nil {
		return nil, err
	}
	return object(field{"instructions", instructions}, field{"input", appendList(nil, input)}), nil
}

func responsesInput(c Conversation) ([][]byte, error) {
	var input [][]byte
	ids := callIDs(c, openAIResponsesIDs)
	for _, s := range steps(c) {
		if s.message >= 0 {
			content, err := responsesContent(c.Items[s.message])
			if err != nil {
				return nil, err
			}
			input = append(input, responsesMessage("user", content))
			continue
		}
		said, err := responsesResponse(c, s, ids)
		if err != nil {
			return nil, err
		}
		input = append(input, said...)
		for _, n := range s.results {
			output, err := responsesContent(c.Items[n])
			if err != nil {
				return nil, err
			}
			input = append(input, object(field{"type", str("function_call_output")}, field{"call_id", str(ids[n])}, field{"output", output}))
		}
	}
	return input, nil
}

func responsesMessage(role string, content []byte) []byte {
	return object(field{"type", str("message")}, field{"role", str(role)}, field{"content", content})
}

// responsesContent is a string where it can be, else a list of parts.
func responsesContent(item Item) ([]byte, error) {
	parts := contentOf(item)
	if text, ok := plain(parts); ok {
		return str(text), nil
	}
	var blocks [][]byte
	for _, part := range parts {
		switch part := part.(type) {
		case event.Text:
			blocks = append(blocks, textBlock("input_text", part.Text))
		case event.Image:
			if !isWeb(part.Media) {
				return nil, cannot(item, openAIResponses, "an image must be at an http or https address")
			}
			blocks = append(blocks, object(field{"type", str("input_image")}, field{"image_url", str(part.URI)}, field{"detail", str("auto")}))
		case event.File:
			if !isWeb(part.Media) {
				return nil, cannot(item, openAIResponses, "a file must be at an http or https address")
			}
			blocks = append(blocks, object(field{"type", str("input_file")}, field{"file_url", str(part.URI)}))
		}
	}
	return appendList(nil, blocks), nil
}

// responsesResponse is what the model said in one response, in order.
func responsesResponse(c Conversation, s step, ids []string) ([][]byte, error) {
	var blocks []block
	for _, n := range s.said {
		switch item := c.Items[n].(type) {
		case Assistant:
			texts, err := spoken(item, openAIResponses)
			if err != nil {
				return nil, err
			}
			if len(texts) > 0 {
				blocks = append(blocks, block{json: responsesMessage("assistant", responsesText(texts))})
			}
		case ToolCall:
			if item.Name == "" {
				return nil, cannot(item, openAIResponses, fmt.Sprintf("the call %q has no name", item.CallID))
			}
			blocks = append(blocks, block{json: object(field{"type", str("function_call")}, field{"call_id", str(ids[n])},
				field{"name", str(item.Name)}, field{"arguments", str(arguments(item))})})
		case Provider:
			if item.Provider != openAI {
				continue
			}
			b, err := providerBlock(item, openAIResponses)
			if err != nil {
				return nil, err
			}
			blocks = append(blocks, b)
		}
	}
	return withoutLastThoughts(blocks), nil
}

// responsesText is what a model said, a string where it can be.
func responsesText(texts []string) []byte {
	if len(texts) == 1 {
		return str(texts[0])
	}
	var blocks [][]byte
	for _, text := range texts {
		blocks = append(blocks, textBlock("output_text", text))
	}
	return appendList(nil, blocks)
}
