// Package postgres keeps a projection in PostgreSQL: rows, watermarks and position in one transaction, for any view.
package postgres

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tooltape/tooltape/schemas/event"
	"github.com/tooltape/tooltape/sinks"
)

// View is what a projection adds to the tables that all share: tables of its own, and how a batch fills them.
type View struct {
	// Name is the projection's, such as history.
	Name string
	// BuilderVersion is the version of the projection's logic. Rows of two versions never stand in one table.
	BuilderVersion int
	// Migrations holds migrations/NNNN_name.sql.
	Migrations fs.FS
	// Rows adds the statements that store these events. They come ordered by session and seq, each place once. A row that is there
	// must stay: events may come again.
	Rows func(s *Statements, events []*sinks.Projected)
}

// Sink stores one view. It may be used by many goroutines.
type Sink struct {
	pool       *pgxpool.Pool
	view       View
	statements sync.Pool
}

var _ sinks.Sink = (*Sink)(nil)

// New is the sink of a view in a database that was migrated.
func New(pool *pgxpool.Pool, view View) *Sink {
	return &Sink{pool: pool, view: view, statements: sync.Pool{New: func() any { return &Statements{} }}}
}

// answerWithin ends an operation whose answer never comes, say because the network swallows packets. The longest write is far shorter.
const answerWithin = time.Minute

// The WHERE keeps rows of two builder versions apart: no row comes back, and nothing changes.
const acquirePosition = `
INSERT INTO tooltape.position AS p (projection, partition, topic_id, partitions, next_offset, epoch, batch, builder_version)
VALUES ($1, $2, $3, $4, 0, 1, 0, $5)
ON CONFLICT (projection, partition) DO UPDATE SET epoch = p.epoch + 1 WHERE p.builder_version = excluded.builder_version
RETURNING topic_id::text, partitions, next_offset, epoch, batch`

// Acquire raises the partition's epoch. A partition that was projected with another builder version is an error.
func (s *Sink) Acquire(ctx context.Context, partition int32, topic sinks.Topic) (sinks.Position, error) {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	p := sinks.Position{Partition: partition}
	err := s.pool.QueryRow(ctx, acquirePosition, s.view.Name, partition, topic.ID, topic.Partitions, s.view.BuilderVersion).
		Scan(&p.Topic.ID, &p.Topic.Partitions, &p.NextOffset, &p.Epoch, &p.Batch)
	if errors.Is(err, pgx.ErrNoRows) {
		return sinks.Position{}, fmt.Errorf("the rows of %s were not made by builder version %d, which this build has: run tooltape rebuild %s",
			s.view.Name, s.view.BuilderVersion, s.view.Name)
	}
	if err != nil {
		return sinks.Position{}, classify(err)
	}
	return p, nil
}

const readPosition = `
SELECT topic_id::text, partitions, next_offset, epoch, batch FROM tooltape.position WHERE projection = $1 AND partition = $2`

// Refresh reads the position again.
func (s *Sink) Refresh(ctx context.Context, at sinks.Position) (sinks.Position, error) {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	p := sinks.Position{Partition: at.Partition}
	err := s.pool.QueryRow(ctx, readPosition, s.view.Name, at.Partition).
		Scan(&p.Topic.ID, &p.Topic.Partitions, &p.NextOffset, &p.Epoch, &p.Batch)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return sinks.Position{}, sinks.ErrFenced
	case err != nil:
		return sinks.Position{}, classify(err)
	case p.Epoch != at.Epoch:
		return sinks.Position{}, sinks.ErrFenced
	}
	return p, nil
}

// One statement reads one snapshot: where the position in it is still at, so is everything else. The position's line comes with
// every session, and once where there is none.
const readSessions = `
SELECT p.epoch, p.batch, s.*
FROM tooltape.position p
LEFT JOIN (
    SELECT i.id, ` + sessionColumns + `
    FROM unnest($3::text[]) AS i (id)
    LEFT JOIN tooltape.watermark w ON w.projection = $1 AND w.session_id = i.id
    LEFT JOIN tooltape.parked k ON k.projection = $1 AND k.session_id = i.id
    WHERE w.session_id IS NOT NULL OR k.session_id IS NOT NULL
) s ON true
WHERE p.projection = $1 AND p.partition = $2`

// Sessions is what the database knows of these sessions, as long as the position is at.
func (s *Sink) Sessions(ctx context.Context, at sinks.Position, ids []string) (map[string]sinks.Session, error) {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	rows, err := s.pool.Query(ctx, readSessions, s.view.Name, at.Partition, ids)
	if err != nil {
		return nil, classify(err)
	}
	defer rows.Close()
	known := map[string]sinks.Session{}
	positioned := false
	for rows.Next() {
		var (
			epoch, batch int64
			id           *string
			columns      sessionRow
		)
		if err := rows.Scan(append([]any{&epoch, &batch, &id}, columns.targets()...)...); err != nil {
			return nil, err
		}
		switch {
		case epoch != at.Epoch:
			return nil, sinks.ErrFenced
		case batch != at.Batch:
			return nil, sinks.ErrStale
		}
		positioned = true
		if id != nil {
			known[*id] = columns.session(*id)
		}
	}
	if err := rows.Err(); err != nil {
		return nil, classify(err)
	}
	if !positioned {
		return nil, sinks.ErrFenced
	}
	return known, nil
}

const (
	movePosition = `SELECT tooltape.move_position($1, $2, $3, $4, $5)`

	// A watermark never goes back, whatever is written again.
	upsertWatermarks = `
INSERT INTO tooltape.watermark AS w (projection, partition, seq, event_id, session_id)
SELECT $1, $2::integer, * FROM unnest($3::bigint[], $4::uuid[], $5::text[])
ON CONFLICT (projection, session_id) DO UPDATE SET seq = excluded.seq, event_id = excluded.event_id, partition = excluded.partition
WHERE w.seq < excluded.seq`

	// builds is an array in its text form: unnest would take a matrix apart.
	upsertParked = `
INSERT INTO tooltape.parked AS k (projection, session_id, partition, from_offset, at_offset, seq, type, payload_version, code, message,
    since, held, builds, due)
SELECT $1, session_id, partition, from_offset, at_offset, seq, type, payload_version, code, message, since, held, builds::text[], due
FROM unnest($2::text[], $3::integer[], $4::bigint[], $5::bigint[], $6::bigint[], $7::text[], $8::integer[], $9::text[], $10::text[],
        $11::timestamptz[], $12::bigint[], $13::text[], $14::boolean[])
    AS t (session_id, partition, from_offset, at_offset, seq, type, payload_version, code, message, since, held, builds, due)
ON CONFLICT (projection, session_id) DO UPDATE SET
    partition = excluded.partition, from_offset = least(k.from_offset, excluded.from_offset), at_offset = excluded.at_offset,
    seq = excluded.seq, type = excluded.type, payload_version = excluded.payload_version, code = excluded.code, message = excluded.message,
    since = excluded.since, held = excluded.held, builds = excluded.builds, due = excluded.due`

	insertSetAside = `
INSERT INTO tooltape.set_aside (projection, partition, at_offset, code, message, since, key, value)
SELECT $1, $2::integer, * FROM unnest($3::bigint[], $4::text[], $5::text[], $6::timestamptz[], $7::bytea[], $8::bytea[])
ON CONFLICT (projection, partition, at_offset) DO NOTHING`
)

// Write stores a batch whole, or nothing of it: one round trip, one transaction. Its first statement locks the position and fails
// where it moved, and with it all that follow.
//
// After an error of the connection nobody knows whether the batch was stored: Refresh tells.
func (s *Sink) Write(ctx context.Context, b sinks.Batch) (sinks.Position, error) {
	if b.NextOffset < b.At.NextOffset {
		return sinks.Position{}, fmt.Errorf("a batch that stands at offset %d cannot end at %d", b.At.NextOffset, b.NextOffset)
	}
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	st := s.statements.Get().(*Statements)
	defer s.statements.Put(st)
	st.reset()

	st.Add(movePosition, s.view.Name, b.At.Partition, b.At.Epoch, b.At.Batch, b.NextOffset)
	if len(b.Events) > 0 {
		events := st.inOrder(b.Events)
		s.addWatermarks(st, b.At.Partition, events)
		s.view.Rows(st, events)
	}
	if len(b.Parked) > 0 {
		s.addParked(st, b.Parked)
	}
	if len(b.SetAside) > 0 {
		s.addSetAside(st, b.At.Partition, b.SetAside)
	}
	if err := st.send(ctx, s.pool); err != nil {
		return sinks.Position{}, err
	}
	next := b.At
	next.NextOffset = b.NextOffset
	next.Batch++
	return next, nil
}

// addWatermarks takes the last event of each session.
func (s *Sink) addWatermarks(st *Statements, partition int32, events []*sinks.Projected) {
	seqs, ids, sessions := st.Bigints(), st.UUIDs(), st.Texts()
	for i, e := range events {
		if i+1 < len(events) && events[i+1].Event.SessionID == e.Event.SessionID {
			continue
		}
		seqs.Bigint(e.Event.Seq)
		ids.UUID(e.Event.EventID)
		sessions.Text(e.Event.SessionID)
	}
	st.Add(upsertWatermarks, s.view.Name, partition, seqs, ids, sessions)
}

func (s *Sink) addParked(st *Statements, parked []sinks.Parked) {
	sessions, partitions, fromOffsets, atOffsets, seqs := st.Texts(), st.Integers(), st.Bigints(), st.Bigints(), st.Bigints()
	types, versions, codes, messages, sinces := st.Texts(), st.Integers(), st.Texts(), st.Texts(), st.Times()
	held, builds, due := st.Bigints(), st.Texts(), st.Booleans()
	for _, p := range parked {
		sessions.Text(p.SessionID)
		partitions.Integer(p.Partition)
		fromOffsets.Bigint(p.FromOffset)
		atOffsets.Bigint(p.Offset)
		seqs.Bigint(p.Seq)
		types.Text(printable(string(p.Type)))
		versions.Integer(int32(p.PayloadVersion))
		codes.Text(string(p.Code))
		messages.Text(printable(p.Message))
		sinces.Time(p.Since)
		held.Bigint(p.Held)
		builds.Text(arrayText(p.Builds))
		due.Boolean(p.Due)
	}
	st.Add(upsertParked, s.view.Name, sessions, partitions, fromOffsets, atOffsets, seqs, types, versions, codes, messages, sinces, held,
		builds, due)
}

func (s *Sink) addSetAside(st *Statements, partition int32, setAside []sinks.SetAside) {
	offsets, codes, messages, sinces, keys, values := st.Bigints(), st.Texts(), st.Texts(), st.Times(), st.Bytes(), st.Bytes()
	for _, a := range setAside {
		offsets.Bigint(a.Offset)
		codes.Text(string(a.Code))
		messages.Text(printable(a.Message))
		sinces.Time(a.Since)
		keys.Bytes(a.Key)
		values.Bytes(a.Value)
	}
	st.Add(insertSetAside, s.view.Name, partition, offsets, codes, messages, sinces, keys, values)
}

// printable is a text that PostgreSQL can hold: U+FFFD stands for what it cannot.
func printable(text string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "\uFFFD")
}

// arrayText is the text form of a text[].
func arrayText(values []string) string {
	escape := strings.NewReplacer(`\`, `\\`, `"`, `\"`)
	quoted := make([]string, len(values))
	for i, v := range values {
		quoted[i] = `"` + escape.Replace(printable(v)) + `"`
	}
	return "{" + strings.Join(quoted, ",") + "}"
}

// sessionColumns are what a query on watermark w and parked k selects for a sessionRow.
const sessionColumns = `w.seq, w.event_id::text, w.partition AS watermark_partition,
    k.partition AS parked_partition, k.from_offset, k.at_offset, k.seq AS parked_seq, k.type, k.payload_version, k.code, k.message, k.since,
    k.held, k.builds, k.due`

// sessionRow takes what sessionColumns yield: either part may be null.
type sessionRow struct {
	seq       *int64
	eventID   *string
	partition *int32
	parked    parkedRow
}

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
	return append([]any{&r.seq, &r.eventID, &r.partition}, r.parked.targets()...)
}

func (r *parkedRow) targets() []any {
	return []any{&r.partition, &r.fromOffset, &r.offset, &r.seq, &r.kind, &r.version, &r.code, &r.message, &r.since, &r.held, &r.builds, &r.due}
}

func (r *sessionRow) session(id string) sinks.Session {
	var s sinks.Session
	if r.seq != nil {
		s.Watermark = sinks.Watermark{Seq: *r.seq, EventID: *r.eventID, Partition: *r.partition}
	}
	if r.parked.code != nil {
		p := r.parked.parked(id)
		s.Parked = &p
	}
	return s
}

func (r *parkedRow) parked(id string) sinks.Parked {
	return sinks.Parked{
		SessionID: id, Partition: *r.partition, FromOffset: *r.fromOffset, Offset: *r.offset, Seq: *r.seq, Type: event.Type(*r.kind),
		PayloadVersion: int(*r.version), Code: event.Code(*r.code), Message: *r.message, Since: r.since.UTC(), Held: *r.held,
		Builds: r.builds, Due: *r.due,
	}
}
