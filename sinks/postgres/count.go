package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tooltape/tooltape/schemas/event"
)

// ParkedCount is how many sessions wait for one reason, and since when the longest.
type ParkedCount struct {
	Code     event.Code
	Sessions int64
	Oldest   time.Time
}

const countParked = `
SELECT code, count(*), min(since) FROM tooltape.parked WHERE projection = $1 GROUP BY code ORDER BY code`

// CountParked counts a projection's parked sessions by code.
func CountParked(ctx context.Context, db Queryer, projection string) ([]ParkedCount, error) {
	return list(ctx, db, countParked, []any{projection}, func(row pgx.CollectableRow) (c ParkedCount, err error) {
		err = row.Scan(&c.Code, &c.Sessions, &c.Oldest)
		return c, err
	})
}
