package projection

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/tooltape/tooltape/schemas/event"
)

var rewrite = flag.Bool("rewrite", false, "write the golden files of testdata anew")

// golden compares with testdata/name.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *rewrite {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s has changed (look at it, then run the test with -rewrite):\n%s", path, got)
	}
}

// lines is one item JSON a line.
func lines(items []Item) []byte {
	var out []byte
	for _, item := range items {
		out = append(AppendJSON(out, item), '\n')
	}
	return out
}

// everyShape is each kind of item, with everything recorded and with as little as can be.
func everyShape() []Item {
	awkward := "tab\t quote\" backslash\\ newline\n bell\a nul\x00 del\x7f line\u2028 <b>&amp;</b> ü 📧"
	media := event.Media{URI: "https://x.test/a.png", SHA256: event.Some("ab12"), MediaType: "image/png", Filename: event.Some("a.png")}
	return []Item{
		System{Content: text("Be kind."), SourceSeq: 1},
		System{SourceSeq: 2},
		User{Content: []event.Part{event.Text{Text: awkward}, event.Image{Media: media}, event.File{Media: event.Media{URI: "s3://b/k",
			MediaType: "application/pdf"}}}, Trust: event.User, SourceSeq: 3},
		Assistant{Content: text("Hi"), ProviderData: event.Some(`{"id":"msg_1"}`), SourceSeq: 4},
		Assistant{Content: text(""), SourceSeq: 4},
		ToolCall{CallID: "a", Name: "ls", Arguments: `{"path": "/tmp"}`, ProviderData: event.Some(""), SourceSeq: 4},
		ToolCall{CallID: "b", Name: "ls", SourceSeq: 4},
		ToolResult{CallID: "a", Content: text("x"), IsError: event.Some(false), Trust: event.InternalTool, SourceSeq: 5},
		ToolResult{CallID: "b", Content: text("x"), IsError: event.Some(true), Trust: event.Knowledge, SourceSeq: 6},
		ToolResult{CallID: "c", Trust: event.ExternalUntrusted, SourceSeq: 7},
		Provider{Provider: "anthropic", ProviderKind: "thinking", Text: event.Some("hm"), Data: `{"type":"thinking"}`, SourceSeq: 8},
		Provider{SourceSeq: 9},
		Compaction{ThroughSeq: 9, Content: text("They greeted."), Method: "summary", SourceSeq: 1<<63 - 1},
	}
}

func TestItemJSONIsAContract(t *testing.T) { golden(t, "items.jsonl", lines(everyShape())) }

func TestItemJSONIsJSON(t *testing.T) {
	for _, item := range everyShape() {
		if data := AppendJSON(nil, item); !json.Valid(data) {
			t.Errorf("%s", data)
		}
	}
}

// anItem draws any item that an event can yield.
func anItem(t *rapid.T) Item {
	str := func() string { return rapid.String().Draw(t, "string") }
	opt := func() event.Opt[string] {
		if !rapid.Bool().Draw(t, "recorded") {
			return event.Opt[string]{}
		}
		return event.Some(str())
	}
	seq := rapid.Int64().Draw(t, "seq")
	trust := event.Trust(rapid.SampledFrom(event.Trusts).Draw(t, "trust"))
	var content []event.Part
	for range rapid.IntRange(0, 3).Draw(t, "parts") {
		media := event.Media{URI: str(), SHA256: opt(), MediaType: str(), Filename: opt()}
		content = append(content, rapid.SampledFrom([]event.Part{event.Text{Text: str()}, event.Image{Media: media},
			event.File{Media: media}}).Draw(t, "part"))
	}
	return rapid.SampledFrom([]Item{
		System{content, seq}, User{content, trust, seq}, Assistant{content, opt(), seq}, ToolCall{str(), str(), str(), opt(), seq},
		ToolResult{str(), content, event.Opt[bool]{}, trust, seq}, ToolResult{str(), content, event.Some(rapid.Bool().Draw(t, "error")),
			trust, seq}, Provider{str(), str(), opt(), str(), seq},
		Compaction{rapid.Int64().Draw(t, "through"), content, rapid.SampledFrom(event.CompactionMethods).Draw(t, "method"), seq},
	}).Draw(t, "item")
}

func TestWhatIsWrittenIsReadBackTheSame(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		item := anItem(t)
		data := AppendJSON(nil, item)
		if got, err := ParseJSON(data); err != nil || !reflect.DeepEqual(got, item) {
			t.Fatalf("%#v became %s and then %#v, %v", item, data, got, err)
		}
	})
}

// encoding/json as an independent reader: the same keys, the same values.
func TestEncodingJSONReadsTheSameStrings(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.String().Draw(t, "string")
		var got string
		if err := json.Unmarshal(appendString(nil, s), &got); err != nil || got != s {
			t.Fatalf("%q became %q, %v", s, got, err)
		}
	})
}

func TestItemJSONMayBeIndentedOrEscapedMoreThanNeeded(t *testing.T) {
	for _, item := range everyShape() {
		var indented bytes.Buffer
		if err := json.Indent(&indented, AppendJSON(nil, item), " ", "\t"); err != nil {
			t.Fatal(err)
		}
		escaped, err := json.Marshal(json.RawMessage(AppendJSON(nil, item))) // escapes <, >, & and U+2028
		if err != nil {
			t.Fatal(err)
		}
		for _, data := range [][]byte{indented.Bytes(), escaped} {
			if got, err := ParseJSON(data); err != nil || !reflect.DeepEqual(got, item) {
				t.Errorf("%s became %#v, %v", data, got, err)
			}
		}
	}
	got, err := ParseJSON([]byte(`{"kind":"user","content":[{"type":"text","text":"\ud83d\udce7\/\u00fC"}],"trust":"user","source_seq":3}`))
	if want := (User{Content: text("📧/ü"), Trust: event.User, SourceSeq: 3}); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%#v, %v", got, err)
	}
}

func TestItemJSONOfAnotherShapeIsRefused(t *testing.T) {
	const user = `{"kind":"user","content":[],"trust":"user","source_seq":3}`
	if _, err := ParseJSON([]byte(user)); err != nil {
		t.Fatal(err)
	}
	said := func(s string) string {
		return strings.Replace(user, "[]", `[{"type":"text","text":`+s+`}]`, 1)
	}
	for name, data := range map[string]string{
		"empty": "", "null": "null", "array": "[]", "cut": user[:len(user)-1], "behind the end": user + "{}",
		"duplicate key":     `{"kind":"user","kind":"user","content":[],"trust":"user","source_seq":3}`,
		"unknown key":       `{"kind":"user","content":[],"trust":"user","source_seq":3,"x":1}`,
		"another case":      `{"kind":"user","content":[],"Trust":"user","source_seq":3}`,
		"missing key":       `{"kind":"user","content":[],"source_seq":3}`,
		"unknown kind":      `{"kind":"tool","content":[],"source_seq":3}`,
		"unknown part":      `{"kind":"system","content":[{"type":"video","uri":"x"}],"source_seq":3}`,
		"unknown trust":     strings.Replace(user, `"trust":"user"`, `"trust":"root"`, 1),
		"unknown method":    `{"kind":"compaction","through_seq":1,"content":[],"method":"magic","source_seq":3}`,
		"content null":      strings.Replace(user, "[]", "null", 1),
		"comma too many":    strings.Replace(user, "[]", "[,]", 1),
		"comma at the end":  strings.Replace(said(`"a"`), "}]", "},]", 1),
		"comma missing":     strings.Replace(said(`"a"`), "}]", `}{"type":"text","text":"b"}]`, 1),
		"seq a float":       strings.Replace(user, "3", "3.0", 1),
		"seq too large":     strings.Replace(user, "3", "9223372036854775808", 1),
		"seq with a zero":   strings.Replace(user, "3", "03", 1),
		"seq a string":      strings.Replace(user, "3", `"3"`, 1),
		"seq missing":       strings.Replace(user, "3", "", 1),
		"bad UTF-8":         said("\"\xff\""),
		"lone surrogate":    said(`"\ud83d"`),
		"lone low":          said(`"\ude00"`),
		"surrogate and ü":   said(`"\ud83d\u00fc"`),
		"bad escape":        said(`"\x"`),
		"bad hex":           said(`"\u00+c"`),
		"raw newline":       said("\"\n\""),
		"open string":       said(`"`),
		"open after escape": `{"kind":"user","content":[{"type":"text","text":"\n`,
		"error a string":    `{"kind":"tool_result","call_id":"a","content":[],"is_error":"no","trust":"user","source_seq":3}`,
	} {
		if got, err := ParseJSON([]byte(data)); err == nil || got != nil {
			t.Errorf("%s: %s became %#v", name, data, got)
		}
	}
}

func FuzzParseJSON(f *testing.F) {
	for _, item := range everyShape() {
		f.Add(AppendJSON(nil, item))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		item, err := ParseJSON(data)
		if err != nil {
			return
		}
		if !json.Valid(data) || !utf8.Valid(data) {
			t.Fatalf("%q is no JSON, and was read as %#v", data, item)
		}
		again, err := ParseJSON(AppendJSON(nil, item))
		if err != nil || !reflect.DeepEqual(again, item) {
			t.Fatalf("%#v became %#v, %v", item, again, err)
		}
	})
}

// The last line's metric says how much slower encoding/json writes the same bytes of a typical tool result.
func BenchmarkAppendJSON(b *testing.B) {
	output := strings.Repeat("drwxr-xr-x  2 root root 4096 Sep 29 10:00 some_folder_name\n", 40)
	item := ToolResult{CallID: "toolu_01A09q90qw90lq917835lq9", Content: text(output), IsError: event.Some(false),
		Trust: event.InternalTool, SourceSeq: 4711}
	perOp := map[string]time.Duration{}
	b.Run("tooltape", func(b *testing.B) {
		var dst []byte
		for b.Loop() {
			dst = AppendJSON(dst[:0], item)
		}
		b.SetBytes(int64(len(dst)))
		perOp["tooltape"] = b.Elapsed() / time.Duration(b.N)
	})
	b.Run("encoding-json", func(b *testing.B) {
		for b.Loop() {
			var buf bytes.Buffer
			enc := json.NewEncoder(&buf)
			enc.SetEscapeHTML(false)
			if err := enc.Encode(standard(item)); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(b.Elapsed()/time.Duration(b.N))/float64(perOp["tooltape"]), "x-slower")
	})
}

// standard is a result as encoding/json writes it, key by key the same.
func standard(r ToolResult) any {
	type part struct {
		Type string `json:"type"`
		Text string `json:"text"`
	}
	out := struct {
		Kind    string `json:"kind"`
		CallID  string `json:"call_id"`
		Content []part `json:"content"`
		IsError *bool  `json:"is_error"`
		Trust   string `json:"trust"`
		Seq     int64  `json:"source_seq"`
	}{r.Kind(), r.CallID, nil, &r.IsError.Value, string(r.Trust), r.SourceSeq}
	for _, p := range r.Content {
		out.Content = append(out.Content, part{"text", p.(event.Text).Text})
	}
	return out
}
