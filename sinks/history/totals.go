package history

import (
	"context"

	"github.com/tooltape/tooltape/sinks/postgres"
)

// Totals are what the store holds of this projection.
type Totals struct {
	// Sessions are those projected at least in part, and those parked at their first event.
	Sessions int64
	// Events are those projected, of all types; Items are the rows that came of them.
	Events, Items int64
	// Parked are sessions, SetAside records.
	Parked, SetAside int64
}

const selectTotals = `
SELECT (SELECT count(*) FROM (SELECT session_id FROM tooltape.watermark WHERE projection = $1
                              UNION SELECT session_id FROM tooltape.parked WHERE projection = $1) AS either),
       (SELECT coalesce(sum(seq), 0)::bigint FROM tooltape.watermark WHERE projection = $1),
       (SELECT count(*) FROM tooltape.history_item),
       (SELECT count(*) FROM tooltape.parked WHERE projection = $1),
       (SELECT count(*) FROM tooltape.set_aside WHERE projection = $1)`

// ReadTotals counts. It reads whole tables: it is for summaries, not for metrics.
func ReadTotals(ctx context.Context, db postgres.Queryer) (Totals, error) {
	var t Totals
	err := db.QueryRow(ctx, selectTotals, Name).Scan(&t.Sessions, &t.Events, &t.Items, &t.Parked, &t.SetAside)
	return t, err
}
