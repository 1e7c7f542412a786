// Package postgres keeps a projection in PostgreSQL: rows, watermarks and position in one transaction, for any view.
package postgres

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tooltape/tooltape/sinks"
)

// View is what a projection adds to the tables that all share: tables of its own, and how a batch fills them.
type View struct {
	// Name is the projection's, such as history.
	Name string
	// BuilderVersion is the version of the projection's logic. Rows of two versions never stand in one table.
	BuilderVersion int
	// EventIDs is the query for the session_id, seq and event id of rows at the places (unnested from $1::text[] and $2::bigint[]). Empty:
	// the rows do not hold it.
	EventIDs string
	// Migrations holds migrations/NNNN_name.sql.
	Migrations fs.FS
	// Rows adds the statements that store these events. They come ordered by session and seq, each place once. A row that is there
	// must stay: events may come again.
	Rows func(s *Statements, events []*sinks.Projected)
	// Erase adds the statements that delete all rows of these sessions, and EraseRuns those that delete the rows of these runs. They run
	// before those of Rows.
	Erase     func(s *Statements, sessions []string)
	EraseRuns func(s *Statements, runs []sinks.RunRef)
}

// Sink stores one view. It may be used by many goroutines.
type Sink struct {
	pool  *pgxpool.Pool
	view  View
	spare chan *Statements
}

var _ sinks.Sink = (*Sink)(nil)

// New is the sink of a view in a database that was migrated.
func New(pool *pgxpool.Pool, view View) *Sink {
	return &Sink{pool: pool, view: view, spare: make(chan *Statements, pool.Config().MaxConns)}
}

// take is memory for a write. A sync.Pool would give it away at every other garbage collection, which a busy decoder brings about
// several times a second.
func (s *Sink) take() *Statements {
	select {
	case st := <-s.spare:
		return st
	default:
		st := &Statements{}
		st.reset()
		return st
	}
}

// giveBack keeps the memory for another write, unless it was a rare, large one.
func (s *Sink) giveBack(st *Statements) {
	const large = 16 << 20
	if st.size() > large {
		return
	}
	st.reset()
	select {
	case s.spare <- st:
	default:
	}
}

// answerWithin ends an operation whose answer never comes, say because the network swallows packets. The longest write is far shorter.
const answerWithin = time.Minute

// The WHERE keeps rows of two builder versions apart: no row comes back, and nothing changes.
const acquirePosition = `
INSERT INTO tooltape.position AS p (projection, partition, topic_id, partitions, next_offset, epoch, batch, builder_version)
VALUES ($1, $2, $3, $4, 0, 1, 0, $5)
ON CONFLICT (projection, partition) DO UPDATE SET epoch = p.epoch + 1 WHERE p.builder_version = excluded.builder_version
RETURNING topic_id::text, partitions, next_offset, epoch, batch`

// Position is where a partition stands.
func (s *Sink) Position(ctx context.Context, partition int32) (sinks.Position, bool, error) {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	return ReadPosition(ctx, s.pool, s.view.Name, partition)
}

// Acquire raises the partition's epoch. A partition that was projected with another builder version is an error.
func (s *Sink) Acquire(ctx context.Context, partition int32, topic sinks.Topic) (sinks.Position, error) {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	p := sinks.Position{Partition: partition}
	err := s.pool.QueryRow(ctx, acquirePosition, s.view.Name, partition, topic.ID, topic.Partitions, s.view.BuilderVersion).
		Scan(&p.Topic.ID, &p.Topic.Partitions, &p.NextOffset, &p.Epoch, &p.Batch)
	if errors.Is(err, pgx.ErrNoRows) {
		return sinks.Position{}, &sinks.UnusableError{Err: fmt.Errorf(
			"the rows of %s were not made by builder version %d, which this build has: project them anew into an empty database",
			s.view.Name, s.view.BuilderVersion)}
	}
	if err != nil {
		return sinks.Position{}, classify(err)
	}
	return p, nil
}

// Refresh reads the position again.
func (s *Sink) Refresh(ctx context.Context, at sinks.Position) (sinks.Position, error) {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	p, _, err := ReadPosition(ctx, s.pool, s.view.Name, at.Partition)
	if err != nil {
		return sinks.Position{}, err
	}
	if p.Epoch != at.Epoch {
		return sinks.Position{}, sinks.ErrFenced
	}
	return p, nil
}

// One statement reads one snapshot: where the position in it is still at, so is everything else. The position's line comes with
// every session, and once where there is none.
//
// Each table has at most one line for a session; the LIMIT says so to the planner, which would else read all of it rather than look
// up the sessions of a batch.
const readSessions = `
SELECT p.epoch, p.batch, s.*
FROM tooltape.position p
LEFT JOIN (
    SELECT i.id, ` + sessionColumns + `
    FROM unnest($3::text[]) AS i (id)
    LEFT JOIN LATERAL (SELECT * FROM tooltape.watermark WHERE projection = $1 AND session_id = i.id LIMIT 1) w ON true
    LEFT JOIN LATERAL (SELECT * FROM tooltape.parked WHERE projection = $1 AND session_id = i.id LIMIT 1) k ON true
    CROSS JOIN LATERAL (SELECT ARRAY(SELECT ` + markerColumn + ` FROM tooltape.marker WHERE projection = $1 AND session_id = i.id) AS markers) m
    WHERE w.session_id IS NOT NULL OR k.session_id IS NOT NULL OR m.markers <> '{}'
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
	// The plans of what follows do not depend on the columns sent. A plan made for them, which is what the server would make of a
	// statement without a name, copies them, again and again: a sixth of the time for large items.
	movePosition = `SELECT tooltape.move_position($1, $2, $3, $4, $5), set_config('plan_cache_mode', 'force_generic_plan', true)`

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

	deleteParked = `DELETE FROM tooltape.parked WHERE projection = $1 AND session_id = ANY ($2::text[])`

	deleteWatermarks = `DELETE FROM tooltape.watermark WHERE projection = $1 AND session_id = ANY ($2::text[])`

	insertMarkers = `
INSERT INTO tooltape.marker (projection, session_id, kind, id)
SELECT $1, * FROM unnest($2::text[], $3::text[], $4::text[])
ON CONFLICT (projection, session_id, kind, id) DO NOTHING`

	// A key is bytes: nothing in it is a pattern.
	takeBack = `
DELETE FROM tooltape.set_aside AS a USING unnest($3::bytea[], $4::bytea[]) AS r (prefix, suffix)
WHERE a.projection = $1 AND a.partition = $2::integer AND a.code = 'unannounced_removal'
    AND length(a.key) >= length(r.prefix) + length(r.suffix)
    AND substring(a.key FOR length(r.prefix)) = r.prefix
    AND substring(a.key FROM length(a.key) - length(r.suffix) + 1) = r.suffix`

	insertSetAside = `
INSERT INTO tooltape.set_aside (projection, partition, at_offset, code, message, since, key, value)
SELECT $1, $2::integer, * FROM unnest($3::bigint[], $4::text[], $5::text[], $6::timestamptz[], $7::bytea[], $8::bytea[])
ON CONFLICT (projection, partition, at_offset) DO NOTHING`
)

const selectDue = `
SELECT k.session_id, ` + parkedColumns + `
FROM tooltape.parked k
WHERE k.projection = $1 AND k.partition = $2 AND k.code <> 'conflict' AND (k.due OR NOT k.builds @> ARRAY[$3])
ORDER BY k.from_offset, k.session_id`

// EventIDs asks the view's rows.
func (s *Sink) EventIDs(ctx context.Context, places []sinks.Place) (map[sinks.Place]string, error) {
	if len(places) == 0 || s.view.EventIDs == "" {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	sessions, seqs := make([]string, len(places)), make([]int64, len(places))
	for i, p := range places {
		sessions[i], seqs[i] = p.SessionID, p.Seq
	}
	rows, err := s.pool.Query(ctx, s.view.EventIDs, sessions, seqs)
	if err != nil {
		return nil, classify(err)
	}
	ids := map[sinks.Place]string{}
	var p sinks.Place
	var id string
	_, err = pgx.ForEachRow(rows, []any{&p.SessionID, &p.Seq, &id}, func() error {
		ids[p] = id
		return nil
	})
	return ids, classify(err)
}

// Due lists the sessions of a partition that should be tried again.
func (s *Sink) Due(ctx context.Context, partition int32, build string) ([]sinks.Parked, error) {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	return list(ctx, s.pool, selectDue, []any{s.view.Name, partition, build}, func(row pgx.CollectableRow) (sinks.Parked, error) {
		var id string
		var columns parkedRow
		err := row.Scan(append([]any{&id}, columns.targets()...)...)
		return columns.parked(id), err
	})
}

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
	st := s.take()
	defer s.giveBack(st)

	st.Add(movePosition, s.view.Name, b.At.Partition, b.At.Epoch, b.At.Batch, b.NextOffset)
	s.addErasures(st, b)
	s.addSessions(st, b)
	s.addMarkers(st, b)
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

// addErasures deletes what is purged, or must be projected again.
func (s *Sink) addErasures(st *Statements, b sinks.Batch) {
	if len(b.Erased) > 0 {
		s.view.Erase(st, b.Erased)
		st.Add(deleteWatermarks, s.view.Name, st.TextsOf(b.Erased))
		st.Add(deleteParked, s.view.Name, st.TextsOf(b.Erased))
	}
	// A run whose id PostgreSQL cannot hold has no rows.
	runs := slices.DeleteFunc(slices.Clone(b.ErasedRuns), func(r sinks.RunRef) bool { return strings.Contains(r.RunID, "\x00") })
	if len(runs) > 0 {
		s.view.EraseRuns(st, runs)
	}
}

// addSessions adds what the batch says of its sessions: rows, watermarks, who waits, and who waits no longer.
func (s *Sink) addSessions(st *Statements, b sinks.Batch) {
	if len(b.Events) > 0 {
		events := st.inOrder(b.Events)
		s.addWatermarks(st, b.At.Partition, events)
		s.view.Rows(st, events)
	}
	if len(b.Parked) > 0 {
		s.addParked(st, b.Parked)
	}
	if len(b.Unparked) > 0 {
		st.Add(deleteParked, s.view.Name, st.TextsOf(b.Unparked))
	}
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

// addMarkers remembers markers, and takes back the removals that came before them.
func (s *Sink) addMarkers(st *Statements, b sinks.Batch) {
	if len(b.Markers) > 0 {
		sessions, kinds, ids := st.Texts(), st.Texts(), st.Texts()
		for _, m := range b.Markers {
			sessions.Text(m.SessionID)
			kinds.Text(string(m.Kind))
			ids.Text(markerID.Replace(m.ID))
		}
		st.Add(insertMarkers, s.view.Name, sessions, kinds, ids)
	}
	if len(b.TakenBack) > 0 {
		prefixes, suffixes := st.Bytes(), st.Bytes()
		for _, r := range b.TakenBack {
			prefixes.Bytes([]byte(r.KeyPrefix))
			suffixes.Bytes([]byte(r.KeySuffix))
		}
		st.Add(takeBack, s.view.Name, b.At.Partition, prefixes, suffixes)
	}
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

// markerID and itsMarkerID write an id as a text that PostgreSQL can hold, and back. A marker that was refused would hold its
// partition for ever: unlike an event, it has no session that could wait.
var (
	markerID    = strings.NewReplacer(`\`, `\\`, "\x00", `\0`)
	itsMarkerID = strings.NewReplacer(`\\`, `\`, `\0`, "\x00")
)

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
