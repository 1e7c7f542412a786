package producer

import (
	"fmt"

	"github.com/tooltape/tooltape/schemas"
)

// Claim is an event's claim to its place in a session: what a conflict is settled by.
type Claim struct {
	Key schemas.Key
	// PrevEventID is empty at seq 1, and where the event cannot be read.
	PrevEventID string
}

// Losers are the claims that go so that keep may stay: the others at its place, and every event that descends from one of them by
// prev_event_id. The claims come by seq. It is an error where keep has no rival.
func Losers(claims []Claim, keep string) ([]Claim, error) {
	seq := int64(0)
	for _, c := range claims {
		if c.Key.EventID == keep {
			seq = c.Key.Seq
		}
	}
	if seq == 0 {
		return nil, fmt.Errorf("event %s is not in the session's log", keep)
	}
	lost := map[string]bool{}
	var losers []Claim
	for _, c := range claims {
		if c.Key.EventID != keep && (c.Key.Seq == seq || c.Key.Seq > seq && lost[c.PrevEventID]) {
			lost[c.Key.EventID] = true
			losers = append(losers, c)
		}
	}
	if len(losers) == 0 {
		return nil, fmt.Errorf("event %s has no rival at seq %d: there is nothing to settle", keep, seq)
	}
	return losers, nil
}
