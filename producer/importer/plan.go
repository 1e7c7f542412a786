package importer

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/tooltape/tooltape/schemas/event"
)

// Tail is the last event of a session as it is recorded; zero where nothing is.
type Tail struct {
	Seq     int64
	EventID string
	RunID   event.Opt[string]
}

// TailError says that a session ends with an event that the file does not lead to, so that nobody can say what is new in it.
type TailError struct {
	SessionID string
	Tail      Tail
}

func (e *TailError) Error() string {
	return fmt.Sprintf("session %s ends with event %s (seq %d), which this file does not contain: the file was changed, "+
		"is shorter than when it was imported, or is another session of that name", e.SessionID, e.Tail.EventID, e.Tail.Seq)
}

// Plan is what is to be appended so that the session holds everything that s holds, given how it ends now: nothing where it
// is all there. The drafts have no Seq, PrevEventID and PayloadVersion: the writer numbers and stamps them.
//
// A session is session.created and then one run for each import that found something new: run.started, the entries,
// run.completed. Where an earlier import broke off, its run is finished first.
func Plan(s Session, tail Tail) ([]event.Event, error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	at, err := s.locate(tail)
	if err != nil {
		return nil, err
	}
	p := planner{session: &s, seq: tail.Seq}
	if tail == (Tail{}) && len(s.Entries) > 0 {
		p.add(s.createdID(), Entry{}, event.SessionCreated{})
	}
	if at.inRun {
		p.run(at.from, at.to, at.done)
		at.from = at.to
	}
	if at.from < len(s.Entries) {
		p.runID = event.Some(s.runID(at.from))
		p.add(s.startedID(at.from), Entry{}, event.RunStarted{})
		p.run(at.from, len(s.Entries), 0)
	}
	return p.events, nil
}

// position is where a recorded session ends, in terms of the entries of the file.
type position struct {
	// from is the first entry that is not recorded; or, in a run, the first entry of that run.
	from int
	// inRun says that a run is not ended. It is to take the entries up to to, and done of its drafts are recorded.
	inRun    bool
	to, done int
}

// locate finds the tail in what the file leads to.
//
// A run's id says with which entry the run began, an end's id after which entry it ended. Inside a run the drafts are those of
// the whole file, unless the import that broke off saw a shorter file, which ended amidst the pieces of a response. Then
// they are those of that shorter file, and the search tries each such end.
func (s *Session) locate(tail Tail) (position, error) {
	if tail == (Tail{}) || tail.EventID == s.createdID() {
		return position{}, nil
	}
	n := len(s.Entries)
	for k := n; k > 0; k-- {
		if tail.EventID == s.endedID(k) {
			return position{from: k}, nil
		}
	}
	for from := n - 1; from >= 0; from-- {
		if tail.RunID != event.Some(s.runID(from)) {
			continue
		}
		if tail.EventID == s.startedID(from) {
			return position{from: from, inRun: true, to: n}, nil
		}
		to := n
		if index(s.arrange(from, n), tail.EventID) < 0 {
			to = s.brokenOff(from, tail.EventID)
		}
		if done := index(s.arrange(from, to), tail.EventID); done >= 0 {
			return position{from: from, inRun: true, to: to, done: done + 1}, nil
		}
	}
	return position{}, &TailError{SessionID: s.ID, Tail: tail}
}

// brokenOff finds where the file had ended whose import, beginning at from, recorded the event: before a piece of the response
// that the event belongs to. It is from where there is no such end.
func (s *Session) brokenOff(from int, eventID string) int {
	for i := from; i < len(s.Entries); {
		pieces, next := s.response(i, len(s.Entries))
		for _, to := range pieces[min(1, len(pieces)):] {
			if index(s.arrange(i, to), eventID) >= 0 {
				return to
			}
		}
		i = next
	}
	return from
}

// draft is one event to be.
type draft struct {
	id      string
	entry   Entry
	payload event.Payload
}

func index(drafts []draft, id string) int {
	return slices.IndexFunc(drafts, func(d draft) bool { return d.id == id })
}

// arrange is what an import of the entries from..to records between its run.started and its run.completed. The pieces of a
// response become one event at the place of the first; the results that came between them follow.
//
// A draft's id names its entry and, where it is another, the last piece that had to be there before it was drafted.
// So an id says exactly what was recorded before it, also in a file that ended amidst a response.
func (s *Session) arrange(from, to int) []draft {
	var drafts []draft
	for i := from; i < to; {
		pieces, next := s.response(i, to)
		reach := s.Entries[next-1]
		if len(pieces) > 0 {
			whole := s.join(pieces)
			drafts = append(drafts, draft{s.entryID(s.Entries[i], reach, 0), whole, whole.Payloads[0]})
		}
		for j := i; j < next; j++ {
			if slices.Contains(pieces, j) {
				continue
			}
			for k, payload := range s.Entries[j].Payloads {
				drafts = append(drafts, draft{s.entryID(s.Entries[j], reach, k), s.Entries[j], payload})
			}
		}
		i = next
	}
	return drafts
}

// response finds the pieces of the response that begins at entry i, none where none does, and the entry after the last.
// Only results stand between two pieces: anything else that the model was shown ends the response.
func (s *Session) response(i, to int) (pieces []int, next int) {
	name := s.Entries[i].Response
	if name == "" {
		return nil, i + 1
	}
	for j := i; j < to; j++ {
		switch {
		case s.Entries[j].Response == name:
			pieces, next = append(pieces, j), j+1
		case !s.Entries[j].canWait():
			return pieces, next
		}
	}
	return pieces, next
}

// canWait says whether the entry may be recorded after a later piece of a response: results belong behind the whole
// response that made the calls, and notes are shown to nobody.
func (e *Entry) canWait() bool {
	for _, p := range e.Payloads {
		_, isResult := event.ToolResultOf(p)
		_, isNote := p.(event.NoteRecorded)
		if !isResult && !isNote {
			return false
		}
	}
	return true
}

// join makes one entry of a response's pieces. It happened when its last piece did.
func (s *Session) join(pieces []int) Entry {
	whole := s.Entries[pieces[len(pieces)-1]]
	response := s.Entries[pieces[0]].Payloads[0].(event.ModelResponseCompleted)
	response.Items = slices.Clone(response.Items)
	for _, i := range pieces[1:] {
		piece := s.Entries[i].Payloads[0].(event.ModelResponseCompleted)
		response.Items = append(response.Items, piece.Items...)
		response.Usage = addUsage(response.Usage, piece.Usage)
		if piece.StopReason.OK {
			response.StopReason = piece.StopReason
		}
	}
	whole.Payloads = []event.Payload{response}
	return whole
}

func addUsage(a, b event.Opt[event.Usage]) event.Opt[event.Usage] {
	if !a.OK || !b.OK {
		if b.OK {
			return b
		}
		return a
	}
	return event.Some(event.Usage{
		InputTokens:      a.Value.InputTokens + b.Value.InputTokens,
		OutputTokens:     a.Value.OutputTokens + b.Value.OutputTokens,
		CachedTokens:     add(a.Value.CachedTokens, b.Value.CachedTokens),
		CacheWriteTokens: add(a.Value.CacheWriteTokens, b.Value.CacheWriteTokens),
		ReasoningTokens:  add(a.Value.ReasoningTokens, b.Value.ReasoningTokens),
		CostUSD:          add(a.Value.CostUSD, b.Value.CostUSD),
	})
}

func add[N int64 | float64](a, b event.Opt[N]) event.Opt[N] {
	return event.Opt[N]{Value: a.Value + b.Value, OK: a.OK || b.OK}
}

// planner collects the events of a plan.
type planner struct {
	session *Session
	seq     int64 // of the last event, recorded or planned
	runID   event.Opt[string]
	events  []event.Event
}

// run adds what a run over the entries from..to still lacks, and its end.
func (p *planner) run(from, to, done int) {
	p.runID = event.Some(p.session.runID(from))
	before := -1 // rounds that the source counts before this run
	for i, d := range p.session.arrange(from, to) {
		if round, ok := roundOf(d.payload); ok && before < 0 {
			before = round - 1
		}
		if i >= done {
			p.add(d.id, d.entry, inRun(d.payload, before))
		}
	}
	p.add(p.session.endedID(to), Entry{}, event.RunCompleted{Reason: "source_ended"})
}

// roundOf is the round that a model's answer belongs to.
func roundOf(payload event.Payload) (int, bool) {
	switch p := payload.(type) {
	case event.ModelResponseCompleted:
		return p.Round, true
	case event.ModelResponseFailed:
		return p.Round, true
	}
	return 0, false
}

// inRun counts rounds from 1 in each run, where a source counts them through the session.
func inRun(payload event.Payload, before int) event.Payload {
	switch p := payload.(type) {
	case event.ModelResponseCompleted:
		p.Round -= before
		return p
	case event.ModelResponseFailed:
		p.Round -= before
		return p
	}
	return payload
}

// add adds one event. A compaction stands for everything before it, which only now has a number.
func (p *planner) add(id string, e Entry, payload event.Payload) {
	if c, ok := payload.(event.ContextCompacted); ok {
		c.ThroughSeq = p.seq
		payload = c
	}
	p.seq++
	p.events = append(p.events, event.Event{
		Envelope: event.Envelope{
			EnvelopeVersion: event.EnvelopeVersion,
			EventID:         id,
			TenantID:        orElse(p.session.TenantID, event.DefaultTenant),
			SessionID:       p.session.ID,
			RunID:           p.runID,
			Type:            payload.Type(),
			OccurredAt:      micros(e.OccurredAt),
			ActorType:       orElse(e.ActorType, "importer"),
			ActorID:         e.ActorID,
			PartitionKey:    p.session.ID,
		},
		Payload: payload,
	})
}

func orElse(s, other string) string {
	if s == "" {
		return other
	}
	return s
}

func micros(t event.Opt[time.Time]) event.Opt[time.Time] {
	if t.OK {
		t.Value = t.Value.UTC().Truncate(time.Microsecond)
	}
	return t
}

// namespace is the UUID namespace of all derived ids. It is fixed for ever: another one would import every file again.
var namespace = uuid.MustParse("5b0d9c1e-6a53-4f0e-9d0c-7f3c1a5e2b84")

// derive is the UUIDv5 of the session and the parts, each written with its length, so that no two lists run together.
func (s *Session) derive(parts ...string) string {
	var name strings.Builder
	for _, part := range append([]string{s.ID}, parts...) {
		name.WriteString(strconv.Itoa(len(part)) + ":" + part)
	}
	return uuid.NewSHA1(namespace, []byte(name.String())).String()
}

func (s *Session) createdID() string { return s.derive("session created") }

func (s *Session) entryID(e, reach Entry, payload int) string {
	return s.derive("entry", e.ID, reach.ID, strconv.Itoa(payload))
}

// runID, startedID and endedID name a place between two entries by how many entries are before it and which is the last.
func (s *Session) runID(k int) string     { return s.between("run", k) }
func (s *Session) startedID(k int) string { return s.between("run started", k) }
func (s *Session) endedID(k int) string   { return s.between("run ended", k) }

func (s *Session) between(what string, k int) string {
	last := ""
	if k > 0 {
		last = s.Entries[k-1].ID
	}
	return s.derive(what, strconv.Itoa(k), last)
}
