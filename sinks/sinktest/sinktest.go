// Package sinktest is the suite that every sink passes.
package sinktest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tooltape/tooltape/processors/projection"
	"github.com/tooltape/tooltape/schemas/event"
	"github.com/tooltape/tooltape/sinks"
)

// Store is a sink under test, and how to look into it. The sink is empty, and must refuse an event whose run id holds U+0000.
type Store struct {
	Sink sinks.Sink
	// Rows are a session's items, ordered by seq and index.
	Rows func(t testing.TB, sessionID string) []Row
	// SetAside are a partition's records set aside, ordered by offset.
	SetAside func(t testing.TB, partition int32) []sinks.SetAside
}

// Row is one stored item.
type Row struct {
	Seq        int64
	Index      int
	EventID    string
	RunID      event.Opt[string]
	OccurredAt event.Opt[time.Time]
	JSON       string
}

// Run runs the suite; open makes a new store for each case.
func Run(t *testing.T, open func(t *testing.T) Store) {
	for _, c := range []struct {
		promise string
		check   func(*subject)
	}{
		{"a partition seen for the first time stands at offset 0 of the topic given", firstPosition},
		{"acquiring raises the epoch and keeps everything else", acquireRaises},
		{"what was written is there, and the position has moved", writeStores},
		{"an event without items moves the watermark", eventWithoutItems},
		{"a batch without events moves the position", emptyBatch},
		{"a fenced holder changes nothing and is told so", fencedChangesNothing},
		{"a stale decision changes nothing, and a refreshed one goes through", staleChangesNothing},
		{"a batch goes in whole or not at all: one refused value keeps everything out", refusedChangesNothing},
		{"a write whose context is over changes nothing", cancelledChangesNothing},
		{"a batch that would move the position back is an error", neverBack},
		{"events that come again after a restart change nothing", replayChangesNothing},
		{"a session's watermark never goes back", watermarkNeverBack},
		{"events come in any order, and two at one place are one", unsortedAndTwice},
		{"parking replaces the session's row, and keeps what was projected", parkingReplaces},
		{"parking again never raises from_offset", fromOffsetNeverRises},
		{"held counts", heldCounts},
		{"every parking code is known", parkingCodes},
		{"records set aside keep their raw bytes, and the first stays", setAsideKeeps},
		{"any text comes back as it was", anyText},
		{"what cannot be shown in a message does not block it", anyMessage},
		{"any session id and any build is only text", anyID},
		{"times come back to the microsecond, and absent ones absent", times},
		{"a session that waits no longer loses its parked row, and nothing else", unparkedGo},
		{"due are what this build has not tried and what is marked so, never a conflict, lowest offset first", dueLists},
		{"an erased session's rows, watermark and parked row go, and its marker stays", erasedSession},
		{"an erased run's rows go, and the watermark stays", erasedRun},
		{"erasing comes before what the batch adds", eraseAndAdd},
		{"markers are told of, each once", markersOnce},
		{"the id of a marker is any text", markerAnyID},
		{"removals that a marker announces are taken back, and others stay", takenBack},
		{"no id is a pattern", noPatterns},
		{"what is not written erases nothing", failedErasesNothing},
		{"partitions do not disturb each other", partitionsApart},
		{"partitions write at the same time without waiting for ever", concurrently},
		{"of two writers with one position one goes through", race},
	} {
		t.Run(c.promise, func(t *testing.T) { c.check(&subject{T: t, Store: open(t)}) })
	}
}

var topic = sinks.Topic{ID: "6f0d4f9e-6e6c-4a0c-9f56-0a8a3c1c2d11", Partitions: 4}

func firstPosition(s *subject) {
	want := sinks.Position{Partition: 3, Topic: topic, Epoch: 1}
	if got := s.acquire(3); got != want {
		s.Errorf("got %+v, want %+v", got, want)
	}
}

func acquireRaises(s *subject) {
	first := s.write(s.batch(s.acquire(0), message("s", 1, "hello")))
	other := sinks.Topic{ID: "00000000-0000-4000-8000-000000000000", Partitions: 9}
	second, err := s.Sink.Acquire(s.Context(), 0, other)
	s.must(err)
	want := first
	want.Epoch++
	if second != want {
		s.Errorf("got %+v, want %+v: the topic that was recorded comes back, whatever is asked for", second, want)
	}
}

func writeStores(s *subject) {
	e := message("s", 1, "hello", "and again")
	e.Event.RunID = event.Some("run-1")
	at := s.acquire(1)
	got := s.write(s.batch(at, e, message("s", 2, "there"), message("other", 1, "x")))
	want := at
	want.NextOffset, want.Batch = 3, at.Batch+1
	if got != want {
		s.Errorf("the position is %+v, want %+v", got, want)
	}
	if refreshed, err := s.Sink.Refresh(s.Context(), at); err != nil || refreshed != want {
		s.Errorf("refreshed, the position is %+v (%v), want %+v", refreshed, err, want)
	}
	s.holds(e, message("s", 2, "there"))
	s.holds(message("other", 1, "x"))
	s.knows(got, "s", sinks.Session{Watermark: sinks.Watermark{Seq: 2, EventID: eventID("s", 2), Partition: 1}})
	s.knows(got, "nobody", sinks.Session{})
}

func eventWithoutItems(s *subject) {
	at := s.write(s.batch(s.acquire(0), message("s", 1)))
	s.knows(at, "s", watermark("s", 1))
	if rows := s.Rows(s, "s"); len(rows) != 0 {
		s.Errorf("rows of nothing: %v", rows)
	}
}

func emptyBatch(s *subject) {
	at := s.acquire(0)
	moved := s.write(sinks.Batch{At: at, NextOffset: 17})
	if moved.NextOffset != 17 || moved.Batch != at.Batch+1 || moved.Epoch != at.Epoch {
		s.Errorf("the position is %+v", moved)
	}
	if known, err := s.Sink.Sessions(s.Context(), moved, nil); err != nil || len(known) != 0 {
		s.Errorf("no session asked for gives %v, %v", known, err)
	}
}

func fencedChangesNothing(s *subject) {
	zombie := s.acquire(0)
	holder := s.acquire(0)
	s.fails(s.everything(zombie), sinks.ErrFenced)
	if _, err := s.Sink.Sessions(s.Context(), zombie, []string{"s"}); !errors.Is(err, sinks.ErrFenced) {
		s.Errorf("Sessions gives %v, want ErrFenced", err)
	}
	if _, err := s.Sink.Refresh(s.Context(), zombie); !errors.Is(err, sinks.ErrFenced) {
		s.Errorf("Refresh gives %v, want ErrFenced", err)
	}
	s.unchanged(holder)
	s.write(s.everything(holder))
}

func staleChangesNothing(s *subject) {
	old := s.acquire(0)
	at := s.write(sinks.Batch{At: old, NextOffset: old.NextOffset})
	s.fails(s.everything(old), sinks.ErrStale)
	if _, err := s.Sink.Sessions(s.Context(), old, []string{"s"}); !errors.Is(err, sinks.ErrStale) {
		s.Errorf("Sessions gives %v, want ErrStale", err)
	}
	s.unchanged(at)
	refreshed, err := s.Sink.Refresh(s.Context(), old)
	s.must(err)
	s.write(s.everything(refreshed))
}

func refusedChangesNothing(s *subject) {
	at := s.acquire(0)
	b := s.everything(at)
	poison := message("zz", 1, "poison")
	poison.Event.RunID = event.Some("a\x00b")
	b.Events = append(b.Events, poison)
	refused := &sinks.RefusedError{}
	if _, err := s.Sink.Write(s.Context(), b); !errors.As(err, &refused) {
		s.Fatalf("got %v, want a RefusedError", err)
	}
	if refused.Message == "" || strings.ContainsAny(refused.Message, "\x00") || strings.Contains(refused.Message, "poison") {
		s.Errorf("the message %q should say something, but nothing of the event", refused.Message)
	}
	s.unchanged(at)
	s.write(s.everything(at))
}

func cancelledChangesNothing(s *subject) {
	at := s.acquire(0)
	ctx, cancel := context.WithCancel(s.Context())
	cancel()
	if _, err := s.Sink.Write(ctx, s.everything(at)); !errors.Is(err, context.Canceled) {
		s.Errorf("got %v, want context.Canceled", err)
	}
	s.unchanged(at)
}

func neverBack(s *subject) {
	at := s.write(sinks.Batch{At: s.acquire(0), NextOffset: 5})
	b := s.everything(at)
	b.NextOffset = 4
	if _, err := s.Sink.Write(s.Context(), b); err == nil {
		s.Error("no error")
	}
	s.unchanged(at)
}

func replayChangesNothing(s *subject) {
	events := []sinks.Projected{message("s", 1, "one"), message("s", 2, "two", "three")}
	s.write(s.batch(s.acquire(0), events...))
	again := []sinks.Projected{message("s", 1, "one"), message("s", 2, "another", "three")}
	at := s.write(s.batch(s.acquire(0), again...))
	s.holds(events...)
	s.knows(at, "s", watermark("s", 2))
}

func watermarkNeverBack(s *subject) {
	at := s.write(s.batch(s.acquire(0), message("s", 1, "one"), message("s", 2, "two")))
	at = s.write(s.batch(at, message("s", 1, "one")))
	s.knows(at, "s", watermark("s", 2))
}

func unsortedAndTwice(s *subject) {
	later := message("a", 2, "another")
	later.Offset = 9
	at := s.write(s.batch(s.acquire(0), message("b", 1, "x"), message("a", 3, "three"), message("a", 1, "one"), message("a", 2, "two"),
		message("b", 2, "y"), later))
	s.holds(message("a", 1, "one"), message("a", 2, "two"), message("a", 3, "three"))
	s.holds(message("b", 1, "x"), message("b", 2, "y"))
	s.knows(at, "a", watermark("a", 3))
	s.knows(at, "b", watermark("b", 2))
}

func parkingReplaces(s *subject) {
	at := s.write(s.batch(s.acquire(0), message("s", 1, "one")))
	first := parked("s", 2)
	at = s.write(sinks.Batch{At: at, NextOffset: 3, Parked: []sinks.Parked{first, parked("t", 1)}})
	second := first
	second.Offset, second.Seq, second.Type, second.PayloadVersion = 11, 3, "", 0
	second.Code, second.Message, second.Since = event.Gap, "an event before it has not come", first.Since.Add(time.Hour)
	second.Builds, second.Due, second.Held = []string{"abc", "def"}, true, 2
	at = s.write(sinks.Batch{At: at, NextOffset: 4, Parked: []sinks.Parked{second}})
	session := watermark("s", 1)
	session.Parked = &second
	s.knows(at, "s", session)
	other := parked("t", 1)
	s.knows(at, "t", sinks.Session{Parked: &other})
	s.holds(message("s", 1, "one"))
}

func fromOffsetNeverRises(s *subject) {
	at := s.acquire(0)
	p := parked("s", 1)
	for i, step := range []struct{ given, want int64 }{{40, 40}, {50, 40}, {30, 30}, {35, 30}} {
		p.FromOffset = step.given
		at = s.write(sinks.Batch{At: at, NextOffset: int64(i), Parked: []sinks.Parked{p}})
		want := p
		want.FromOffset = step.want
		s.knows(at, "s", sinks.Session{Parked: &want})
	}
}

func heldCounts(s *subject) {
	at := s.acquire(0)
	p := parked("s", 1)
	for p.Held = range int64(3) {
		at = s.write(sinks.Batch{At: at, NextOffset: p.Held, Parked: []sinks.Parked{p}})
		s.knows(at, "s", sinks.Session{Parked: &p})
	}
}

func parkingCodes(s *subject) {
	var all []sinks.Parked
	for i, code := range event.ParkingCodes {
		p := parked(fmt.Sprint("s", i), 1)
		p.Code = code
		all = append(all, p)
	}
	at := s.write(sinks.Batch{At: s.acquire(0), Parked: all})
	for i := range all {
		s.knows(at, all[i].SessionID, sinks.Session{Parked: &all[i]})
	}
}

func setAsideKeeps(s *subject) {
	var all []sinks.SetAside
	for i, code := range event.SetAsideCodes {
		all = append(all, setAside(int64(i), code))
	}
	all[0].Key, all[0].Value = []byte{0, 0xff, '\'', 0xc3, 0x28}, []byte{} // an empty value is none
	all[1].Key, all[1].Value = nil, nil
	at := s.write(sinks.Batch{At: s.acquire(2), NextOffset: 9, SetAside: all})
	other := setAside(0, event.BadKey)
	other.Value = []byte("another")
	s.write(sinks.Batch{At: at, NextOffset: 9, SetAside: []sinks.SetAside{other}})
	if got := s.SetAside(s, 2); !reflect.DeepEqual(got, all) {
		s.Errorf("got  %+v\nwant %+v", got, all)
	}
	if got := s.SetAside(s, 1); len(got) != 0 {
		s.Errorf("another partition has %v", got)
	}
}

func anyText(s *subject) {
	var events []sinks.Projected
	for i, text := range Hostile() {
		e := message("s", int64(i+1), text)
		e.Items = append(e.Items,
			projection.ToolCall{CallID: "c", Name: text, Arguments: text, ProviderData: event.Some(text), SourceSeq: e.Event.Seq},
			projection.Provider{Provider: "p", ProviderKind: "k", Data: text, SourceSeq: e.Event.Seq})
		events = append(events, e)
	}
	s.write(s.batch(s.acquire(0), events...))
	s.holds(events...)
	for _, r := range s.Rows(s, "s") {
		item, err := projection.ParseJSON([]byte(r.JSON))
		s.must(err)
		if want := events[r.Seq-1].Items[r.Index]; !reflect.DeepEqual(item, want) {
			s.Errorf("item %d of event %d is another one when it is read", r.Index, r.Seq)
		}
	}
}

// anyMessage takes U+FFFD in place of what a store cannot hold.
func anyMessage(s *subject) {
	p := parked("s", 1)
	p.Message, p.Type = "a\x00b\xffc 'quoted'", "no.such\x00type"
	a := setAside(0, event.BadKey)
	a.Message = p.Message
	at := s.write(sinks.Batch{At: s.acquire(0), Parked: []sinks.Parked{p}, SetAside: []sinks.SetAside{a}})
	known, err := s.Sink.Sessions(s.Context(), at, []string{"s"})
	s.must(err)
	got := known["s"].Parked
	if got == nil || replaced(got.Message) != replaced(p.Message) || replaced(string(got.Type)) != replaced(string(p.Type)) {
		s.Errorf("parked is %+v", got)
	}
	if got := s.SetAside(s, 0); len(got) != 1 || replaced(got[0].Message) != replaced(a.Message) {
		s.Errorf("set aside are %+v", got)
	}
}

func replaced(text string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "\uFFFD")
}

func anyID(s *subject) {
	ids := []string{"a", "A", "ä", "a/b%2F", "'; DROP TABLE tooltape.position; --", `{"a","b"}`, `\`, "NULL", " ", "👩‍👩‍👧",
		strings.Repeat("x", event.MaxSessionID)}
	at := s.acquire(0)
	var events []sinks.Projected
	var waiting []sinks.Parked
	for _, id := range ids {
		events = append(events, message(id, 1, id))
		p := parked(id, 2)
		p.Builds = append([]string{id, `a"b\c,{d}`, ""}, ids...)
		waiting = append(waiting, p)
	}
	b := s.batch(at, events...)
	b.Parked = waiting
	at = s.write(b)
	for i, id := range ids {
		s.holds(events[i])
		session := watermark(id, 1)
		session.Parked = &waiting[i]
		s.knows(at, id, session)
	}
}

func times(s *subject) {
	var events []sinks.Projected
	for i, at := range []time.Time{
		time.Date(2026, 3, 29, 2, 30, 0, 123456000, time.FixedZone("", 7200)),
		time.Date(1, 1, 1, 0, 0, 0, 0, time.UTC),
		time.Date(1969, 12, 31, 23, 59, 59, 999999000, time.UTC),
		time.Date(9999, 12, 31, 23, 59, 59, 999999000, time.UTC),
	} {
		e := message("s", int64(i+1), "x")
		e.Event.OccurredAt = event.Some(at)
		events = append(events, e)
	}
	absent := message("s", 5, "x")
	absent.Event.OccurredAt = event.Opt[time.Time]{}
	events = append(events, absent)
	s.write(s.batch(s.acquire(0), events...))
	s.holds(events...)
}

func partitionsApart(s *subject) {
	zero, one := s.acquire(0), s.acquire(1)
	s.acquire(1)
	zero = s.write(s.batch(zero, message("s", 1, "x")))
	s.fails(s.batch(one, message("t", 1, "y")), sinks.ErrFenced)
	zero = s.write(s.batch(zero, message("s", 2, "z")))
	s.holds(message("s", 1, "x"), message("s", 2, "z"))
	s.knows(zero, "t", sinks.Session{})
}

func concurrently(s *subject) {
	const batches, sessions = 10, 40
	var group errgroup.Group
	for partition := range int32(4) {
		at := s.acquire(partition)
		group.Go(func() error {
			for n := range int64(batches) {
				var events []sinks.Projected
				for i := range sessions {
					// Each partition takes its sessions in another order.
					id := fmt.Sprintf("%d-%d", (i*(7+2*int(partition)))%sessions, partition)
					events = append(events, message(id, n+1, id))
				}
				next, err := s.Sink.Write(s.Context(), s.batch(at, events...))
				if err != nil {
					return err
				}
				at = next
			}
			return nil
		})
	}
	s.must(group.Wait())
	for partition := range 4 {
		for i := range sessions {
			if rows := s.Rows(s, fmt.Sprintf("%d-%d", i, partition)); len(rows) != batches {
				s.Errorf("session %d-%d has %d rows, want %d", i, partition, len(rows), batches)
			}
		}
	}
}

func race(s *subject) {
	const writers = 8
	at := s.acquire(0)
	errs := make([]error, writers)
	var group errgroup.Group
	for i := range writers {
		group.Go(func() error {
			_, errs[i] = s.Sink.Write(s.Context(), s.batch(at, message(fmt.Sprint("s", i), 1, "x")))
			return nil
		})
	}
	s.must(group.Wait())
	through := 0
	for i, err := range errs {
		rows := len(s.Rows(s, fmt.Sprint("s", i)))
		switch {
		case err == nil && rows == 1:
			through++
		case !errors.Is(err, sinks.ErrStale) || rows != 0:
			s.Errorf("writer %d: %v and %d rows", i, err, rows)
		}
	}
	if through != 1 {
		s.Errorf("%d writers went through, want 1", through)
	}
}

// subject is a store under test with what the cases say about it.
type subject struct {
	*testing.T
	Store
}

func (s *subject) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

func (s *subject) acquire(partition int32) sinks.Position {
	s.Helper()
	at, err := s.Sink.Acquire(s.Context(), partition, topic)
	s.must(err)
	return at
}

func (s *subject) write(b sinks.Batch) sinks.Position {
	s.Helper()
	at, err := s.Sink.Write(s.Context(), b)
	s.must(err)
	return at
}

func (s *subject) fails(b sinks.Batch, want error) {
	s.Helper()
	if _, err := s.Sink.Write(s.Context(), b); !errors.Is(err, want) {
		s.Errorf("got %v, want: %v", err, want)
	}
}

// batch is these events, one after the other.
func (s *subject) batch(at sinks.Position, events ...sinks.Projected) sinks.Batch {
	b := sinks.Batch{At: at, NextOffset: at.NextOffset + int64(len(events)), Events: events}
	for i := range b.Events {
		if b.Events[i].Offset == 0 {
			b.Events[i].Offset = at.NextOffset + int64(i)
		}
	}
	return b
}

// everything is a batch with something of each kind.
func (s *subject) everything(at sinks.Position) sinks.Batch {
	b := s.batch(at, message("s", 1, "x"))
	b.Parked = []sinks.Parked{parked("p", 1)}
	b.Markers = []sinks.Marker{{SessionID: "m", Kind: sinks.ClosedMarker}}
	b.SetAside = []sinks.SetAside{setAside(at.NextOffset, event.BadKey)}
	return b
}

// unchanged says that nothing of everything is there, and the position still at.
func (s *subject) unchanged(at sinks.Position) {
	s.Helper()
	if rows := s.Rows(s, "s"); len(rows) != 0 {
		s.Errorf("rows: %v", rows)
	}
	if got := s.SetAside(s, at.Partition); len(got) != 0 {
		s.Errorf("set aside: %v", got)
	}
	if known, err := s.Sink.Sessions(s.Context(), at, []string{"s", "p", "m", "zz"}); err != nil || len(known) != 0 {
		s.Errorf("sessions: %v, %v", known, err)
	}
	if got, err := s.Sink.Refresh(s.Context(), at); err != nil || got != at {
		s.Errorf("the position is %+v (%v), want %+v", got, err, at)
	}
}

// holds says that a session has exactly the rows of these events.
func (s *subject) holds(events ...sinks.Projected) {
	s.Helper()
	var want []Row
	for _, e := range events {
		for i, item := range e.Items {
			row := Row{Seq: e.Event.Seq, Index: i, EventID: e.Event.EventID, RunID: e.Event.RunID, OccurredAt: e.Event.OccurredAt}
			row.OccurredAt.Value = row.OccurredAt.Value.UTC()
			row.JSON = string(projection.AppendJSON(nil, item))
			want = append(want, row)
		}
	}
	got := s.Rows(s, events[0].Event.SessionID)
	for i := range got {
		got[i].OccurredAt.Value = got[i].OccurredAt.Value.UTC()
	}
	if len(got) != len(want) {
		s.Errorf("%d rows, want %d", len(got), len(want))
		return
	}
	for i := range got {
		if !reflect.DeepEqual(got[i], want[i]) {
			s.Errorf("row %d is\n%s\nwant\n%s", i, short(got[i]), short(want[i]))
		}
	}
}

func short(r Row) string {
	text := fmt.Sprintf("%+v", r)
	return text[:min(len(text), 400)]
}

// knows says what Sessions says of a session, its markers in the order of their ids; the zero Session where it says nothing.
func (s *subject) knows(at sinks.Position, id string, want sinks.Session) {
	s.Helper()
	known, err := s.Sink.Sessions(s.Context(), at, []string{id, "somebody else's"})
	s.must(err)
	got, there := known[id]
	slices.Sort(got.Markers.Runs)
	slices.Sort(got.Markers.Withdrawn)
	if there == reflect.DeepEqual(want, sinks.Session{}) || len(known) > 1 {
		s.Errorf("known are %v", slices.Collect(maps.Keys(known)))
	}
	if !reflect.DeepEqual(got, want) {
		s.Errorf("session %.40q is\n%+v %+v %+v\nwant\n%+v %+v %+v", id, got.Watermark, got.Parked, got.Markers, want.Watermark, want.Parked,
			want.Markers)
	}
}
