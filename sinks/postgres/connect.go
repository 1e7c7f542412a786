package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// poolSize is how many connections a process needs: a transaction at a time for each of the partitions it works on, of which two or
// three keep a server busy, and some readers.
const poolSize = 8

// Connect is a pool for a URL such as postgres://user@host:5432/database, with libpq's parameters and pgxpool's (pool_max_conns).
// It does not connect yet: a database that is away is a reason to wait, not to fail.
//
// It works through a pooler in transaction mode: no statement is prepared on the server by name.
func Connect(ctx context.Context, url string) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, badURL(err)
	}
	if !strings.Contains(url, "pool_max_conns") {
		config.MaxConns = poolSize
	}
	if !strings.Contains(url, "default_query_exec_mode") {
		config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
	}
	if config.ConnConfig.RuntimeParams["application_name"] == "" {
		config.ConnConfig.RuntimeParams["application_name"] = "tooltape"
	}
	if config.ConnConfig.ConnectTimeout == 0 {
		config.ConnConfig.ConnectTimeout = 10 * time.Second
	}
	return pgxpool.NewWithConfig(ctx, config)
}

// badURL says what is wrong with a URL, and nothing that stands in it: it may hold a password.
func badURL(err error) error {
	const form = "the database URL cannot be read; it looks like postgres://user:password@host:5432/database?sslmode=require"
	for inner := err; inner != nil; inner = errors.Unwrap(inner) {
		err = inner
	}
	for _, harmless := range []string{"sslmode is invalid", "cannot parse pool_max_conns", "invalid port"} {
		if strings.Contains(err.Error(), harmless) {
			return fmt.Errorf("%s (%s)", form, harmless)
		}
	}
	return errors.New(form)
}
