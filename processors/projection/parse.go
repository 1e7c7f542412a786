package projection

import (
	"bytes"
	"fmt"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/tooltape/tooltape/schemas/event"
)

// ParseJSON reads what [AppendJSON] wrote, also after something indented it or escaped more than it had to. The keys stand in
// their fixed order, so a duplicate, an unknown, a missing one or one in another case is an error; so are bad UTF-8, lone
// surrogates and anything behind the object.
func ParseJSON(data []byte) (Item, error) {
	p := parser{data: data}
	if !utf8.Valid(data) {
		return nil, p.fail("is not UTF-8")
	}
	p.punct('{')
	p.name("kind")
	item := p.item(p.str())
	p.punct('}')
	if p.space(); p.err == nil && p.pos < len(data) {
		return nil, p.fail("goes on behind its end")
	}
	if p.err != nil {
		return nil, p.err
	}
	return item, nil
}

// parser reads one item from its beginning to its end. After the first error it reads nothing more.
type parser struct {
	data []byte
	pos  int
	err  error
}

// item reads what follows the kind.
func (p *parser) item(kind string) Item {
	switch kind {
	case "system":
		return System{Content: p.parts(), SourceSeq: p.int("source_seq")}
	case "user":
		return User{Content: p.parts(), Trust: p.trust(), SourceSeq: p.int("source_seq")}
	case "assistant":
		return Assistant{Content: p.parts(), ProviderData: p.opt("provider_data"), SourceSeq: p.int("source_seq")}
	case "tool_call":
		return ToolCall{CallID: p.field("call_id"), Name: p.field("name"), Arguments: p.field("arguments"),
			ProviderData: p.opt("provider_data"), SourceSeq: p.int("source_seq")}
	case "tool_result":
		return ToolResult{CallID: p.field("call_id"), Content: p.parts(), IsError: p.optBool("is_error"), Trust: p.trust(),
			SourceSeq: p.int("source_seq")}
	case "provider":
		return Provider{Provider: p.field("provider"), ProviderKind: p.field("provider_kind"), Text: p.opt("text"),
			Data: p.field("data"), SourceSeq: p.int("source_seq")}
	case "compaction":
		return Compaction{ThroughSeq: p.int("through_seq"), Content: p.parts(), Method: p.member("method", event.CompactionMethods),
			SourceSeq: p.int("source_seq")}
	}
	_ = p.fail("is of a kind that does not exist")
	return nil
}

// key reads a comma and a key.
func (p *parser) key(name string) {
	p.punct(',')
	p.name(name)
}

// name reads a key and its colon.
func (p *parser) name(name string) {
	if got := p.str(); p.err == nil && got != name {
		_ = p.fail("should have the key %q here", name)
	}
	p.punct(':')
}

func (p *parser) field(name string) string {
	p.key(name)
	return p.str()
}

func (p *parser) member(name string, set event.Set) string {
	s := p.field(name)
	if p.err == nil && !set.Has(s) {
		_ = p.fail("has a %s that does not exist", name)
	}
	return s
}

func (p *parser) trust() event.Trust { return event.Trust(p.member("trust", event.Trusts)) }

func (p *parser) opt(name string) event.Opt[string] {
	p.key(name)
	if p.word("null") {
		return event.Opt[string]{}
	}
	return event.Some(p.str())
}

func (p *parser) optBool(name string) event.Opt[bool] {
	p.key(name)
	switch {
	case p.word("null"):
	case p.word("true"):
		return event.Some(true)
	case p.word("false"):
		return event.Some(false)
	default:
		_ = p.fail("should have true, false or null for %s", name)
	}
	return event.Opt[bool]{}
}

// int reads a whole number, written as AppendJSON writes it.
func (p *parser) int(name string) int64 {
	p.key(name)
	p.space()
	start := p.pos
	for p.err == nil && p.pos < len(p.data) && (p.data[p.pos] == '-' || '0' <= p.data[p.pos] && p.data[p.pos] <= '9') {
		p.pos++
	}
	text := string(p.data[start:p.pos])
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || strconv.FormatInt(n, 10) != text {
		_ = p.fail("should have a whole number for %s", name)
	}
	return n
}

func (p *parser) parts() []event.Part {
	p.key("content")
	p.punct('[')
	var parts []event.Part
	for !p.peek(']') && p.err == nil {
		if parts != nil {
			p.punct(',')
		}
		p.punct('{')
		p.name("type")
		parts = append(parts, p.part(p.str()))
		p.punct('}')
	}
	p.punct(']')
	return parts
}

func (p *parser) part(kind string) event.Part {
	switch kind {
	case "text":
		return event.Text{Text: p.field("text")}
	case "image":
		return event.Image{Media: p.media()}
	case "file":
		return event.File{Media: p.media()}
	}
	_ = p.fail("has a part of a type that does not exist")
	return nil
}

func (p *parser) media() event.Media {
	return event.Media{URI: p.field("uri"), SHA256: p.opt("sha256"), MediaType: p.field("media_type"), Filename: p.opt("filename")}
}

// str reads a string.
func (p *parser) str() string {
	p.punct('"')
	if p.err != nil {
		return ""
	}
	rest := p.data[p.pos:]
	n := plainPrefix(rest)
	if n < len(rest) && rest[n] == '"' { // nothing to unescape
		p.pos += n + 1
		return string(rest[:n])
	}
	return p.escaped(rest[:n])
}

// escaped reads a string on from its first escape.
func (p *parser) escaped(head []byte) string {
	p.pos += len(head)
	out := append(make([]byte, 0, 2*len(head)+16), head...)
	for p.err == nil {
		n := plainPrefix(p.data[p.pos:])
		out = append(out, p.data[p.pos:p.pos+n]...)
		p.pos += n
		switch {
		case p.pos == len(p.data):
			_ = p.fail("ends inside a string")
		case p.data[p.pos] == '"':
			p.pos++
			return string(out)
		case p.data[p.pos] == '\\':
			out = utf8.AppendRune(out, p.escape())
		default:
			_ = p.fail("has a control character inside a string")
		}
	}
	return ""
}

// escape reads one escape, or two where they are a surrogate pair.
func (p *parser) escape() rune {
	const names, values = `"\/bfnrt`, "\"\\/\b\f\n\r\t"
	if p.pos+1 < len(p.data) {
		if n := bytes.IndexByte([]byte(names), p.data[p.pos+1]); n >= 0 {
			p.pos += 2
			return rune(values[n])
		}
	}
	r := p.unit()
	if utf16.IsSurrogate(r) {
		if r = utf16.DecodeRune(r, p.unit()); r == utf8.RuneError {
			_ = p.fail("has a lone surrogate")
		}
	}
	return r
}

// unit reads one \uXXXX.
func (p *parser) unit() rune {
	if p.err != nil || len(p.data)-p.pos < 6 || p.data[p.pos] != '\\' || p.data[p.pos+1] != 'u' {
		_ = p.fail("has an incomplete or unknown escape")
		return 0
	}
	n, err := strconv.ParseUint(string(p.data[p.pos+2:p.pos+6]), 16, 16)
	if err != nil {
		_ = p.fail("has an incomplete or unknown escape")
	}
	p.pos += 6
	return rune(n)
}

func (p *parser) space() {
	for p.pos < len(p.data) && bytes.IndexByte([]byte(" \t\r\n"), p.data[p.pos]) >= 0 {
		p.pos++
	}
}

func (p *parser) peek(c byte) bool {
	p.space()
	return p.pos < len(p.data) && p.data[p.pos] == c
}

func (p *parser) punct(c byte) {
	if p.err != nil {
		return
	}
	if !p.peek(c) {
		_ = p.fail("should have %q here", string(c))
		return
	}
	p.pos++
}

// word reads a literal, if it is next.
func (p *parser) word(w string) bool {
	p.space()
	if p.err != nil || !bytes.HasPrefix(p.data[p.pos:], []byte(w)) {
		return false
	}
	p.pos += len(w)
	return true
}

// fail keeps the first error. It says where, never what the item holds.
func (p *parser) fail(format string, args ...any) error {
	if p.err == nil {
		p.err = fmt.Errorf("the item JSON, at byte %d, %s", p.pos, fmt.Sprintf(format, args...))
	}
	return p.err
}
