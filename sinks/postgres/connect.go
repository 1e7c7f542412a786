package postgres

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// poolSize is how many connections a process needs: a transaction at a time for each of the partitions it works on, of which two or
// three keep a server busy, and some readers.
const poolSize = 8

// Connect is a pool for an address such as postgres://user@host:5432/database, with libpq's parameters and pgxpool's (pool_max_conns).
// It does not connect yet: a database that is away is a reason to wait, not to fail.
//
// It works through a pooler in transaction mode: no statement is prepared on the server by name. A connection whose server turns out to
// take no writes is given up: after a failover the next one leads to the new server, or waits for it.
func Connect(ctx context.Context, address string) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(address)
	if err != nil {
		return nil, badURL(address, err)
	}
	if !strings.Contains(address, "pool_max_conns") {
		config.MaxConns = poolSize
	}
	if !strings.Contains(address, "default_query_exec_mode") {
		config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
	}
	if config.ConnConfig.RuntimeParams["application_name"] == "" {
		config.ConnConfig.RuntimeParams["application_name"] = "tooltape"
	}
	if config.ConnConfig.ConnectTimeout == 0 {
		config.ConnConfig.ConnectTimeout = 10 * time.Second
	}
	goesOn := config.ConnConfig.OnPgError
	config.ConnConfig.OnPgError = func(conn *pgconn.PgConn, err *pgconn.PgError) bool {
		return goesOn(conn, err) && err.Code != stateReadOnly
	}
	return pgxpool.NewWithConfig(ctx, config)
}

// badURL says what is wrong with a URL, without its password. What pgx leaves out of its message is exact only where the URL has its
// parts where they belong; of another nothing is shown, as anything in it may be the password.
func badURL(address string, err error) error {
	const form = "the database URL cannot be used; it looks like postgres://user:password@host:5432/database?sslmode=require"
	parsed, unreadable := url.Parse(address)
	if unreadable != nil || !strings.HasPrefix(parsed.Scheme, "postgres") || strings.Contains(parsed.Path+parsed.RawQuery+parsed.Fragment, "@") {
		return errors.New(form)
	}
	return fmt.Errorf("%s (%s)", form, err)
}
