// Package importer turns sessions that other programs recorded into drafts of events. It is pure: the same session and the
// same tail always give the same drafts, with the same ids, so that an import can be repeated, or go on after a crash, and
// nothing is recorded twice.
//
// The packages below it read one format each. What such a source did not record is null in the drafts, never made up.
package importer

import (
	"fmt"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/tooltape/tooltape/schemas/event"
)

// Session is one session as a source recorded it. It may grow at its end between one import and the next; everything that
// was there before must stay as it was.
type Session struct {
	// TenantID is event.DefaultTenant where it is empty.
	TenantID string
	ID       string
	Entries  []Entry
}

// Entry is the smallest thing that a source adds to a session at once: a line, or a message.
type Entry struct {
	// ID is the source's own id of the entry, or what stands for one (openaichat: its index and a digest of everything up
	// to it). It is unique within the session, and every event id derives from it.
	ID string
	// Response, where it is not empty, names the model response that this entry is a piece of; its one payload is then an
	// event.ModelResponseCompleted, and says what this piece adds: its items, and the tokens beyond those of earlier pieces.
	// Pieces of one response are recorded as one event, as far as they are there when they are imported.
	Response   string
	OccurredAt event.Opt[time.Time]
	// ActorType is "importer" where it is empty: the source does not say who it was.
	ActorType string
	ActorID   event.Opt[string]
	Payloads  []event.Payload
}

// Source is what a reader found in one file.
type Source struct {
	Sessions []Session
	// Skipped counts what was left out because it is no part of what a model was shown, by a phrase that names it.
	Skipped map[string]int
}

// Skip counts one more thing that was left out.
func (s *Source) Skip(what string) {
	if s.Skipped == nil {
		s.Skipped = map[string]int{}
	}
	s.Skipped[what]++
}

// Error is a place in a file that cannot be imported.
type Error struct {
	File string
	// Line counts from 1; 0 where the error is about the file as a whole.
	Line int
	// Path is the place inside the line or document, such as "[3].traj[5]"; empty where the line says enough.
	Path string
	// Message is a sentence that says why.
	Message string
}

func (e *Error) Error() string {
	place := e.File
	if e.Line > 0 {
		place = fmt.Sprintf("%s: line %d", place, e.Line)
	}
	if e.Path != "" {
		place += ": " + e.Path
	}
	return place + ": " + e.Message
}

// CheckID says what is wrong with a session id, if anything is.
func CheckID(id string) error {
	switch {
	case id == "":
		return fmt.Errorf("the session id is empty")
	case len(id) > event.MaxSessionID:
		return fmt.Errorf("the session id has %d bytes, more than %d", len(id), event.MaxSessionID)
	case !utf8.ValidString(id):
		return fmt.Errorf("the session id is not valid UTF-8")
	}
	for _, r := range id {
		if unicode.IsControl(r) {
			return fmt.Errorf("the session id holds the control character %U", r)
		}
	}
	return nil
}

// check refuses a session whose ids could not be derived, or not told apart.
func (s *Session) check() error {
	if err := CheckID(s.ID); err != nil {
		return err
	}
	seen := make(map[string]bool, len(s.Entries))
	for i, e := range s.Entries {
		switch {
		case e.ID == "":
			return fmt.Errorf("session %s: entry %d has no id", s.ID, i)
		case seen[e.ID]:
			return fmt.Errorf("session %s: two entries have the id %q", s.ID, e.ID)
		case e.Response != "" && !e.isPiece():
			return fmt.Errorf("session %s: entry %d is said to be a piece of a response, but is none", s.ID, i)
		}
		seen[e.ID] = true
	}
	return nil
}

// isPiece says whether the entry can be joined with others to one response.
func (e *Entry) isPiece() bool {
	if len(e.Payloads) != 1 {
		return false
	}
	_, ok := e.Payloads[0].(event.ModelResponseCompleted)
	return ok
}
