package floor

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
)

// insert is the plainest bulk insert that may be repeated.
func insert(ctx context.Context, pool *pgxpool.Pool, rows []row) error {
	n := len(rows)
	seqs, indexes, times, ids := make([]int64, n), make([]int32, n), make([]time.Time, n), make([]uuid.UUID, n)
	runs, sessions, items := make([]string, n), make([]string, n), make([]string, n)
	for i, r := range rows {
		seqs[i], times[i], ids[i], runs[i], sessions[i], items[i] = r.seq, r.occurredAt, r.eventID, r.runID, r.sessionID, r.item
	}
	_, err := pool.Exec(ctx, `
		INSERT INTO tooltape.history_item (builder_version, seq, item_index, occurred_at, event_id, run_id, session_id, item)
		SELECT 1, * FROM unnest($1::bigint[], $2::integer[], $3::timestamptz[], $4::uuid[], $5::text[], $6::text[], $7::json[])
		ON CONFLICT DO NOTHING`, seqs, indexes, times, ids, runs, sessions, items)
	if err != nil {
		return fmt.Errorf("inserting %d rows: %w", n, err)
	}
	return nil
}
