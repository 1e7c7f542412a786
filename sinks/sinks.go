// Package sinks is what a store must promise: rows, watermarks and position move together, or not at all.
//
// A sink never sees Kafka or Avro. It is given events that were read, upcast and projected, and the sessions that must wait.
package sinks

import (
	"bytes"
	"context"
	"errors"
	"time"

	"github.com/tooltape/tooltape/processors/projection"
	"github.com/tooltape/tooltape/schemas/event"
)

// Sink stores one projection.
//
// Every write goes through a partition's position. Acquire raises the position's epoch, so that a holder that was thought dead can
// write no more; each write names the position that its decisions were read at, and fails if another write came between.
// Any of them may end with an *UnusableError. An error that is none of this package's is the store's trouble (away, overloaded): nothing was decided, try again later.
type Sink interface {
	// Position is where a partition stands, and changes nothing; false where it was never acquired. The caller looks whether it can go on
	// from there before it acquires: a refusal must not take the partition from who holds it.
	Position(ctx context.Context, partition int32) (Position, bool, error)
	// Acquire takes a partition over and says where to go on. A partition seen for the first time stands at offset 0 of the
	// topic given; later the topic that was recorded then comes back.
	Acquire(ctx context.Context, partition int32, topic Topic) (Position, error)
	// Refresh reads the position again, after ErrStale or an error that leaves open whether a write took. ErrFenced where the
	// epoch is no longer that of at.
	Refresh(ctx context.Context, at Position) (Position, error)
	// Sessions is what the store knows of these sessions; one it does not know is not in the map. What it returns holds as long as
	// the position is at; ErrStale or ErrFenced where it already moved.
	Sessions(ctx context.Context, at Position, ids []string) (map[string]Session, error)
	// EventIDs are the ids of the events that were projected at these places, where the store still knows them: an event that yielded no
	// row may have left none.
	EventIDs(ctx context.Context, places []Place) (map[Place]string, error)
	// Due lists the parked sessions of a partition that should be tried again, lowest FromOffset first: those marked so, and those that
	// this build has not tried; never one in conflict, which only a person settles.
	Due(ctx context.Context, partition int32, build string) ([]Parked, error)
	// Write stores a batch whole and returns the position after it, or stores nothing: ErrFenced, ErrStale, or a *RefusedError
	// where the store will never take what the batch holds.
	Write(ctx context.Context, b Batch) (Position, error)
}

// Place is where an event stands in its session.
type Place struct {
	SessionID string
	Seq       int64
}

// Topic is the log that a position counts in.
type Topic struct {
	// ID is the topic's id as a UUID: a topic deleted and made again is another one.
	ID string
	// Partitions is how many it has: with another number, sessions lie on other partitions.
	Partitions int32
}

// Position is where a projection stands in a partition.
type Position struct {
	Partition int32
	Topic     Topic
	// NextOffset is the next offset to read.
	NextOffset int64
	// Epoch goes up with every assignment, Batch with every transaction.
	Epoch, Batch int64
}

// Session is what a store knows of a session. All parts may be there: what was projected stays, what cannot be waits, and what was
// announced is remembered.
type Session struct {
	// Watermark is the highest event projected; its Seq is 0 where none is.
	Watermark Watermark
	// Parked says why the session waits; nil where it does not.
	Parked *Parked
	// Markers outlive the rows that they delete.
	Markers Markers
}

// Markers are what purge and settle have announced of a session.
type Markers struct {
	// Closed says that the session is purged: whatever comes of it is ignored.
	Closed bool
	// Runs are purged runs: what comes of one fills its place, without content.
	Runs []string
	// Withdrawn are the ids of events that lost a conflict: they are ignored.
	Withdrawn []string
}

// Marker is one of them, new to the projection.
type Marker struct {
	SessionID string
	Kind      MarkerKind
	// ID is the run's or the event's; empty for ClosedMarker.
	ID string
}

// MarkerKind says what a marker announces.
type MarkerKind string

// The kinds of markers.
const (
	ClosedMarker    MarkerKind = "closed"
	RunMarker       MarkerKind = "run"
	WithdrawnMarker MarkerKind = "withdrawn"
)

// RunRef names a run.
type RunRef struct{ SessionID, RunID string }

// Removal names the tombstones that a marker announces: those whose key begins and ends so.
type Removal struct{ KeyPrefix, KeySuffix string }

// Matches says whether a tombstone's key is one of those announced.
func (r Removal) Matches(key []byte) bool {
	return len(key) >= len(r.KeyPrefix)+len(r.KeySuffix) && bytes.HasPrefix(key, []byte(r.KeyPrefix)) && bytes.HasSuffix(key, []byte(r.KeySuffix))
}

// Watermark is the highest event of a session that is projected.
type Watermark struct {
	Seq       int64
	EventID   string
	Partition int32
}

// Parked is a session whose next event could not be projected. Its watermark stays before that event.
type Parked struct {
	SessionID string
	Partition int32
	// FromOffset is the lowest offset of this session that is not projected; parking again never raises it.
	FromOffset int64
	// Offset, Seq, Type and PayloadVersion are those of the event at fault, as far as they could be read: Type may be empty and
	// PayloadVersion 0. Seq comes from the record's key.
	Offset         int64
	Seq            int64
	Type           event.Type
	PayloadVersion int
	Code           event.Code
	Message        string
	Since          time.Time
	// Held is how many events of the session wait behind the one at fault.
	Held int64
	// Builds are the builds that have tried.
	Builds []string
	// Due says that the session should be tried again.
	Due bool
}

// SetAside is a record that belongs to no session, kept with its raw bytes for a person to see.
type SetAside struct {
	Offset     int64
	Key, Value []byte
	Code       event.Code
	Message    string
	Since      time.Time
}

// Projected is one event and what the projection made of it.
type Projected struct {
	Offset int64
	Event  event.Event
	Items  []projection.Item
}

// Batch is what one stretch of a partition comes to. It is stored in one transaction.
type Batch struct {
	// At is the position that the batch was decided at.
	At Position
	// NextOffset becomes the position's; never below At's.
	NextOffset int64
	// Markers adds these; one that is there stays.
	Markers []Marker
	// Erased are sessions of which everything goes but their markers: rows, watermark, parked row. ErasedRuns are runs whose rows go; the
	// watermark stays. Both happen before anything below is stored.
	Erased     []string
	ErasedRuns []RunRef
	// TakenBack deletes what was set aside as an unannounced removal, and is announced now.
	TakenBack []Removal
	// Events stand in the order of the log; those of one session have consecutive seqs from its watermark on, so that after the
	// batch each session's watermark is its last event. Events may come again: a row that is there stays, a watermark never goes back.
	Events []Projected
	// Parked replaces the rows of these sessions, at most one each.
	Parked []Parked
	// Unparked are sessions that wait no longer: their parked rows go. None of them is in Parked.
	Unparked []string
	// SetAside adds these rows, by offset; a row that is there stays.
	SetAside []SetAside
}

// ErrFenced says that another holder has acquired the partition: stop, and change nothing.
var ErrFenced = errors.New("the partition was taken over by another holder")

// ErrStale says that the position moved since it was read, under the same epoch: refresh it, and decide again.
var ErrStale = errors.New("the position moved since it was read")

// UnusableError says that the store cannot be written to as it is, and that waiting will not change it: it lacks tables, the user may not
// write, its rows were made by another builder version. A person must act.
type UnusableError struct{ Err error }

func (e *UnusableError) Error() string { return e.Err.Error() }

func (e *UnusableError) Unwrap() error { return e.Err }

// RefusedError says that the store will never take what a batch holds, such as a value out of its range. It does not say
// which row: the caller halves the batch until one event is left, and parks its session with store_refused.
type RefusedError struct {
	// Message is the store's own, without content of the event.
	Message string
}

func (e *RefusedError) Error() string { return "the store refuses what the batch holds: " + e.Message }
