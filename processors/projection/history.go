package projection

import (
	"fmt"

	"github.com/tooltape/tooltape/schemas/event"
)

// History is the history of one session in memory, for a runtime that holds its own events. The zero History is a session
// without events. It is not for concurrent use.
type History struct {
	// Parent is what a forked session goes on from ([History.Through] of the other session); nil for any other.
	Parent *Parent

	items     []Item
	last      event.Envelope
	forkPoint event.Opt[event.SessionRef]
}

// Append adds the session's next event. An event that cannot be projected, that comes beyond a hole, or whose place is taken
// is an *[event.Error], and the history stays as it was.
func (h *History) Append(e event.Event) error {
	if err := h.follows(e); err != nil {
		return err
	}
	items, err := Items(e)
	if err != nil {
		return err
	}
	if created, ok := e.Payload.(event.SessionCreated); ok {
		h.forkPoint = created.ForkedFrom
	}
	h.items = append(h.items, items...)
	h.last = e.Envelope
	return nil
}

// follows says why e is not the next event of this session.
func (h *History) follows(e event.Event) error {
	switch {
	case h.last.Seq > 0 && e.SessionID != h.last.SessionID:
		return unfit(e, event.BadEvent, "session_id", "belongs to another session")
	case e.Seq > h.last.Seq+1:
		return unfit(e, event.Gap, "seq", fmt.Sprintf("comes beyond a hole: the next is seq %d", h.last.Seq+1))
	case e.Seq <= h.last.Seq:
		return unfit(e, event.Conflict, "seq", fmt.Sprintf("takes a place that is taken: the next is seq %d", h.last.Seq+1))
	case h.last.Seq > 0 && e.PrevEventID != event.Some(h.last.EventID):
		return unfit(e, event.Conflict, "prev_event_id", "does not follow "+h.last.EventID)
	}
	return nil
}

// Items are the session's own items so far. They are the history's: not to be changed.
func (h *History) Items() []Item { return h.items[:len(h.items):len(h.items)] }

// Seq is the seq of the last event, 0 before the first.
func (h *History) Seq() int64 { return h.last.Seq }

// Through is what a session forked from this one at seq goes on from.
func (h *History) Through(seq int64) *Parent {
	return &Parent{Items: h.Items(), ThroughSeq: seq, Parent: h.Parent}
}

// Conversation is [Assemble] of the items so far.
func (h *History) Conversation() (Conversation, error) {
	switch from := h.forkPoint; {
	case from.OK && h.Parent == nil:
		return Conversation{}, fmt.Errorf("the session was forked from %q at seq %d, and its parent's history is missing",
			from.Value.SessionID, from.Value.Seq)
	case from.OK && h.Parent.ThroughSeq != from.Value.Seq:
		return Conversation{}, fmt.Errorf("the session was forked from %q at seq %d, and its parent's history is given through seq %d",
			from.Value.SessionID, from.Value.Seq, h.Parent.ThroughSeq)
	case !from.OK && h.Parent != nil:
		return Conversation{}, fmt.Errorf("the session is no fork, and a parent's history is given")
	}
	return Assemble(h.items, h.Parent)
}
