package sinktest

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/tooltape/tooltape/schemas"
	"github.com/tooltape/tooltape/schemas/event"
	"github.com/tooltape/tooltape/sinks"
)

// ofRun is an event of a run that says each text.
func ofRun(run, sessionID string, seq int64, texts ...string) sinks.Projected {
	p := message(sessionID, seq, texts...)
	p.Event.RunID = event.Some(run)
	return p
}

func closed(sessionID string) sinks.Marker {
	return sinks.Marker{SessionID: sessionID, Kind: sinks.ClosedMarker}
}

func runMarker(sessionID, run string) sinks.Marker {
	return sinks.Marker{SessionID: sessionID, Kind: sinks.RunMarker, ID: run}
}

func withdrawn(sessionID, id string) sinks.Marker {
	return sinks.Marker{SessionID: sessionID, Kind: sinks.WithdrawnMarker, ID: id}
}

func unparkedGo(s *subject) {
	b := s.batch(s.acquire(0), message("s", 1, "one"), message("t", 1, "x"))
	waits := parked("t", 2)
	b.Parked = []sinks.Parked{parked("s", 2), waits, parked("u", 1)}
	at := s.write(b)
	b = s.batch(at, message("s", 2, "two"))
	b.Unparked = []string{"s", "u", "nobody"}
	at = s.write(b)
	s.holds(message("s", 1, "one"), message("s", 2, "two"))
	s.knows(at, "s", watermark("s", 2))
	s.knows(at, "u", sinks.Session{})
	session := watermark("t", 1)
	session.Parked = &waits
	s.knows(at, "t", session)
}

func dueLists(s *subject) {
	at := s.acquire(0)
	waits := func(id string, fromOffset int64, change func(*sinks.Parked)) sinks.Parked {
		p := parked(id, 1)
		p.FromOffset, p.Builds = fromOffset, []string{"old", "new"}
		change(&p)
		return p
	}
	marked, untried := waits("marked", 7, func(p *sinks.Parked) { p.Due = true }), waits("untried", 3, func(p *sinks.Parked) { p.Builds = []string{"old"} })
	never, beside := waits("never tried", 9, func(p *sinks.Parked) { p.Builds = nil }), waits("beside", 7, func(p *sinks.Parked) { p.Due = true })
	s.write(sinks.Batch{At: at, Parked: []sinks.Parked{
		marked, never, untried, beside,
		waits("tried", 1, func(*sinks.Parked) {}),
		waits("conflict", 2, func(p *sinks.Parked) { p.Code, p.Due, p.Builds = event.Conflict, true, nil }),
		waits("elsewhere", 4, func(p *sinks.Parked) { p.Due, p.Partition = true, 1 }),
	}})
	got, err := s.Sink.Due(s.Context(), 0, "new")
	s.must(err)
	for i := range got {
		if len(got[i].Builds) == 0 {
			got[i].Builds = nil
		}
	}
	if want := []sinks.Parked{untried, beside, marked, never}; !reflect.DeepEqual(got, want) {
		s.Errorf("due are\n%+v\nwant\n%+v", got, want)
	}
}

func erasedSession(s *subject) {
	b := s.batch(s.acquire(0), message("s", 1, "one"), message("t", 1, "x"))
	b.Parked = []sinks.Parked{parked("s", 2)}
	at := s.write(b)
	for range 2 { // once more changes nothing
		at = s.write(sinks.Batch{At: at, NextOffset: at.NextOffset, Erased: []string{"s", "unheard of"}, Markers: []sinks.Marker{closed("s")}})
		s.empty("s")
		s.knows(at, "s", sinks.Session{Markers: sinks.Markers{Closed: true}})
		s.knows(at, "unheard of", sinks.Session{})
		s.holds(message("t", 1, "x"))
		s.knows(at, "t", watermark("t", 1))
	}
}

func erasedRun(s *subject) {
	at := s.write(s.batch(s.acquire(0), ofRun("a", "s", 1, "one", "two"), ofRun("b", "s", 2, "three"), message("s", 3, "four"),
		ofRun("a", "s", 4, "five"), ofRun("a", "t", 1, "x"), ofRun("b", "t", 2, "y")))
	b := sinks.Batch{At: at, NextOffset: at.NextOffset, ErasedRuns: []sinks.RunRef{{SessionID: "s", RunID: "a"}, {SessionID: "t", RunID: "b"}}}
	b.Markers = []sinks.Marker{runMarker("s", "a")}
	at = s.write(b)
	s.holds(ofRun("b", "s", 2, "three"), message("s", 3, "four"))
	s.holds(ofRun("a", "t", 1, "x"))
	session := watermark("s", 4)
	session.Markers.Runs = []string{"a"}
	s.knows(at, "s", session)
	s.knows(at, "t", watermark("t", 2))
}

func eraseAndAdd(s *subject) {
	b := s.batch(s.acquire(0), ofRun("a", "s", 1, "one"), message("t", 1, "x"), message("t", 2, "y"), message("u", 1, "old"), message("u", 2, "z"))
	b.Parked = []sinks.Parked{parked("t", 3)}
	b.Parked[0].FromOffset = 3
	at := s.write(b)
	b = s.batch(at, ofRun("a", "s", 2, "two"), message("u", 1, "new"))
	again := parked("t", 1)
	again.FromOffset = 8
	b.Erased, b.ErasedRuns, b.Parked = []string{"t", "u"}, []sinks.RunRef{{SessionID: "s", RunID: "a"}}, []sinks.Parked{again}
	at = s.write(b)
	s.holds(ofRun("a", "s", 2, "two"))
	s.knows(at, "s", watermark("s", 2))
	s.empty("t")
	s.knows(at, "t", sinks.Session{Parked: &again})
	s.holds(message("u", 1, "new"))
	s.knows(at, "u", watermark("u", 1))
}

func markersOnce(s *subject) {
	at := s.acquire(0)
	markers := []sinks.Marker{runMarker("s", "a"), runMarker("s", "b"), withdrawn("s", "a"), runMarker("s", "a"), closed("t")}
	at = s.write(sinks.Batch{At: at, Markers: markers})
	at = s.write(sinks.Batch{At: at, Markers: append(markers, withdrawn("t", "a"))})
	s.knows(at, "s", sinks.Session{Markers: sinks.Markers{Runs: []string{"a", "b"}, Withdrawn: []string{"a"}}})
	s.knows(at, "t", sinks.Session{Markers: sinks.Markers{Closed: true, Withdrawn: []string{"a"}}})
	b := s.batch(at, message("s", 1, "x"))
	b.Parked = []sinks.Parked{parked("s", 2)}
	at = s.write(b)
	session := watermark("s", 1)
	session.Parked, session.Markers = &b.Parked[0], sinks.Markers{Runs: []string{"a", "b"}, Withdrawn: []string{"a"}}
	s.knows(at, "s", session)
}

// markerAnyID takes ids as they may stand in a key: of up to event.MaxID bytes, and with U+0000.
func markerAnyID(s *subject) {
	ids := []string{"a b", "a\x00b", `a\0b`, `\`, `\\0`, "\\\x00", "%", "_", "a/b", "'; --", "{NULL}", "ä", " ", strings.Repeat(`\`, event.MaxID),
		strings.Repeat("\x00", event.MaxID)}
	session := strings.Repeat("x", event.MaxSessionID)
	b := sinks.Batch{At: s.acquire(0)}
	for _, id := range ids {
		b.Markers = append(b.Markers, runMarker(session, id), withdrawn(session, id))
		b.ErasedRuns = append(b.ErasedRuns, sinks.RunRef{SessionID: session, RunID: id})
	}
	slices.Sort(ids)
	s.knows(s.write(b), session, sinks.Session{Markers: sinks.Markers{Runs: ids, Withdrawn: ids}})
}

func takenBack(s *subject) {
	var all []sinks.SetAside
	aside := func(code event.Code, key string) {
		a := setAside(int64(len(all)), code)
		a.Key, a.Value = []byte(key), nil
		all = append(all, a)
	}
	sessions := []string{"a", "ab", "a%", "a_", `a\`, "a/b", "%", "_"}
	for _, id := range sessions {
		aside(event.UnannouncedRemoval, schemas.EventKey(id, 1, "e"))
		aside(event.UnannouncedRemoval, schemas.EventKey(id, 22, "f%_"))
		aside(event.BadKey, schemas.EventKey(id, 1, "e"))
	}
	aside(event.UnannouncedRemoval, "a/e") // where the two ends would overlap
	aside(event.UnannouncedRemoval, "")
	all[len(all)-1].Key = nil
	at := s.write(sinks.Batch{At: s.acquire(0), NextOffset: 100, SetAside: all})
	elsewhere := s.write(sinks.Batch{At: s.acquire(1), NextOffset: 100, SetAside: all})

	for _, removed := range []sinks.Removal{
		{KeyPrefix: "a/", KeySuffix: "/e"}, {KeyPrefix: "a%25/", KeySuffix: "/e"}, {KeyPrefix: `a\/`, KeySuffix: "/f%25_"}, {KeyPrefix: "a/"}, {KeyPrefix: "_/"},
	} {
		at = s.write(sinks.Batch{At: at, NextOffset: 100, TakenBack: []sinks.Removal{removed, {KeyPrefix: "nobody's/"}}})
		all = slices.DeleteFunc(slices.Clone(all), func(a sinks.SetAside) bool { return a.Code == event.UnannouncedRemoval && removed.Matches(a.Key) })
		if got := s.SetAside(s, 0); !reflect.DeepEqual(got, all) {
			s.Errorf("after %+v set aside are\n%s\nwant\n%s", removed, keys(got), keys(all))
		}
	}
	if got := s.SetAside(s, elsewhere.Partition); len(got) != 3*len(sessions)+2 {
		s.Errorf("of another partition are left %s", keys(got))
	}
	again := setAside(200, event.UnannouncedRemoval)
	again.Key = []byte("a/3/e")
	s.write(sinks.Batch{At: at, NextOffset: 201, TakenBack: []sinks.Removal{{KeyPrefix: "a/"}}, SetAside: []sinks.SetAside{again}})
	if got := s.SetAside(s, 0); len(got) != len(all)+1 {
		s.Error("what is set aside by the batch itself came behind its marker, and stays")
	}
}

func keys(all []sinks.SetAside) string {
	var b strings.Builder
	for _, a := range all {
		fmt.Fprintf(&b, "%s %q, ", a.Code, a.Key)
	}
	return b.String()
}

func noPatterns(s *subject) {
	ids := []string{"a", "A", "ab", "a%", "a_", `a\`, `a\%`, "a/b", "%", "_", "a*", "a.", "{a,ab}", "'a'"}
	at := s.acquire(0)
	b := sinks.Batch{At: at}
	for i, id := range ids {
		for j, run := range ids {
			b.Events = append(b.Events, ofRun(run, id, int64(j)+1, run))
		}
		b.Parked = append(b.Parked, parked(id, int64(i)+1))
	}
	at = s.write(b)
	left := map[string]int{}
	for _, id := range ids {
		left[id] = len(ids)
	}
	for _, gone := range []string{"%", "_", `a\`, "a%", "{a,ab}"} {
		at = s.write(sinks.Batch{At: at, Unparked: []string{gone}, ErasedRuns: []sinks.RunRef{{SessionID: "a", RunID: gone}}})
		left["a"]--
		at = s.write(sinks.Batch{At: at, Erased: []string{gone}})
		left[gone] = 0
		for _, id := range ids {
			if n := len(s.Rows(s, id)); n != left[id] {
				s.Errorf("after %q, session %q has %d rows, want %d", gone, id, n, left[id])
			}
		}
	}
	due, err := s.Sink.Due(s.Context(), 0, "another")
	s.must(err)
	want := slices.DeleteFunc(ids, func(id string) bool { return left[id] == 0 })
	slices.Sort(want)
	if got := sessionIDs(due); !slices.Equal(got, want) {
		s.Errorf("%q wait, want %q", got, want)
	}
}

func sessionIDs(all []sinks.Parked) []string {
	slices.SortFunc(all, func(a, b sinks.Parked) int { return cmp.Compare(a.SessionID, b.SessionID) })
	var ids []string
	for _, p := range all {
		ids = append(ids, p.SessionID)
	}
	return ids
}

func failedErasesNothing(s *subject) {
	zombie := s.acquire(0)
	old := s.acquire(0)
	b := s.batch(old, ofRun("a", "s", 1, "one"), ofRun("a", "t", 1, "two"))
	b.Parked = []sinks.Parked{parked("t", 2), parked("u", 1)}
	b.SetAside = []sinks.SetAside{setAside(0, event.UnannouncedRemoval)}
	at := s.write(b)
	erase := sinks.Batch{
		NextOffset: 9, Erased: []string{"t"}, ErasedRuns: []sinks.RunRef{{SessionID: "s", RunID: "a"}}, Unparked: []string{"u"},
		TakenBack: []sinks.Removal{{KeyPrefix: "k", KeySuffix: "y"}}, Markers: []sinks.Marker{closed("t"), runMarker("s", "a")},
	}
	erase.At = zombie
	s.fails(erase, sinks.ErrFenced)
	erase.At = old
	s.fails(erase, sinks.ErrStale)
	erase.At = at
	refused := erase
	refused.Events = []sinks.Projected{ofRun("a\x00b", "zz", 1, "x")}
	if _, err := s.Sink.Write(s.Context(), refused); err == nil {
		s.Error("no error")
	}
	s.holds(b.Events[0])
	s.holds(b.Events[1])
	session := watermark("t", 1)
	session.Parked = &b.Parked[0]
	s.knows(at, "t", session)
	s.knows(at, "s", watermark("s", 1))
	s.knows(at, "u", sinks.Session{Parked: &b.Parked[1]})
	if got := s.SetAside(s, 0); len(got) != 1 {
		s.Errorf("set aside are %v", got)
	}
	at = s.write(erase)
	s.empty("s", "t")
	s.knows(at, "u", sinks.Session{})
}

// empty says that sessions have no rows.
func (s *subject) empty(ids ...string) {
	s.Helper()
	for _, id := range ids {
		if rows := s.Rows(s, id); len(rows) != 0 {
			s.Errorf("session %q has rows: %v", id, rows)
		}
	}
}
