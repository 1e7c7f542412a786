// Package projection turns events into items, and items into what a model provider accepts. It is pure: no I/O, no clock.
package projection

// Item is one entry of a conversation. The types of this package are all there are.
type Item interface {
	// Kind is the item's kind as its JSON form spells it.
	Kind() string
	// Seq is the source_seq: the seq of the event that the item comes from. Items of one model response share it.
	Seq() int64
}
