package docs_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode"
)

// block is a fenced block of a page.
type block struct {
	page     string
	line     int
	language string
	text     string
	// notRun is the reason why a block of sh is not run: a comment right before it, <!-- not run: REASON -->.
	notRun string
	// output is the block of text or json directly after it: what it prints.
	output *block
}

var notRun = regexp.MustCompile(`^<!-- not run: (.+) -->$`)

// blocks reads a page's fenced blocks, in order.
func blocks(t *testing.T, page string) []block {
	t.Helper()
	var found []block
	var open *block
	var between, reason string // what stands between a block and the next, and the last comment
	for n, line := range strings.Split(read(t, page), "\n") {
		switch {
		case open == nil && strings.HasPrefix(line, "```"):
			open = &block{page: page, line: n + 1, language: strings.TrimPrefix(line, "```"), notRun: reason}
		case open != nil && line == "```":
			if last := len(found) - 1; last >= 0 && between == "" && isOutput(*open) && found[last].language == "sh" {
				found[last].output = open
			} else {
				found = append(found, *open)
			}
			open, between = nil, ""
		case open != nil:
			open.text += line + "\n"
		default:
			between += line
			if reason = ""; notRun.MatchString(line) {
				reason = notRun.FindStringSubmatch(line)[1]
			}
		}
	}
	if open != nil {
		t.Errorf("%s:%d: the block has no end", page, open.line)
	}
	return found
}

func isOutput(b block) bool { return b.language == "text" || b.language == "json" }

// pages are the documents, README first, as paths from the repository's root.
func pages(t *testing.T) []string {
	t.Helper()
	found := []string{"README.md", "CHANGELOG.md", "CONTRIBUTING.md"}
	for _, pattern := range []string{"docs/*.md", "docs/adr/*.md"} {
		matches, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range matches {
			rel, err := filepath.Rel(root, m)
			if err != nil {
				t.Fatal(err)
			}
			found = append(found, rel)
		}
	}
	return found
}

func read(t *testing.T, page string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, page))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ (.+)$`)
	fenced  = regexp.MustCompile("(?ms)^```.*?^```$")
)

// TestLinks follows the links between documents, to their headings too.
func TestLinks(t *testing.T) {
	for _, page := range pages(t) {
		for _, m := range link.FindAllStringSubmatch(fenced.ReplaceAllString(read(t, page), ""), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			path, anchor, _ := strings.Cut(m[1], "#")
			target := filepath.Join(filepath.Dir(page), path)
			if path == "" {
				target = page
			}
			if _, err := os.Stat(filepath.Join(root, target)); err != nil {
				t.Errorf("%s links to %s, which is not there", page, m[1])
				continue
			}
			if anchor != "" && !hasHeading(read(t, target), anchor) {
				t.Errorf("%s links to %s, and %s has no such heading", page, m[1], target)
			}
		}
	}
}

func hasHeading(text, anchor string) bool {
	for _, m := range heading.FindAllStringSubmatch(fenced.ReplaceAllString(text, ""), -1) {
		if slug(m[1]) == anchor {
			return true
		}
	}
	return false
}

// slug is a heading's anchor, as the usual renderers make it.
func slug(title string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case unicode.IsLetter(r), unicode.IsDigit(r), r == '-', r == '_':
			return unicode.ToLower(r)
		}
		return -1
	}, title)
}

// TestCode holds the code on the pages to the files that it comes from, where it is compiled and run.
func TestCode(t *testing.T) {
	sources := map[string]string{
		"go":  strings.ReplaceAll(read(t, "docs/example_test.go"), "\n\t", "\n"),
		"sql": read(t, "sinks/postgres/migrations/0001_positions.sql"),
	}
	for _, page := range pages(t) {
		for _, b := range blocks(t, page) {
			if source, ok := sources[b.language]; ok && !strings.Contains(source, b.text) {
				t.Errorf("%s:%d: this code is not that of the file it comes from, to the letter", b.page, b.line)
			}
		}
	}
}
