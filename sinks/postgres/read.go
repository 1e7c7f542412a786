package postgres

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tooltape/tooltape/schemas/event"
	"github.com/tooltape/tooltape/sinks"
)

// Queryer is a pool, or a transaction where several readings must agree.
type Queryer interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// In lists, names that are empty and a limit of 0 choose everything. They go on behind a key, not an offset: one that is read in pieces
// while rows come and go repeats none and misses none that stays.
const (
	readPosition = `
SELECT topic_id::text, partitions, next_offset, epoch, batch FROM tooltape.position WHERE projection = $1 AND partition = $2`

	readSession = `
SELECT ` + sessionColumns + `
FROM (SELECT) AS one
LEFT JOIN tooltape.watermark w ON w.projection = $1 AND w.session_id = $2
LEFT JOIN tooltape.parked k ON k.projection = $1 AND k.session_id = $2
CROSS JOIN (SELECT ARRAY(SELECT ` + markerColumn + ` FROM tooltape.marker WHERE projection = $1 AND session_id = $2) AS markers) m`

	listParked = `
SELECT k.projection, k.session_id, ` + parkedColumns + `
FROM tooltape.parked k
WHERE ($1 = '' OR k.projection = $1) AND ($2 = '' OR k.session_id = $2) AND ($3 = '' OR k.code = $3) AND (k.projection, k.session_id) > ($4, $5)
ORDER BY k.projection, k.session_id
LIMIT nullif($6, 0)`

	listSetAside = `
SELECT projection, partition, at_offset, key, value, code, message, since
FROM tooltape.set_aside
WHERE ($1 = '' OR projection = $1) AND (projection, partition, at_offset) > ($2, $3::integer, $4::bigint)
ORDER BY projection, partition, at_offset
LIMIT nullif($5, 0)`

	listPositions = `
SELECT projection, builder_version, partition, topic_id::text, partitions, next_offset, epoch, batch
FROM tooltape.position
WHERE $1 = '' OR projection = $1
ORDER BY projection, partition`
)

// ReadSession is what a projection knows of a session; all parts are empty where it knows nothing.
func ReadSession(ctx context.Context, db Queryer, projection, sessionID string) (sinks.Session, error) {
	var row sessionRow
	if err := db.QueryRow(ctx, readSession, projection, sessionID).Scan(row.targets()...); err != nil {
		return sinks.Session{}, classify(err)
	}
	return row.session(sessionID), nil
}

// ReadPosition is where a projection stands in a partition; false where it never saw it.
func ReadPosition(ctx context.Context, db Queryer, projection string, partition int32) (sinks.Position, bool, error) {
	p := sinks.Position{Partition: partition}
	err := db.QueryRow(ctx, readPosition, projection, partition).
		Scan(&p.Topic.ID, &p.Topic.Partitions, &p.NextOffset, &p.Epoch, &p.Batch)
	if errors.Is(err, pgx.ErrNoRows) {
		return sinks.Position{}, false, nil
	}
	if err != nil {
		return sinks.Position{}, false, classify(err)
	}
	return p, true, nil
}

// ParkedFilter chooses parked sessions. What is empty chooses all.
type ParkedFilter struct {
	Projection string
	SessionID  string
	Code       event.Code
	// After continues a list behind its last entry.
	After *ParkedSession
	// Limit is how many to list at most; 0 is all.
	Limit int
}

// ParkedSession is a session that waits in a projection.
type ParkedSession struct {
	Projection string
	sinks.Parked
}

// ParkedSessions lists sessions that wait, by projection and session.
func ParkedSessions(ctx context.Context, db Queryer, f ParkedFilter) ([]ParkedSession, error) {
	if f.After == nil {
		f.After = &ParkedSession{}
	}
	return list(ctx, db, listParked, []any{f.Projection, f.SessionID, string(f.Code), f.After.Projection, f.After.SessionID, f.Limit},
		scanParkedSession)
}

func scanParkedSession(row pgx.CollectableRow) (ParkedSession, error) {
	var projection, id string
	var columns parkedRow
	if err := row.Scan(append([]any{&projection, &id}, columns.targets()...)...); err != nil {
		return ParkedSession{}, err
	}
	return ParkedSession{projection, columns.parked(id)}, nil
}

// SetAsideFilter chooses records set aside. What is empty chooses all.
type SetAsideFilter struct {
	Projection string
	// After continues a list behind its last entry.
	After *SetAsideRecord
	// Limit is how many to list at most; 0 is all. A record's value may be megabytes.
	Limit int
}

// SetAsideRecord is a record that a projection set aside.
type SetAsideRecord struct {
	Projection string
	Partition  int32
	sinks.SetAside
}

// SetAside lists records that were set aside, by projection, partition and offset.
func SetAside(ctx context.Context, db Queryer, f SetAsideFilter) ([]SetAsideRecord, error) {
	if f.After == nil {
		f.After = &SetAsideRecord{}
	}
	return list(ctx, db, listSetAside, []any{f.Projection, f.After.Projection, f.After.Partition, f.After.Offset, f.Limit},
		func(row pgx.CollectableRow) (r SetAsideRecord, err error) {
			err = row.Scan(&r.Projection, &r.Partition, &r.Offset, &r.Key, &r.Value, &r.Code, &r.Message, &r.Since)
			r.Since = r.Since.UTC()
			return r, err
		})
}

// ProjectionPosition is where a projection stands in a partition, and the builder version of its rows.
type ProjectionPosition struct {
	Projection     string
	BuilderVersion int
	sinks.Position
}

// Positions lists where the projections stand, or the one named, by projection and partition.
func Positions(ctx context.Context, db Queryer, projection string) ([]ProjectionPosition, error) {
	return list(ctx, db, listPositions, []any{projection}, func(row pgx.CollectableRow) (p ProjectionPosition, err error) {
		err = row.Scan(&p.Projection, &p.BuilderVersion, &p.Partition, &p.Topic.ID, &p.Topic.Partitions, &p.NextOffset, &p.Epoch, &p.Batch)
		return p, err
	})
}

func list[T any](ctx context.Context, db Queryer, sql string, args []any, scan pgx.RowToFunc[T]) ([]T, error) {
	rows, err := db.Query(ctx, sql, args...)
	if err != nil {
		return nil, classify(err)
	}
	all, err := pgx.CollectRows(rows, scan)
	return all, classify(err)
}

// sessionColumns are what a query on watermark w, parked k and the array m of markers selects for a sessionRow.
const sessionColumns = `m.markers, w.seq, w.event_id::text, w.partition AS watermark_partition, ` + parkedColumns

// markerColumn is a marker in one value. No kind holds a space.
const markerColumn = `kind || ' ' || id`

// parkedColumns are what a query on parked k selects for a parkedRow.
const parkedColumns = `k.partition AS parked_partition, k.from_offset, k.at_offset, k.seq AS parked_seq, k.type, k.payload_version,
    k.code, k.message, k.since, k.held, k.builds, k.due`

// sessionRow takes what sessionColumns yield: any part may be null.
type sessionRow struct {
	markers   []string
	seq       *int64
	eventID   *string
	partition *int32
	parked    parkedRow
}

// parkedRow takes what parkedColumns yield.
type parkedRow struct {
	partition                     *int32
	fromOffset, offset, seq, held *int64
	kind, code, message           *string
	version                       *int32
	since                         *time.Time
	builds                        []string
	due                           *bool
}

func (r *sessionRow) targets() []any {
	return append([]any{&r.markers, &r.seq, &r.eventID, &r.partition}, r.parked.targets()...)
}

func (r *parkedRow) targets() []any {
	return []any{&r.partition, &r.fromOffset, &r.offset, &r.seq, &r.kind, &r.version, &r.code, &r.message, &r.since, &r.held, &r.builds, &r.due}
}

func (r *sessionRow) session(id string) sinks.Session {
	s := sinks.Session{Markers: markersOf(r.markers)}
	if r.seq != nil {
		s.Watermark = sinks.Watermark{Seq: *r.seq, EventID: *r.eventID, Partition: *r.partition}
	}
	if r.parked.code != nil {
		p := r.parked.parked(id)
		s.Parked = &p
	}
	return s
}

func markersOf(stored []string) (m sinks.Markers) {
	for _, marker := range stored {
		kind, id, _ := strings.Cut(marker, " ")
		id = itsMarkerID.Replace(id)
		switch sinks.MarkerKind(kind) {
		case sinks.ClosedMarker:
			m.Closed = true
		case sinks.RunMarker:
			m.Runs = append(m.Runs, id)
		case sinks.WithdrawnMarker:
			m.Withdrawn = append(m.Withdrawn, id)
		}
	}
	return m
}

func (r *parkedRow) parked(id string) sinks.Parked {
	return sinks.Parked{
		SessionID: id, Partition: *r.partition, FromOffset: *r.fromOffset, Offset: *r.offset, Seq: *r.seq, Type: event.Type(*r.kind),
		PayloadVersion: int(*r.version), Code: event.Code(*r.code), Message: *r.message, Since: r.since.UTC(), Held: *r.held,
		Builds: r.builds, Due: *r.due,
	}
}
