package projection

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/tooltape/tooltape/schemas/event"
)

// step is one piece of a conversation as every provider wants it: a message to the model, or what the model said, and then at
// once the results of its calls. So a late result (an approval that came user turns later) moves up to its call, and what was
// said in between comes after it.
type step struct {
	// message is the index of a User or Compaction; -1 in a response.
	message int
	// said and results are the indexes of a response's items and of the results of its calls, in the order of the calls.
	said, results []int
}

// steps puts a conversation in the order that providers demand. System items and results are in no step of their own.
func steps(c Conversation) []step {
	var out []step
	for n, item := range c.Items {
		switch item.(type) {
		case User, Compaction:
			out = append(out, step{message: n})
		case Assistant, ToolCall, Provider:
			if n == 0 || c.Response[n-1] != c.Response[n] {
				out = append(out, step{message: -1})
			}
			last := &out[len(out)-1]
			last.said = append(last.said, n)
			if c.Pair[n] >= 0 {
				last.results = append(last.results, c.Pair[n])
			}
		}
	}
	return out
}

// system is the system item, if there is one that says anything.
func (c Conversation) system() (System, bool) {
	if len(c.Items) == 0 {
		return System{}, false
	}
	s, ok := c.Items[0].(System)
	return s, ok && slices.ContainsFunc(s.Content, func(part event.Part) bool { return part != event.Text{} })
}

// idRule is what a provider demands of a call's id, besides that no two calls share one.
type idRule struct {
	legal func(id string) bool
	most  int
}

func (r idRule) allows(id string) bool { return id != "" && len(id) <= r.most && r.legal(id) }

// callIDs gives each call, and its result, an id of its own, by item index. The recorded id stays where the provider takes it
// and no earlier call has it, else one is derived from it; the same conversation always gives the same ids.
func callIDs(c Conversation, rule idRule) []string {
	ids, taken := make([]string, len(c.Items)), map[string]bool{}
	give := func(n int, id string) {
		ids[n], taken[id] = id, true
		if c.Pair[n] >= 0 {
			ids[c.Pair[n]] = id
		}
	}
	for n, item := range c.Items {
		if call, ok := item.(ToolCall); ok && rule.allows(call.CallID) && !taken[call.CallID] {
			give(n, call.CallID)
		}
	}
	next := map[string]int{} // by base, so that an id used a thousand times costs a thousand steps
	for n, item := range c.Items {
		call, ok := item.(ToolCall)
		if !ok || ids[n] != "" {
			continue
		}
		base := legalID(call.CallID)
		id := derivedID(base, next[base], rule.most)
		for taken[id] {
			next[base]++
			id = derivedID(base, next[base], rule.most)
		}
		give(n, id)
	}
	return ids
}

// legalID is an id of letters, digits, _ and - only, which every provider takes.
func legalID(id string) string {
	if id == "" {
		return "call"
	}
	return strings.Map(func(r rune) rune {
		if plainID(string(r)) {
			return r
		}
		return '_'
	}, id)
}

// derivedID is the base, then base-2, base-3 and so on, cut to the length that the provider takes.
func derivedID(base string, n, most int) string {
	suffix := ""
	if n > 0 {
		suffix = "-" + strconv.Itoa(n+1)
	}
	return base[:min(len(base), most-len(suffix))] + suffix
}

// plainID says whether an id is of letters, digits, _ and - only.
func plainID(id string) bool {
	for _, r := range id {
		if (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '_' && r != '-' {
			return false
		}
	}
	return true
}

// anyID takes every id.
func anyID(string) bool { return true }

// block is one rendered piece of what a model said.
type block struct {
	json []byte
	// thought says that it is thinking, which providers accept only ahead of what came of it.
	thought bool
}

// withoutLastThoughts leaves out the thinking at the end of a response: nothing came of it (the response was cut off there),
// and providers refuse a response that ends so.
func withoutLastThoughts(blocks []block) [][]byte {
	for len(blocks) > 0 && blocks[len(blocks)-1].thought {
		blocks = blocks[:len(blocks)-1]
	}
	out := make([][]byte, len(blocks))
	for n, b := range blocks {
		out[n] = b.json
	}
	return out
}

// providerBlock is a provider item as its provider gave it.
func providerBlock(item Provider, provider string) (block, error) {
	var head struct {
		Type string `json:"type"`
	}
	raw, ok := appendObject(nil, item.Data)
	if !ok || json.Unmarshal(raw, &head) != nil || head.Type == "" {
		return block{}, cannot(item, provider, "its data is not a JSON object with a type")
	}
	switch head.Type {
	case "tool_use", "tool_result", "function_call", "function_call_output":
		return block{}, cannot(item, provider, "a "+head.Type+" there is a call or result that is not recorded as one")
	case "thinking", "redacted_thinking", "reasoning":
		return block{json: raw, thought: true}, nil
	}
	return block{json: raw}, nil
}

// appendObject appends a JSON object as it is, so that no number and no key changes, on one line. It says whether s is one.
func appendObject(dst []byte, s string) ([]byte, bool) {
	s = strings.Trim(s, " \t\r\n")
	if !strings.HasPrefix(s, "{") || !json.Valid([]byte(s)) {
		return dst, false
	}
	if !strings.ContainsAny(s, "\r\n") {
		return append(dst, s...), true
	}
	var line bytes.Buffer
	if err := json.Compact(&line, []byte(s)); err != nil {
		return dst, false
	}
	return append(dst, line.Bytes()...), true
}

// appendList appends a JSON array of what is JSON already.
func appendList(dst []byte, values [][]byte) []byte {
	dst = append(dst, '[')
	dst = append(dst, bytes.Join(values, []byte{','})...)
	return append(dst, ']')
}

// object is {"key":value,…} of values that are JSON already; a field without a value is left out.
func object(fields ...field) []byte {
	out := []byte{'{'}
	for _, f := range fields {
		if f.value == nil {
			continue
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(append(appendString(out, f.key), ':'), f.value...)
	}
	return append(out, '}')
}

// field is a key and its JSON; without JSON it is left out.
type field struct {
	key   string
	value []byte
}

// str is a string as JSON.
func str(s string) []byte { return appendString(nil, s) }

// textBlock is a part of text in the form that all three providers share but for its type.
func textBlock(kind, text string) []byte {
	return object(field{"type", str(kind)}, field{"text", str(text)})
}

// plain is content that is one string: no part, or one part of text.
func plain(parts []event.Part) (string, bool) {
	if len(parts) == 0 {
		return "", true
	}
	text, ok := parts[0].(event.Text)
	return text.Text, ok && len(parts) == 1
}

// arguments are what the model wrote; where it wrote nothing, they are the empty object that it meant.
func arguments(call ToolCall) string {
	if strings.TrimSpace(call.Arguments) == "" {
		return "{}"
	}
	return call.Arguments
}

// spoken is the text of what a model said, without empty pieces; nil where it said nothing.
func spoken(item Assistant, provider string) ([]string, error) {
	var texts []string
	for _, part := range item.Content {
		text, ok := part.(event.Text)
		if !ok {
			return nil, cannot(item, provider, "a model's message holds text only")
		}
		if text.Text != "" {
			texts = append(texts, text.Text)
		}
	}
	return texts, nil
}

// isWeb says whether a provider can fetch a piece of media by itself.
func isWeb(m event.Media) bool {
	scheme, _, _ := strings.Cut(strings.ToLower(m.URI), ":")
	return scheme == "http" || scheme == "https"
}

// cannot is the error for what a provider has no way to say. Nothing is left out or made up to hide it.
func cannot(item Item, provider, rule string) error {
	return fmt.Errorf("the %s item at seq %d cannot be rendered for %s: %s", item.Kind(), item.Seq(), provider, rule)
}
