package history

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/tooltape/tooltape/processors/projection"
	"github.com/tooltape/tooltape/sinks/postgres"
)

// maxForks bounds how many sessions a fork may go back through: a chain that is longer is a circle, or close to one.
const maxForks = 64

// Conversation is a session made ready for a model, with what it was forked from: projection.Assemble of its history. Its errors are
// those of Read, and *projection.OrphansError.
func (r *Reader) Conversation(ctx context.Context, sessionID string, o Options) (projection.Conversation, error) {
	h, err := r.Read(ctx, sessionID, o)
	if err != nil {
		return projection.Conversation{}, err
	}
	parent, err := r.parent(ctx, sessionID, maxForks)
	if err != nil {
		return projection.Conversation{}, err
	}
	return projection.Assemble(h.Items(), parent)
}

const (
	selectFork      = `SELECT parent_session_id, parent_seq FROM tooltape.history_fork WHERE session_id = $1`
	selectItemsUpTo = `
SELECT seq, item_index, event_id::text, run_id, occurred_at, item FROM tooltape.history_item
WHERE session_id = $1 AND seq <= $2 ORDER BY seq, item_index`
)

// parent is what a session was forked from; nil where it is no fork. The parent may be parked, as long as that is after the fork.
func (r *Reader) parent(ctx context.Context, sessionID string, left int) (*projection.Parent, error) {
	var p projection.Parent
	var id string
	err := r.pool.QueryRow(ctx, selectFork, sessionID).Scan(&id, &p.ThroughSeq)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if left == 0 {
		return nil, fmt.Errorf("session %s was forked through more than %d sessions", sessionID, maxForks)
	}
	session, err := postgres.ReadSession(ctx, r.pool, Name, id)
	if err != nil {
		return nil, err
	}
	if session.Watermark.Seq < p.ThroughSeq {
		return nil, fmt.Errorf("event %d of session %s, from which session %s was forked, is %w: it has come to event %d", p.ThroughSeq, id, sessionID, ErrNotYet, session.Watermark.Seq)
	}
	rows, err := r.pool.Query(ctx, selectItemsUpTo, id, p.ThroughSeq)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		row, err := scanRow(rows)
		if err != nil {
			return nil, err
		}
		p.Items = append(p.Items, row.Item)
	}
	if err := rows.Err(); err != nil {
		return nil, err
	}
	p.Parent, err = r.parent(ctx, id, left-1)
	return &p, err
}
