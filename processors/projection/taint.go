package projection

import "github.com/tooltape/tooltape/schemas/event"

// WriteTaint says whether the active turn alone is tainted for writes: whether, since the last user message of trust user, a
// tool result of content came in that nobody vouches for. An old denial in an earlier turn taints nothing. Where no user has
// spoken there is no turn to trust.
func WriteTaint(items []Item) bool {
	for n := len(items) - 1; n >= 0; n-- {
		switch item := items[n].(type) {
		case ToolResult:
			if item.Trust == event.ExternalUntrusted || item.Trust == event.Knowledge {
				return true
			}
		case User:
			if item.Trust == event.User {
				return false
			}
		}
	}
	return true
}
