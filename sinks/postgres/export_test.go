package postgres

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"
)

// MigrateTo applies only the first migrations of each line, up to the version that is given under its name.
func MigrateTo(ctx context.Context, pool *pgxpool.Pool, versions map[string]int, views ...View) error {
	lines, err := linesOf(views)
	if err != nil {
		return err
	}
	for _, l := range lines {
		l.files = l.files[:versions[l.name]]
		for done := false; !done; {
			if done, err = l.step(ctx, pool); err != nil {
				return err
			}
		}
	}
	return nil
}
