package processors

import (
	"fmt"

	"github.com/tooltape/tooltape/schemas/event"
)

// A batch in which so many sessions, and such a share of them, would be parked for one reason says more about the build than about the
// sessions.
const (
	badBuildSessions = 10
	badBuildShare    = 0.2
)

// BadBuildError is a build that would park a large part of a batch's sessions with one code. Its partition stops instead, and nothing of
// the batch is stored.
type BadBuildError struct {
	Code             event.Code
	Parked, Sessions int
}

func (e *BadBuildError) Error() string {
	return fmt.Sprintf("%d of the %d sessions of a batch would be parked for %s: this build is taken for the culprit, and the partition stops; deploy one that knows these events",
		e.Parked, e.Sessions, e.Code)
}

// badBuild judges a decision. Holes and conflicts are the log's doing, not the build's, and never count.
func badBuild(d *decision, records []record) error {
	for code, n := range d.parked {
		if n < badBuildSessions || code == event.Gap || code == event.Conflict {
			continue
		}
		sessions := map[string]bool{}
		for _, r := range records {
			if r.placeErr == nil {
				sessions[r.place.SessionID] = true
			}
		}
		if float64(n) >= badBuildShare*float64(len(sessions)) {
			return &BadBuildError{Code: code, Parked: n, Sessions: len(sessions)}
		}
	}
	return nil
}
