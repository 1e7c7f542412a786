package projection

import (
	"fmt"
	"strings"
)

// Parent is what a forked session goes on from: the items of the session it was forked from, of which those up to ThroughSeq
// (forked_from.seq) are its own beginning too.
type Parent struct {
	Items      []Item
	ThroughSeq int64
	// Parent is set where the parent is a fork itself.
	Parent *Parent
}

// Conversation is what a model is to be shown: complete, so that every rendering can be made of it. Assemble makes it.
type Conversation struct {
	// Items are in order; a System comes first, and there is at most one. A Compaction stands there as a user's message.
	Items []Item
	// Pair is, for each item, the index of its other half: a call's result, a result's call. It is -1 for the other kinds.
	// Ids cannot serve for this: real models use one again and again within a session.
	Pair []int
	// Response is, for each item, a number that the items of one model response share, and no others do. It is 0 for what no
	// model said.
	Response []int
}

// Assemble makes the conversation of a session from its items, in the order of their seq, and those of its parent, nil where
// the session is no fork.
//
//   - The last system item comes first, and no other is left.
//   - A compaction stands for everything up to its through_seq but the system items, and for everything of the parent. It does
//     not cut an exchange in two: a response of which a call is answered beyond through_seq stays, with all its results.
//   - Every call has its one result and every result its call, else the error is an [*OrphansError]. Nothing is made up to hide
//     one.
func Assemble(items []Item, parent *Parent) (Conversation, error) {
	entries := gather(nil, items, parent, 0)
	pair(entries)
	compact(entries)
	if err := orphans(entries); err != nil {
		return Conversation{}, err
	}
	return arrange(entries), nil
}

// entry is an item on its way into a conversation.
type entry struct {
	Item
	// generation is 0 for the session's own items, 1 for its parent's, and so on.
	generation int
	// mate is the index of the other half of a call or result, or -1.
	mate int
	// response is 1 + the index of the first item of the model response that this one is part of; 0 for what no model said.
	response int
	// gone says that a compaction, or a later system item, stands in its place.
	gone bool
}

// gather puts the items of the ancestors before the session's own and numbers the responses.
func gather(entries []entry, items []Item, parent *Parent, generation int) []entry {
	if parent != nil {
		inherited := parent.Items
		for n, item := range inherited {
			if item.Seq() > parent.ThroughSeq {
				inherited = inherited[:n]
				break
			}
		}
		entries = gather(entries, inherited, parent.Parent, generation+1)
	}
	for n, item := range items {
		e := entry{Item: item, generation: generation, mate: -1}
		switch {
		case !said(item):
		case n > 0 && said(items[n-1]) && items[n-1].Seq() == item.Seq():
			e.response = entries[len(entries)-1].response
		default:
			e.response = len(entries) + 1
		}
		entries = append(entries, e)
	}
	return entries
}

// said says whether an item is part of a model's response.
func said(item Item) bool {
	switch item.(type) {
	case Assistant, ToolCall, Provider:
		return true
	}
	return false
}

// pair joins each result with the nearest earlier call with its id that is still open. Within one response, where none is
// nearer than another, that is the first: results of parallel calls come in the order of the calls.
func pair(entries []entry) {
	open := map[string][]int{} // by call id, in order
	for n := range entries {
		switch item := entries[n].Item.(type) {
		case ToolCall:
			open[item.CallID] = append(open[item.CallID], n)
		case ToolResult:
			calls := open[item.CallID]
			if len(calls) == 0 {
				continue
			}
			nearest := len(calls) - 1
			for nearest > 0 && entries[calls[nearest-1]].response == entries[calls[nearest]].response {
				nearest--
			}
			call := calls[nearest]
			entries[n].mate, entries[call].mate = call, n
			open[item.CallID] = append(calls[:nearest], calls[nearest+1:]...)
		}
	}
}

// compact marks what compactions, and later system items, stand for.
func compact(entries []entry) {
	system := -1
	for n := range entries {
		switch item := entries[n].Item.(type) {
		case System:
			if system >= 0 {
				entries[system].gone = true
			}
			system = n
		case Compaction:
			replace(entries, n, item.ThroughSeq)
		}
	}
}

// replace marks what the compaction at index n stands for.
func replace(entries []entry, n int, through int64) {
	covered := func(i int) bool {
		if i > n || entries[i].Kind() == (System{}).Kind() {
			return false
		}
		place := entries[i].Seq()
		if earlier, ok := entries[i].Item.(Compaction); ok { // it stands where what it replaced stood
			place = earlier.ThroughSeq
		}
		return entries[i].generation > entries[n].generation || place <= through
	}
	unfinished := map[int]bool{} // responses of which a call is answered only beyond through
	for i := range n {
		if mate := entries[i].mate; mate > i && covered(i) && !covered(mate) {
			unfinished[entries[i].response] = true
		}
	}
	for i := range n {
		response := entries[i].response
		if mate := entries[i].mate; response == 0 && mate >= 0 { // a result goes with its call
			response = entries[mate].response
		}
		if covered(i) && !unfinished[response] {
			entries[i].gone = true
		}
	}
}

// arrange puts what is left in order: the system item, then the compactions, then the rest. A later compaction that left an
// earlier one standing reaches less far back, so it comes before it.
func arrange(entries []entry) Conversation {
	var order, compactions, rest []int
	for n, e := range entries {
		switch {
		case e.gone:
		case e.Kind() == (System{}).Kind():
			order = append(order, n)
		case e.Kind() == (Compaction{}).Kind():
			compactions = append([]int{n}, compactions...)
		default:
			rest = append(rest, n)
		}
	}
	order = append(append(order, compactions...), rest...)
	c := Conversation{Items: make([]Item, len(order)), Pair: make([]int, len(order)), Response: make([]int, len(order))}
	index := make(map[int]int, len(order))
	for to, from := range order {
		index[from] = to
		c.Items[to], c.Pair[to], c.Response[to] = entries[from].Item, -1, entries[from].response
	}
	for to, from := range order {
		if mate := entries[from].mate; mate >= 0 {
			c.Pair[to] = index[mate]
		}
	}
	return c
}

// Orphan is a call without a result, or a result without a call.
type Orphan struct {
	CallID string
	Seq    int64
	// Inherited says that it belongs to a session that this one was forked from.
	Inherited bool
}

// OrphansError says which calls have no result and which results no call; a model provider accepts neither.
type OrphansError struct{ Calls, Results []Orphan }

func (e *OrphansError) Error() string {
	var what []string
	if len(e.Calls) > 0 {
		what = append(what, "calls without a result: "+list(e.Calls))
	}
	if len(e.Results) > 0 {
		what = append(what, "results without a call: "+list(e.Results))
	}
	return "the conversation has " + strings.Join(what, ", and ") +
		`; a crash leaves calls open, and "tooltape close SESSION --reason …" records what became of them`
}

// list names at most ten orphans: an error is read by people.
func list(orphans []Orphan) string {
	const most = 10
	var names []string
	for _, o := range orphans[:min(len(orphans), most)] {
		where := fmt.Sprintf("%q (seq %d)", o.CallID, o.Seq)
		if o.Inherited {
			where = fmt.Sprintf("%q (seq %d of the session it was forked from)", o.CallID, o.Seq)
		}
		names = append(names, where)
	}
	if more := len(orphans) - most; more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(names, ", ")
}

// orphans is the error for calls and results that stand alone, or nil.
func orphans(entries []entry) error {
	var err OrphansError
	for _, e := range entries {
		if e.gone || e.mate >= 0 {
			continue
		}
		switch item := e.Item.(type) {
		case ToolCall:
			err.Calls = append(err.Calls, Orphan{item.CallID, item.SourceSeq, e.generation > 0})
		case ToolResult:
			err.Results = append(err.Results, Orphan{item.CallID, item.SourceSeq, e.generation > 0})
		}
	}
	if err.Calls == nil && err.Results == nil {
		return nil
	}
	return &err
}
