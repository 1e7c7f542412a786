package projection

import (
	"slices"

	"github.com/tooltape/tooltape/schemas/event"
)

// OpenCall is a call that a session's log leaves without a result.
type OpenCall struct {
	CallID string
	Name   string
	RunID  event.Opt[string]
	// Started says that the call had begun: what it did is not known. One that had not begun did nothing.
	Started bool
}

// OpenCalls are the calls that have no result, in the order in which the model made them. Events come in order. A result answers the
// nearest earlier open call of its id, as in Assemble.
func OpenCalls(events []event.Event) []OpenCall {
	var open []OpenCall
	latest := func(id string) int {
		for i := len(open) - 1; i >= 0; i-- {
			if open[i].CallID == id {
				return i
			}
		}
		return -1
	}
	for _, e := range events {
		switch p := e.Payload.(type) {
		case event.ModelResponseCompleted:
			for _, item := range p.Items {
				if call, ok := item.(event.ToolCall); ok {
					open = append(open, OpenCall{CallID: call.CallID, Name: call.Name, RunID: e.RunID})
				}
			}
		case event.ToolCallStarted:
			if i := latest(p.CallID); i >= 0 {
				open[i].Started = true
			}
		}
		if result, ok := event.ToolResultOf(e.Payload); ok {
			if i := latest(result.CallID); i >= 0 {
				open = slices.Delete(open, i, i+1)
			}
		}
	}
	return open
}
