package history

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tooltape/tooltape/processors/projection"
	"github.com/tooltape/tooltape/schemas/event"
	"github.com/tooltape/tooltape/sinks"
	"github.com/tooltape/tooltape/sinks/postgres"
)

// Reader reads sessions back.
type Reader struct{ pool *pgxpool.Pool }

// NewReader reads from a database that was migrated.
func NewReader(pool *pgxpool.Pool) *Reader { return &Reader{pool} }

// Options say how far a session must be projected before it is read.
type Options struct {
	// AtLeast is the seq that must be projected: an agent that names its last write reads its own writes. With 0, any event of the
	// session will do.
	AtLeast int64
	// Wait is how long to wait for that.
	Wait time.Duration
}

// History is a session as it stood at one moment.
type History struct {
	Rows      []Row
	Watermark sinks.Watermark
}

// Items are the items of the rows.
func (h History) Items() []projection.Item {
	items := make([]projection.Item, len(h.Rows))
	for i, r := range h.Rows {
		items[i] = r.Item
	}
	return items
}

// Row is one item and the event that it comes from.
type Row struct {
	Seq        int64
	Index      int
	EventID    string
	RunID      event.Opt[string]
	OccurredAt event.Opt[time.Time]
	Item       projection.Item
	// JSON is the item as it is stored.
	JSON json.RawMessage
}

// ErrNotYet says that the session is not projected far enough, or not at all.
var ErrNotYet = errors.New("not projected yet")

// ParkedError says that the session waits: its history is not all that happened.
type ParkedError struct {
	sinks.Parked
	// Watermark is how far the session is projected all the same.
	Watermark sinks.Watermark
}

func (e *ParkedError) Error() string {
	return fmt.Sprintf("session %s waits at event %d: %s (%s, partition %d, offset %d); tooltape parked shows it, tooltape resume tries again",
		e.SessionID, e.Seq, e.Message, e.Code, e.Partition, e.Offset)
}

// Read is a session's history, ErrNotYet or a *ParkedError.
func (r *Reader) Read(ctx context.Context, sessionID string, o Options) (History, error) {
	var h History
	watermark, err := r.Each(ctx, sessionID, o, func(row Row) error {
		h.Rows = append(h.Rows, row)
		return nil
	})
	if err != nil {
		return History{}, err
	}
	h.Watermark = watermark
	return h, nil
}

// Each hands a session's rows on one by one, in order and as they stood at one moment, and returns the watermark of that moment. It
// holds one row at a time, however long the session is. An error of take ends it.
func (r *Reader) Each(ctx context.Context, sessionID string, o Options, take func(Row) error) (sinks.Watermark, error) {
	const shortest, longest = 2 * time.Millisecond, 100 * time.Millisecond
	until := time.Now().Add(o.Wait)
	for pause := shortest; ; pause = min(2*pause, longest) {
		watermark, err := r.each(ctx, sessionID, o.AtLeast, take)
		left := time.Until(until)
		if !errors.Is(err, ErrNotYet) || left <= 0 {
			return watermark, err
		}
		select {
		case <-ctx.Done():
			return sinks.Watermark{}, ctx.Err()
		case <-time.After(min(pause, left)):
		}
	}
}

const selectItems = `
SELECT seq, item_index, event_id::text, run_id, occurred_at, item FROM tooltape.history_item
WHERE session_id = $1 ORDER BY seq, item_index`

// snapshot is what makes several statements see one moment.
var snapshot = pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}

func (r *Reader) each(ctx context.Context, sessionID string, atLeast int64, take func(Row) error) (sinks.Watermark, error) {
	var watermark sinks.Watermark
	err := pgx.BeginTxFunc(ctx, r.pool, snapshot, func(tx pgx.Tx) error {
		session, err := postgres.ReadSession(ctx, tx, Name, sessionID)
		switch {
		case err != nil:
			return err
		case session.Parked != nil:
			return &ParkedError{Parked: *session.Parked, Watermark: session.Watermark}
		case session.Watermark.Seq < max(atLeast, 1):
			return notYet(sessionID, session.Watermark.Seq, atLeast)
		}
		watermark = session.Watermark
		rows, err := tx.Query(ctx, selectItems, sessionID)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			row, err := scanRow(rows)
			if err != nil {
				return err
			}
			if err := take(row); err != nil {
				return err
			}
		}
		return rows.Err()
	})
	if err != nil {
		return sinks.Watermark{}, err
	}
	return watermark, nil
}

func notYet(sessionID string, at, atLeast int64) error {
	if at == 0 {
		return fmt.Errorf("session %s is %w: nothing of it is there", sessionID, ErrNotYet)
	}
	return fmt.Errorf("event %d of session %s is %w: it has come to event %d", atLeast, sessionID, ErrNotYet, at)
}

func scanRow(rows pgx.Rows) (Row, error) {
	var (
		r    Row
		run  *string
		when *time.Time
	)
	if err := rows.Scan(&r.Seq, &r.Index, &r.EventID, &run, &when, &r.JSON); err != nil {
		return Row{}, err
	}
	if run != nil {
		r.RunID = event.Some(*run)
	}
	if when != nil {
		r.OccurredAt = event.Some(when.UTC())
	}
	item, err := projection.ParseJSON(r.JSON)
	if err != nil {
		return Row{}, fmt.Errorf("item %d of event %d cannot be read: %w", r.Index, r.Seq, err)
	}
	r.Item = item
	return r, nil
}
