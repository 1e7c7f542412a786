package processors

import (
	"fmt"
	"slices"

	"github.com/tooltape/tooltape/schemas"
	"github.com/tooltape/tooltape/schemas/event"
	"github.com/tooltape/tooltape/sinks"
)

// erasure is content that lies behind the marker that announced its end: it is written over again under its own key.
type erasure struct {
	key []byte
	// event stands where it stood; nil: a tombstone.
	event *event.Event
}

// purgeReason is the reason of what a processor writes over content that came behind its run's marker.
const purgeReason = "purged"

// mark takes a marker in: what it announces goes, and what comes of it later is known for what it is.
func (d *decision) mark(r *record) {
	s := d.session(r.place.SessionID)
	if at := partitionOf(s, d.batch.At.Partition); at != d.batch.At.Partition {
		d.setAside(r, event.WrongPartition, fmt.Sprintf("its session is projected from partition %d", at))
		return
	}
	switch r.place.Marker {
	case schemas.ClosedMarker:
		d.closeSession(s, r.place)
	case schemas.RunMarker:
		d.purgeRun(s, r.place)
	case schemas.WithdrawnMarker:
		d.withdraw(s, r)
	}
}

func (d *decision) closeSession(s sinks.Session, k schemas.Key) {
	if s.Markers.Closed {
		return
	}
	s.Markers.Closed = true
	d.erase(k.SessionID, s.Markers)
	d.announce(sinks.Marker{SessionID: k.SessionID, Kind: sinks.ClosedMarker}, sinks.Removal{KeyPrefix: schemas.JoinKey(k.SessionID) + "/"})
}

// erase leaves of a session nothing but its markers.
func (d *decision) erase(id string, m sinks.Markers) {
	d.batch.Events = slices.DeleteFunc(d.batch.Events, func(e sinks.Projected) bool { return e.Event.SessionID == id })
	d.batch.Erased = append(d.batch.Erased, id)
	d.changed[id] = sinks.Session{Markers: m}
}

func (d *decision) purgeRun(s sinks.Session, k schemas.Key) {
	if slices.Contains(s.Markers.Runs, k.RunID) || s.Markers.Closed {
		return
	}
	s.Markers.Runs = append(slices.Clip(s.Markers.Runs), k.RunID)
	for i, e := range d.batch.Events {
		if e.Event.SessionID == k.SessionID && e.Event.RunID.Or("") == k.RunID {
			d.batch.Events[i].Event, d.batch.Events[i].Items = event.Purged(e.Event.Envelope, purgeReason), nil
		}
	}
	d.batch.ErasedRuns = append(d.batch.ErasedRuns, sinks.RunRef{SessionID: k.SessionID, RunID: k.RunID})
	d.batch.Markers = append(d.batch.Markers, sinks.Marker{SessionID: k.SessionID, Kind: sinks.RunMarker, ID: k.RunID})
	d.changed[k.SessionID] = s
}

// withdraw settles a conflict: the session's rows and watermark go, and the second reader projects it again from the partition's start,
// without what was withdrawn.
func (d *decision) withdraw(s sinks.Session, r *record) {
	id := r.place.SessionID
	if slices.Contains(s.Markers.Withdrawn, r.place.EventID) || s.Markers.Closed {
		return
	}
	known := s.Watermark.Seq > 0 || s.Parked != nil
	s.Markers.Withdrawn = append(slices.Clip(s.Markers.Withdrawn), r.place.EventID)
	d.changed[id] = s
	if known {
		d.erase(id, s.Markers)
		d.changed[id] = sinks.Session{Markers: s.Markers, Parked: &sinks.Parked{
			SessionID: id, Partition: d.batch.At.Partition, Offset: r.offset, Seq: 1, Code: event.Gap,
			Message: "an event was withdrawn: the session is projected again", Since: d.now, Builds: []string{d.build}, Due: true,
		}}
	}
	d.announce(sinks.Marker{SessionID: id, Kind: sinks.WithdrawnMarker, ID: r.place.EventID},
		sinks.Removal{KeyPrefix: schemas.JoinKey(id) + "/", KeySuffix: "/" + schemas.JoinKey(r.place.EventID)})
}

// announce stores a marker and takes back the tombstones that came before it.
func (d *decision) announce(m sinks.Marker, r sinks.Removal) {
	d.batch.Markers = append(d.batch.Markers, m)
	d.batch.TakenBack = append(d.batch.TakenBack, r)
	d.batch.SetAside = slices.DeleteFunc(d.batch.SetAside, func(a sinks.SetAside) bool {
		return a.Code == event.UnannouncedRemoval && r.Matches(a.Key)
	})
}

// isIgnored says whether a marker has taken the record's event out of the session, or the session away.
func isIgnored(r *record, m sinks.Markers) bool {
	return m.Closed || slices.Contains(m.Withdrawn, r.place.EventID)
}

// eraseIgnored writes over content of a purged session that came behind its marker, and of a purged run, though its event is withdrawn.
func (d *decision) eraseIgnored(r *record, m sinks.Markers, read func(*record) error) error {
	switch {
	case m.Closed && r.value != nil:
		d.erasures = append(d.erasures, erasure{key: r.key})
	case !m.Closed && len(m.Runs) > 0 && len(r.value) > 0:
		if err := read(r); err != nil {
			return err
		}
		d.eraseContent(r, m)
	}
	return nil
}

// eraseContent writes over content of a purged run that came behind its marker.
func (d *decision) eraseContent(r *record, m sinks.Markers) {
	if isPurged(r, m) && r.event.Type != event.EventPurgedType {
		e := event.Purged(r.event.Envelope, purgeReason)
		d.erasures = append(d.erasures, erasure{key: r.key, event: &e})
	}
}

// isPurged says whether the record, which was read, belongs to a purged run: its envelope is enough.
func isPurged(r *record, m sinks.Markers) bool {
	return r.event.RunID.OK && slices.Contains(m.Runs, r.event.RunID.Value)
}

// purge makes an event of a purged run what stands in its place, whatever it was, also one that could not be read.
func purge(r *record, m sinks.Markers) {
	if isPurged(r, m) && r.event.Type != event.EventPurgedType {
		r.event, r.fault = event.Purged(r.event.Envelope, purgeReason), nil
	}
}
