package postgres

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"
)

// MigrateTo applies only the first migrations of this package, and all of the views.
func MigrateTo(ctx context.Context, pool *pgxpool.Pool, version int, views ...View) error {
	lines, err := linesOf(views)
	if err != nil {
		return err
	}
	lines[0].files = lines[0].files[:version]
	for _, l := range lines {
		for done := false; !done; {
			if done, err = l.step(ctx, pool); err != nil {
				return err
			}
		}
	}
	return nil
}
