package simulation

import (
	"slices"

	"github.com/tooltape/tooltape/schemas/event"
)

// This file says what the tables must hold, from the records of the log alone. It is not how a processor works: it knows the whole log
// and asks of each session what is there, where a processor meets one record after another, late, twice, and among faults.

// row is one stored item, without what the log does not say.
type row struct {
	seq   int64
	index int
	id    string
	run   string
	text  string
}

// reason is why a session is parked: for this code, before this seq.
type reason struct {
	code event.Code
	seq  int64
}

// outcome is what a session must come to.
type outcome struct {
	rows   []row
	seq    int64 // of the watermark
	last   string
	parked []reason // one of them; none: it is not parked
}

// coordinates are those of a record.
type coordinates struct {
	partition int32
	offset    int64
}

// expected are the tables that a log must come to.
type expected struct {
	sessions map[string][]outcome // any of them
	setAside map[coordinates]event.Code
}

// expect works the tables out from the log's records, which stand in the order of their offsets.
func expect(log []entry) expected {
	want := expected{sessions: map[string][]outcome{}, setAside: map[coordinates]event.Code{}}
	bySession := map[string][]entry{}
	for _, e := range log {
		if e.kind == badKey {
			want.setAside[coordinates{e.partition, e.offset}] = event.BadKey
			continue
		}
		bySession[e.session] = append(bySession[e.session], e)
	}
	for id, records := range bySession {
		want.sessions[id] = outcomesOf(records)
		for at, code := range setAsideOf(records) {
			want.setAside[at] = code
		}
	}
	return want
}

// setAsideOf are the records that are kept for a person.
func setAsideOf(records []entry) map[coordinates]event.Code {
	kept := map[coordinates]event.Code{}
	isClosed := slices.ContainsFunc(records, func(e entry) bool { return e.kind == closed })
	for i, e := range records {
		at := coordinates{e.partition, e.offset}
		closedBefore := slices.ContainsFunc(records[:i], func(e entry) bool { return e.kind == closed })
		announced := isClosed || slices.ContainsFunc(records, func(m entry) bool { return m.kind == withdrawn && m.id == e.id })
		switch {
		case e.kind == misplaced:
			kept[at] = event.WrongPartition
		case e.kind == emptyValue && !closedBefore:
			kept[at] = event.EmptyValue
		case e.kind == tombstone && !announced:
			kept[at] = event.UnannouncedRemoval
		}
	}
	return kept
}

// candidate is an event that the log holds, in as many copies as it may be.
type candidate struct {
	entry
	readable bool // by the newest build
}

// candidatesOf are the events that claim a place, in the order of their first copies. One copy that can be read is enough; what belongs
// to a purged run is without content, and so can be read as long as its envelope can.
func candidatesOf(records []entry) []candidate {
	withdrawnIDs, purgedRuns := map[string]bool{}, map[string]bool{}
	for _, e := range records {
		switch e.kind {
		case withdrawn:
			withdrawnIDs[e.id] = true
		case runPurged:
			purgedRuns[e.run] = true
		}
	}
	var all []candidate
	at := map[string]int{}
	for _, e := range records {
		if withdrawnIDs[e.id] || e.kind != good && e.kind != poison && e.kind != purgedCopy {
			continue
		}
		c := candidate{e, e.kind != poison || purgedRuns[e.run] && !e.unreadable}
		if purgedRuns[e.run] {
			c.texts = nil
		}
		i, known := at[e.id]
		switch {
		case !known:
			at[e.id] = len(all)
			all = append(all, c)
		case c.readable && !all[i].readable:
			c.code = all[i].code // what was said of the copy that came first
			all[i] = c
		}
	}
	return all
}

func outcomesOf(records []entry) []outcome {
	if slices.ContainsFunc(records, func(e entry) bool { return e.kind == closed }) {
		return []outcome{{}}
	}
	all := candidatesOf(records)
	if hasRivals(all) {
		return inOrder(outcome{}, all)
	}
	return []outcome{withoutRivals(all)}
}

// withoutRivals: the chain goes on as long as the next event is there and can be read.
func withoutRivals(all []candidate) outcome {
	var o outcome
	for {
		i := slices.IndexFunc(all, func(c candidate) bool { return c.seq == o.seq+1 })
		if i < 0 {
			break
		}
		if !all[i].readable {
			o.parked = []reason{{all[i].code, all[i].seq}}
			return o
		}
		o.take(all[i])
	}
	for _, c := range all { // what waits beyond the hole: whichever of them came first is named, and for poison that it is poison
		if c.seq > o.seq {
			o.parked = append(o.parked, reason{event.Gap, c.seq})
		}
		if c.seq > o.seq && c.code != "" {
			o.parked = append(o.parked, reason{c.code, c.seq})
		}
	}
	return o
}

func (o *outcome) take(c candidate) {
	for i, text := range c.texts {
		o.rows = append(o.rows, row{c.seq, i, c.id, c.run, text})
	}
	o.seq, o.last = c.seq, c.id
}

// hasRivals says whether two events claim one place, or one follows another than the one that stands before it.
func hasRivals(all []candidate) bool {
	for _, a := range all {
		for _, b := range all {
			if a.seq == b.seq && a.id != b.id || b.seq == a.seq+1 && b.prev != a.id {
				return true
			}
		}
	}
	return false
}

// inOrder is for a session with rivals, whose first is who came first: here the log's order counts, and the load keeps it. A loser below
// the watermark is seen or not: the store need not know any more which event stood there.
func inOrder(o outcome, all []candidate) []outcome {
	for i, c := range all {
		parked := func(code event.Code) []outcome {
			o.parked = []reason{{code, c.seq}}
			return []outcome{o}
		}
		switch {
		case c.seq < o.seq:
			unseen := o
			unseen.rows = slices.Clone(o.rows)
			return append(inOrder(unseen, all[i+1:]), parked(event.Conflict)...)
		case c.seq > o.seq+1:
			return parked(event.Gap)
		case !c.readable:
			return parked(c.code)
		case c.seq == o.seq, c.prev != o.last:
			return parked(event.Conflict)
		}
		o.take(c)
	}
	return []outcome{o}
}

// compacted is what survives of a log: the last record of each key, at its place.
func compacted(log []entry) []entry {
	type place struct {
		partition int32
		key       string
	}
	last := map[place]int{}
	for i, e := range log {
		last[place{e.partition, e.key}] = i
	}
	var out []entry
	for i, e := range log {
		if last[place{e.partition, e.key}] == i {
			out = append(out, e)
		}
	}
	return out
}
