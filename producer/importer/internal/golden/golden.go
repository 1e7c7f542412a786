// Package golden writes drafts of events as a list that a person reads, and compares it with a file. For tests.
package golden

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tooltape/tooltape/schemas/event"
)

var rewrite = flag.Bool("rewrite", false, "rewrite the golden files from what the code does")

// Compare compares the text with the file, or writes the file when the test runs with -rewrite.
func Compare(t *testing.T, file, got string) {
	t.Helper()
	if *rewrite {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs; run the test with -rewrite and look at the change.\ngot:\n%s", file, got)
	}
}

// Shared is a file of the real data, which is not part of the project; the test is skipped where it is absent.
func Shared(t *testing.T, name string) *os.File {
	t.Helper()
	folder := os.Getenv("TOOLTAPE_SHARED")
	if folder == "" {
		folder = filepath.Join("..", "..", "..", "..", "shared")
	}
	f, err := os.Open(filepath.Join(folder, "data", name))
	if err != nil {
		t.Skipf("the real data is not here (set TOOLTAPE_SHARED to its folder): %v", err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// Events lists events, one a line, with what they say below them. Ids are left out, but for the last part of the run's.
func Events(events []event.Event) string {
	var b strings.Builder
	for i, e := range events {
		run := "-"
		if e.RunID.OK {
			run = e.RunID.Value[len(e.RunID.Value)-4:]
		}
		at := "no time"
		if e.OccurredAt.OK {
			at = e.OccurredAt.Value.Format(time.RFC3339Nano)
		}
		fmt.Fprintf(&b, "%d %s (run %s, %s, %s)\n", i+1, e.Type, run, e.ActorType, at)
		describe(&b, e.Payload)
	}
	return b.String()
}

func describe(b *strings.Builder, payload event.Payload) {
	if r, ok := event.ToolResultOf(payload); ok {
		fmt.Fprintf(b, "    call %s of %s, reason %s, is_error %s, trust %s\n", r.CallID, r.Name, opt(r.ReasonCode),
			opt(r.ResultItem.Item.IsError), r.ResultItem.Item.Trust)
		parts(b, r.ResultItem.Item.Content)
		return
	}
	switch p := payload.(type) {
	case event.SystemMessageCreated:
		parts(b, p.Content)
	case event.UserMessageCreated:
		fmt.Fprintf(b, "    trust %s\n", p.Trust)
		parts(b, p.Content)
	case event.ToolsOffered:
		for _, tool := range p.Tools {
			fmt.Fprintf(b, "    tool %s: %s %s\n", tool.Name, opt(tool.Description), tool.Parameters)
		}
		fmt.Fprintf(b, "    digest %s\n", p.Digest)
	case event.ModelResponseCompleted:
		response(b, p)
	case event.ModelResponseFailed:
		fmt.Fprintf(b, "    round %d, %s: %s\n", p.Round, p.ErrorClass, opt(p.Message))
	case event.ContextCompacted:
		fmt.Fprintf(b, "    through %d, %s\n", p.ThroughSeq, p.Method)
		parts(b, p.Content)
	case event.NoteRecorded:
		fmt.Fprintf(b, "    %s %s\n", p.Name, p.Data)
	case event.RunCompleted:
		fmt.Fprintf(b, "    %s\n", p.Reason)
	}
}

func response(b *strings.Builder, p event.ModelResponseCompleted) {
	fmt.Fprintf(b, "    round %d, model %s, stop %s\n", p.Round, opt(p.Model), opt(p.StopReason))
	if u := p.Usage.Value; p.Usage.OK {
		fmt.Fprintf(b, "    tokens: %d in (%s cached, %s written to the cache), %d out\n", u.InputTokens, opt(u.CachedTokens), opt(u.CacheWriteTokens), u.OutputTokens)
	}
	for _, item := range p.Items {
		switch item := item.(type) {
		case event.AssistantMessage:
			fmt.Fprintf(b, "    said, provider data %s\n", opt(item.ProviderData))
			parts(b, item.Content)
		case event.ToolCall:
			fmt.Fprintf(b, "    call %s of %s with %s, provider data %s\n", item.CallID, item.Name, item.Arguments, opt(item.ProviderData))
		case event.ProviderItem:
			fmt.Fprintf(b, "    %s %s: %s %s\n", item.Provider, item.ProviderKind, opt(item.Text), item.Data)
		}
	}
}

func parts(b *strings.Builder, content []event.Part) {
	for _, part := range content {
		switch part := part.(type) {
		case event.Text:
			fmt.Fprintf(b, "      %q\n", part.Text)
		default:
			fmt.Fprintf(b, "      %T %+v\n", part, part)
		}
	}
}

func opt[T any](o event.Opt[T]) string {
	if !o.OK {
		return "null"
	}
	return fmt.Sprint(o.Value)
}
