package processors

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tooltape/tooltape/processors/projection"
	"github.com/tooltape/tooltape/schemas"
	"github.com/tooltape/tooltape/schemas/event"
	"github.com/tooltape/tooltape/sinks"
)

// record is one record of the log, as far as it could be read.
type record struct {
	offset     int64
	time       time.Time
	key, value []byte // as they lie in the log; a nil value is a tombstone

	// place is what the key says; placeErr why it cannot be read.
	place    schemas.Key
	placeErr error

	// event is what the value says, or as much of it as could be read where fault is not nil. It is read when it is needed: a
	// record that is skipped is never decoded.
	event   event.Event
	fault   *event.Error
	decoded bool

	// control marks the end of a transaction: it is no record, but the position passes it.
	control bool
}

// decision works out what a stretch of a partition comes to, against the sessions as the store has them. It is pure: the same
// records, sessions and time give the same batch.
type decision struct {
	build   string
	now     time.Time
	topic   sinks.Topic
	stored  func(sessionID string) sinks.Session
	changed map[string]sinks.Session
	batch   sinks.Batch
	// ids are those of events that were projected at places below a watermark which a record of the batch claims again.
	ids map[sinks.Place]string
	// erasures are what must be written to the log before the position passes.
	erasures []erasure
	// parked counts the sessions that this batch parks, by code.
	parked map[event.Code]int
}

func newDecision(at sinks.Position, stored func(string) sinks.Session, build string, now time.Time) *decision {
	return &decision{
		build: build, now: now, topic: at.Topic,
		stored: stored, changed: map[string]sinks.Session{}, parked: map[event.Code]int{},
		batch: sinks.Batch{At: at, NextOffset: at.NextOffset},
	}
}

// session is what is so of a session at this point of the batch.
func (d *decision) session(id string) sinks.Session {
	if s, ok := d.changed[id]; ok {
		return s
	}
	return d.stored(id)
}

// take decides about the next record. read decodes the record's value into it; its error is the moment's, and take's.
func (d *decision) take(r *record, read func(*record) error) error {
	d.batch.NextOffset = r.offset + 1
	switch {
	case r.control:
	case r.placeErr != nil:
		d.setAside(r, event.BadKey, r.placeErr.Error())
	case r.place.Marker != schemas.NoMarker:
		d.mark(r)
	default:
		return d.takeEvent(r, read)
	}
	return nil
}

func (d *decision) takeEvent(r *record, read func(*record) error) error {
	s := d.session(r.place.SessionID)
	switch at := partitionOf(s, d.batch.At.Partition); {
	case at != d.batch.At.Partition:
		d.setAside(r, event.WrongPartition, fmt.Sprintf("its session is projected from partition %d", at))
		return nil
	case isIgnored(r, s.Markers):
		return d.eraseIgnored(r, s.Markers, read)
	case r.value == nil:
		d.setAside(r, event.UnannouncedRemoval, "no marker announced this tombstone; it removes nothing")
		return nil
	case len(r.value) == 0:
		d.setAside(r, event.EmptyValue, "an empty value is neither an event nor a tombstone")
		return nil
	}
	if len(s.Markers.Runs) > 0 { // content of a purged run is erased again, wherever its place is
		if err := read(r); err != nil {
			return err
		}
		d.eraseContent(r, s.Markers)
	}
	if isProjected(r, s.Watermark) {
		d.compare(r, s)
		return nil
	}
	if s.Parked != nil {
		d.hold(r, s)
		return nil
	}
	if err := read(r); err != nil {
		return err
	}
	switch fault := d.project(r, s); {
	case fault == nil:
	case fault.Code == event.WrongPartition:
		d.setAside(r, fault.Code, fault.Message)
	default:
		d.park(r, s, fault)
	}
	return nil
}

// partitionOf is where a session lies: where its watermark is, or where it is parked before its first event; else anywhere.
func partitionOf(s sinks.Session, anywhere int32) int32 {
	switch {
	case s.Watermark.Seq > 0:
		return s.Watermark.Partition
	case s.Parked != nil:
		return s.Parked.Partition
	}
	return anywhere
}

// compare holds a record below the watermark against the event that was projected at its place, where that is known: another event there is
// a conflict, however late it comes.
func (d *decision) compare(r *record, s sinks.Session) {
	there, known := d.ids[sinks.Place{SessionID: r.place.SessionID, Seq: r.place.Seq}]
	if i := slices.IndexFunc(d.batch.Events, func(e sinks.Projected) bool {
		return e.Event.SessionID == r.place.SessionID && e.Event.Seq == r.place.Seq
	}); i >= 0 {
		there, known = d.batch.Events[i].Event.EventID, true
	}
	if known && there != r.place.EventID && s.Parked == nil {
		d.park(r, s, rivals(there, r.place))
	}
}

func rivals(there string, k schemas.Key) *event.Error {
	return &event.Error{Code: event.Conflict, Message: fmt.Sprintf("events %s and %s both claim seq %d", there, k.EventID, k.Seq)}
}

// isProjected says whether the record is of an event that is projected already.
func isProjected(r *record, w sinks.Watermark) bool {
	return r.place.Seq < w.Seq || r.place.Seq == w.Seq && r.place.EventID == w.EventID
}

// project adds the record's event, which was read, to the batch; or it says why it cannot be the session's next.
func (d *decision) project(r *record, s sinks.Session) *event.Error {
	purge(r, s.Markers)
	if fault := d.fault(r, s.Watermark); fault != nil {
		return fault
	}
	items, err := projection.Items(r.event)
	if err != nil {
		return asFault(err)
	}
	s.Watermark = sinks.Watermark{Seq: r.event.Seq, EventID: r.event.EventID, Partition: d.batch.At.Partition}
	d.changed[r.place.SessionID] = s
	d.batch.Events = append(d.batch.Events, sinks.Projected{Offset: r.offset, Event: r.event, Items: items})
	return nil
}

// fault says why the record cannot be the next event of its session, or nil.
func (d *decision) fault(r *record, w sinks.Watermark) *event.Error {
	if r.fault != nil {
		return r.fault
	}
	e := r.event.Envelope
	switch p := schemas.Partition(e.PartitionKey, d.topic.Partitions); {
	case e.SessionID != r.place.SessionID || e.Seq != r.place.Seq || e.EventID != r.place.EventID:
		return &event.Error{Code: event.KeyMismatch, Message: "the record's key names another session, seq or event id than its value"}
	case p != d.batch.At.Partition:
		return &event.Error{Code: event.WrongPartition, Message: fmt.Sprintf("its partition key belongs on partition %d", p)}
	case e.Seq == w.Seq:
		return rivals(w.EventID, r.place)
	case e.Seq > w.Seq+1:
		return &event.Error{Code: event.Gap, Message: fmt.Sprintf("seq %d came, seq %d has not", e.Seq, w.Seq+1)}
	case e.PrevEventID.Or("") != w.EventID:
		return &event.Error{Code: event.Conflict, Field: "prev_event_id",
			Message: fmt.Sprintf("it follows event %s, but seq %d is event %s", e.PrevEventID.Or("none"), w.Seq, w.EventID)}
	}
	return nil
}

// park stops the session before this record.
func (d *decision) park(r *record, s sinks.Session, fault *event.Error) {
	s.Parked = &sinks.Parked{
		SessionID: r.place.SessionID, Partition: d.batch.At.Partition, FromOffset: r.offset, Since: d.now, Builds: []string{d.build},
	}
	describe(s.Parked, r, fault)
	d.changed[r.place.SessionID] = s
	d.parked[fault.Code]++
}

// describe says which event is at fault, and why.
func describe(p *sinks.Parked, r *record, fault *event.Error) {
	p.Offset, p.Seq, p.Type, p.PayloadVersion = r.offset, r.place.Seq, r.event.Type, r.event.PayloadVersion
	p.Code, p.Message = fault.Code, sentence(fault)
}

// sentence is a fault without its code, which has a column of its own.
func sentence(fault *event.Error) string {
	return strings.TrimPrefix(fault.Error(), string(fault.Code)+": ")
}

// hold counts one more event that waits. Where it is the very event that the session waits for, the session is due: the hole is filled,
// or what was bad was written again.
func (d *decision) hold(r *record, s sinks.Session) {
	p := *s.Parked // the stored row is shared with the cache
	p.Held++
	if r.place.Seq == s.Watermark.Seq+1 && p.Code != event.Conflict {
		p.Due = true
	}
	s.Parked = &p
	d.changed[p.SessionID] = s
}

func (d *decision) setAside(r *record, code event.Code, message string) {
	d.batch.SetAside = append(d.batch.SetAside, sinks.SetAside{
		Offset: r.offset, Key: r.key, Value: r.value, Code: code, Message: message, Since: d.now,
	})
}

// finish is the batch with the parked sessions that it changes, in the order of their ids.
func (d *decision) finish() sinks.Batch {
	for _, s := range d.changed {
		if s.Parked != nil {
			d.batch.Parked = append(d.batch.Parked, *s.Parked)
		}
	}
	slices.SortFunc(d.batch.Parked, func(a, b sinks.Parked) int { return strings.Compare(a.SessionID, b.SessionID) })
	return d.batch
}

// asFault is err as a fact about the event. The core promises no other kind; should one slip through, the session is parked.
func asFault(err error) *event.Error {
	if fault := (*event.Error)(nil); errors.As(err, &fault) {
		return fault
	}
	return &event.Error{Code: event.BadEvent, Message: err.Error()}
}
