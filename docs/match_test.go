package docs_test

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"
)

// In what a page shows, … stands for what varies or would be too long: for any text within a line, for any number of lines where it
// is a line of its own, for any value or any piece of a text in JSON. JSON is compared as values, however it is laid out.

const elision = "…"

// matches says whether the output is what the page shows.
func matches(t *testing.T, want block, got string) bool {
	t.Helper()
	if want.language == "json" {
		var wanted, printed any
		if err := json.Unmarshal([]byte(want.text), &wanted); err != nil {
			t.Errorf("%s:%d: this is not JSON: %s", want.page, want.line, err)
			return false
		}
		return json.Unmarshal([]byte(got), &printed) == nil && sameValue(wanted, printed)
	}
	return textPattern(want.text).MatchString(trimLines(got))
}

func textPattern(text string) *regexp.Regexp {
	var b strings.Builder
	b.WriteString(`^`)
	for line := range strings.Lines(trimLines(text)) {
		if strings.TrimSpace(line) == elision {
			b.WriteString(`(?:.*\n)*?`)
			continue
		}
		b.WriteString(linePattern(strings.TrimSuffix(line, "\n")) + `\n`)
	}
	b.WriteString(`$`)
	return regexp.MustCompile(b.String())
}

func linePattern(line string) string {
	return strings.ReplaceAll(regexp.QuoteMeta(line), elision, `.*`)
}

// trimLines drops the blanks at the ends of lines, which nobody sees, and ends the last line.
func trimLines(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		b.WriteString(strings.TrimRight(line, " \t\r\n") + "\n")
	}
	return b.String()
}

func sameValue(want, got any) bool {
	switch w := want.(type) {
	case string:
		if w == elision {
			return true
		}
		g, ok := got.(string)
		return ok && regexp.MustCompile(`(?s)^`+linePattern(w)+`$`).MatchString(g)
	case []any:
		g, ok := got.([]any)
		if !ok || len(g) != len(w) {
			return false
		}
		for i := range w {
			if !sameValue(w[i], g[i]) {
				return false
			}
		}
		return true
	case map[string]any:
		g, ok := got.(map[string]any)
		if !ok || len(g) != len(w) {
			return false
		}
		for key := range w {
			if _, has := g[key]; !has || !sameValue(w[key], g[key]) {
				return false
			}
		}
		return true
	}
	return want == got
}

func TestMatching(t *testing.T) {
	for _, c := range []struct {
		language, page, output string
		want                   bool
	}{
		{"text", "a  \nb\n", "a\nb", true},
		{"text", "a\n", "a\nb\n", false},
		{"text", "a…z\n", "a(1)z\n", true},
		{"text", "…\nz\n", "a\nb\nz\n", true},
		{"text", "a\n…\n", "a\n", true},
		{"text", "a…\n", "a\nb\n", false},
		{"json", `{"b": ["…", 2], "a": "x…"}`, `{"a":"xy","b":[{"c":1},2]}`, true},
		{"json", `{"a": 1}`, `{"a":1,"b":2}`, false},
		{"json", `["…"]`, `[1,2]`, false},
	} {
		if got := matches(t, block{language: c.language, text: c.page}, c.output); got != c.want {
			t.Errorf("%s %q shown, %q printed: %t, want %t", c.language, c.page, c.output, got, c.want)
		}
	}
}
