// Package projection turns events into items, and items into what a model provider accepts. It is pure: no I/O, no clock.
//
// There is one projection ([Items]); whatever shows a session again, to a model, an analyst or a reviewer, shows its items.
package projection

import "github.com/tooltape/tooltape/schemas/event"

// Item is one entry of a conversation. The types of this package are all there are, and they are used as values: [System],
// [User], [Assistant], [ToolCall], [ToolResult], [Provider] and [Compaction].
type Item interface {
	// Kind is the item's kind as its JSON form spells it.
	Kind() string
	// Seq is the source_seq: the seq of the event that the item comes from. Items of one model response share it.
	Seq() int64

	appendJSON(dst []byte) []byte
}

// System is the instructions that the model was given; a later one replaces an earlier one.
type System struct {
	Content   []event.Part
	SourceSeq int64
}

// User is what a user, or an application in a user's place, said to the model.
type User struct {
	Content   []event.Part
	Trust     event.Trust
	SourceSeq int64
}

// Assistant is what the model said.
type Assistant struct {
	Content []event.Part
	// ProviderData is JSON text, kept verbatim.
	ProviderData event.Opt[string]
	SourceSeq    int64
}

// ToolCall is a call that the model asked for.
type ToolCall struct {
	CallID string
	Name   string
	// Arguments is what the model wrote, verbatim: usually JSON text, not always.
	Arguments string
	// ProviderData is JSON text, kept verbatim.
	ProviderData event.Opt[string]
	SourceSeq    int64
}

// ToolResult is what the model was given as the result of a call.
type ToolResult struct {
	CallID  string
	Content []event.Part
	// IsError is absent where the source has no error flag.
	IsError   event.Opt[bool]
	Trust     event.Trust
	SourceSeq int64
}

// Provider is what only its provider understands: signed thinking, reasoning items, server-side tools.
type Provider struct {
	Provider     string
	ProviderKind string
	Text         event.Opt[string]
	// Data is JSON text, kept verbatim.
	Data      string
	SourceSeq int64
}

// Compaction is what a context has instead of everything up to ThroughSeq.
type Compaction struct {
	ThroughSeq int64
	Content    []event.Part
	Method     string
	SourceSeq  int64
}

// Kind implements Item.
func (System) Kind() string     { return "system" }
func (User) Kind() string       { return "user" }
func (Assistant) Kind() string  { return "assistant" }
func (ToolCall) Kind() string   { return "tool_call" }
func (ToolResult) Kind() string { return "tool_result" }
func (Provider) Kind() string   { return "provider" }
func (Compaction) Kind() string { return "compaction" }

// Seq implements Item.
func (i System) Seq() int64     { return i.SourceSeq }
func (i User) Seq() int64       { return i.SourceSeq }
func (i Assistant) Seq() int64  { return i.SourceSeq }
func (i ToolCall) Seq() int64   { return i.SourceSeq }
func (i ToolResult) Seq() int64 { return i.SourceSeq }
func (i Provider) Seq() int64   { return i.SourceSeq }
func (i Compaction) Seq() int64 { return i.SourceSeq }

// contentOf is the content of an item that has any.
func contentOf(item Item) []event.Part {
	switch item := item.(type) {
	case System:
		return item.Content
	case User:
		return item.Content
	case Assistant:
		return item.Content
	case ToolResult:
		return item.Content
	case Compaction:
		return item.Content
	}
	return nil
}
