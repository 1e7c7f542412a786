package projection

import (
	"strconv"

	"github.com/tooltape/tooltape/schemas/event"
)

// AppendJSON appends the item JSON: one compact object with fixed key order and explicit nulls, kind first, source_seq last.
// Of strings it escapes only what JSON demands, so what was recorded stays readable and U+0000 stays as it was. It takes
// strings for UTF-8, as those of every decoded event are.
//
// Every stored item passes here, so it is written by hand: no reflection and no allocation but dst's growth.
func AppendJSON(dst []byte, item Item) []byte { return item.appendJSON(dst) }

func (i System) appendJSON(dst []byte) []byte {
	dst = append(dst, `{"kind":"system","content":`...)
	return appendSeq(appendParts(dst, i.Content), i.SourceSeq)
}

func (i User) appendJSON(dst []byte) []byte {
	dst = append(dst, `{"kind":"user","content":`...)
	dst = appendParts(dst, i.Content)
	dst = append(dst, `,"trust":`...)
	return appendSeq(appendString(dst, string(i.Trust)), i.SourceSeq)
}

func (i Assistant) appendJSON(dst []byte) []byte {
	dst = append(dst, `{"kind":"assistant","content":`...)
	dst = appendParts(dst, i.Content)
	dst = append(dst, `,"provider_data":`...)
	return appendSeq(appendOpt(dst, i.ProviderData), i.SourceSeq)
}

func (i ToolCall) appendJSON(dst []byte) []byte {
	dst = append(dst, `{"kind":"tool_call","call_id":`...)
	dst = appendString(dst, i.CallID)
	dst = append(dst, `,"name":`...)
	dst = appendString(dst, i.Name)
	dst = append(dst, `,"arguments":`...)
	dst = appendString(dst, i.Arguments)
	dst = append(dst, `,"provider_data":`...)
	return appendSeq(appendOpt(dst, i.ProviderData), i.SourceSeq)
}

func (i ToolResult) appendJSON(dst []byte) []byte {
	dst = append(dst, `{"kind":"tool_result","call_id":`...)
	dst = appendString(dst, i.CallID)
	dst = append(dst, `,"content":`...)
	dst = appendParts(dst, i.Content)
	dst = append(dst, `,"is_error":`...)
	if i.IsError.OK {
		dst = strconv.AppendBool(dst, i.IsError.Value)
	} else {
		dst = append(dst, "null"...)
	}
	dst = append(dst, `,"trust":`...)
	return appendSeq(appendString(dst, string(i.Trust)), i.SourceSeq)
}

func (i Provider) appendJSON(dst []byte) []byte {
	dst = append(dst, `{"kind":"provider","provider":`...)
	dst = appendString(dst, i.Provider)
	dst = append(dst, `,"provider_kind":`...)
	dst = appendString(dst, i.ProviderKind)
	dst = append(dst, `,"text":`...)
	dst = appendOpt(dst, i.Text)
	dst = append(dst, `,"data":`...)
	return appendSeq(appendString(dst, i.Data), i.SourceSeq)
}

func (i Compaction) appendJSON(dst []byte) []byte {
	dst = append(dst, `{"kind":"compaction","through_seq":`...)
	dst = strconv.AppendInt(dst, i.ThroughSeq, 10)
	dst = append(dst, `,"content":`...)
	dst = appendParts(dst, i.Content)
	dst = append(dst, `,"method":`...)
	return appendSeq(appendString(dst, i.Method), i.SourceSeq)
}

// appendSeq ends an item.
func appendSeq(dst []byte, seq int64) []byte {
	dst = append(dst, `,"source_seq":`...)
	return append(strconv.AppendInt(dst, seq, 10), '}')
}

func appendParts(dst []byte, parts []event.Part) []byte {
	dst = append(dst, '[')
	for n, part := range parts {
		if n > 0 {
			dst = append(dst, ',')
		}
		switch part := part.(type) {
		case event.Text:
			dst = append(dst, `{"type":"text","text":`...)
			dst = append(appendString(dst, part.Text), '}')
		case event.Image:
			dst = appendMedia(dst, `{"type":"image","uri":`, part.Media)
		case event.File:
			dst = appendMedia(dst, `{"type":"file","uri":`, part.Media)
		}
	}
	return append(dst, ']')
}

func appendMedia(dst []byte, head string, m event.Media) []byte {
	dst = append(dst, head...)
	dst = appendString(dst, m.URI)
	dst = append(dst, `,"sha256":`...)
	dst = appendOpt(dst, m.SHA256)
	dst = append(dst, `,"media_type":`...)
	dst = appendString(dst, m.MediaType)
	dst = append(dst, `,"filename":`...)
	return append(appendOpt(dst, m.Filename), '}')
}

func appendOpt(dst []byte, s event.Opt[string]) []byte {
	if !s.OK {
		return append(dst, "null"...)
	}
	return appendString(dst, s.Value)
}

// appendString appends a JSON string. Text with nothing to escape, which is most of it, is copied in one piece.
func appendString(dst []byte, s string) []byte {
	dst = append(dst, '"')
	for {
		n := plainPrefix(s)
		dst = append(dst, s[:n]...)
		if n == len(s) {
			return append(dst, '"')
		}
		dst = appendEscape(dst, s[n])
		s = s[n+1:]
	}
}

// plainPrefix is how many bytes of s stand in a JSON string as they are. It looks at eight bytes at a time: the high bit of a
// byte is set in v-k*ones &^ v where that byte is below k, and comparing with a byte is looking for zero after xor.
func plainPrefix[T string | []byte](s T) int {
	const ones, highs = 0x0101010101010101, 0x8080808080808080
	i := 0
	for ; i+8 <= len(s); i += 8 {
		v := uint64(s[i]) | uint64(s[i+1])<<8 | uint64(s[i+2])<<16 | uint64(s[i+3])<<24 |
			uint64(s[i+4])<<32 | uint64(s[i+5])<<40 | uint64(s[i+6])<<48 | uint64(s[i+7])<<56
		quote, backslash := v^'"'*ones, v^'\\'*ones
		if ((v-' '*ones)&^v|(quote-ones)&^quote|(backslash-ones)&^backslash)&highs != 0 {
			break
		}
	}
	for ; i < len(s); i++ {
		if c := s[i]; c < ' ' || c == '"' || c == '\\' {
			return i
		}
	}
	return len(s)
}

// appendEscape appends what stands for a byte that JSON does not let stand as it is.
func appendEscape(dst []byte, c byte) []byte {
	const hex = "0123456789abcdef"
	switch c {
	case '"', '\\':
		return append(dst, '\\', c)
	case '\n':
		return append(dst, '\\', 'n')
	case '\r':
		return append(dst, '\\', 'r')
	case '\t':
		return append(dst, '\\', 't')
	case '\b':
		return append(dst, '\\', 'b')
	case '\f':
		return append(dst, '\\', 'f')
	}
	return append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&0xf])
}
