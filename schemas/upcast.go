package schemas

import (
	"maps"

	"github.com/tooltape/tooltape/schemas/event"
)

// upcasters hold the single steps from one payload version to the next. A step is pure and total, and never invents a value:
// what was not recorded becomes an explicit null. It is handed a copy of the payload in goavro's native form, and must not
// change what lies deeper.
var upcasters = map[upcastStep]func(payload map[string]any){
	{event.SessionCreatedType, 1}: func(payload map[string]any) { payload["title"] = nil },
	// A denial of version 1 that has no item says so from now on: an explicit null (ADR-0142). A recorded item passes unchanged;
	// it loses the wrapping of the union, which version 2 does not have.
	{event.ToolCallDeniedType, 1}: func(payload map[string]any) { payload["result_item"] = branchValue(payload["result_item"]) },
}

type upcastStep struct {
	eventType event.Type
	from      int
}

// upcast takes a payload from a version to a later one. No step is missing: load made sure of that.
func upcast(payload map[string]any, t event.Type, from, to int) map[string]any {
	for ; from < to; from++ {
		payload = maps.Clone(payload)
		upcasters[upcastStep{t, from}](payload)
	}
	return payload
}
