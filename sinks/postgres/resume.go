package postgres

import (
	"context"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tooltape/tooltape/schemas/event"
)

// ResumeFilter chooses parked sessions to try again. What is empty chooses all.
type ResumeFilter struct {
	Projection string
	SessionID  string
	Code       event.Code
	// After goes on behind the last session of the call before: one that was tried since, in vain, does not come again.
	After *ParkedSession
	// Limit is how many to mark at most; 0 is all.
	Limit int
}

const (
	selectResumable = `
SELECT k.projection, k.session_id, ` + parkedColumns + `
FROM tooltape.parked k
WHERE ($1 = '' OR k.projection = $1) AND ($2 = '' OR k.session_id = $2) AND ($3 = '' OR k.code = $3)
    AND k.code <> 'conflict' AND NOT k.due AND (k.from_offset, k.projection, k.session_id) > ($4::bigint, $5, $6)
ORDER BY k.from_offset, k.projection, k.session_id
LIMIT nullif($7, 0)`

	// The holder of the partition has its sessions in memory, and may be about to write the row back as it was. The number tells it to
	// read again.
	nextBatch = `UPDATE tooltape.position SET batch = batch + 1 WHERE projection = $1 AND partition = $2`

	markDue = `
UPDATE tooltape.parked SET due = true WHERE projection = $1 AND session_id = ANY ($2) AND code <> 'conflict' RETURNING session_id`
)

// Resume marks parked sessions, lowest FromOffset first, as due, and returns those that it has marked; in a dry run, those that it
// would. It passes over sessions that are due, and over conflicts, which only a person settles. Each partition's are marked in one
// transaction: beside an error stand those of the partitions before.
func Resume(ctx context.Context, db *pgxpool.Pool, f ResumeFilter, dryRun bool) ([]ParkedSession, error) {
	after := ParkedSession{}
	after.FromOffset = -1
	if f.After != nil {
		after = *f.After
	}
	chosen, err := list(ctx, db, selectResumable, []any{f.Projection, f.SessionID, string(f.Code),
		after.FromOffset, after.Projection, after.SessionID, f.Limit}, scanParkedSession)
	if err != nil || dryRun {
		return chosen, err
	}
	type place struct {
		projection string
		partition  int32
	}
	ids := map[place][]string{}
	for _, p := range chosen {
		at := place{p.Projection, p.Partition}
		ids[at] = append(ids[at], p.SessionID)
	}
	type session struct{ projection, id string }
	marked := map[session]bool{}
	for at, sessions := range ids {
		still, failed := resume(ctx, db, at.projection, at.partition, sessions)
		for _, id := range still {
			marked[session{at.projection, id}] = true
		}
		if err = failed; err != nil {
			break
		}
	}
	return slices.DeleteFunc(chosen, func(p ParkedSession) bool { return !marked[session{p.Projection, p.SessionID}] }), err
}

// resume marks sessions of one partition, and returns those that still wait. It takes the position's lock first, as every write does.
func resume(ctx context.Context, db *pgxpool.Pool, projection string, partition int32, sessions []string) (marked []string, err error) {
	err = pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, nextBatch, projection, partition); err != nil {
			return err
		}
		marked, err = list(ctx, tx, markDue, []any{projection, sessions}, pgx.RowTo[string])
		return err
	})
	return marked, classify(err)
}
