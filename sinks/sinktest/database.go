package sinktest

import (
	"context"
	"crypto/rand"
	"net/url"
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tooltape/tooltape/sinks/postgres"
)

// ServerVariable names the environment variable that holds the URL of a PostgreSQL for tests, whose user may create databases.
const ServerVariable = "TOOLTAPE_TEST_DATABASE_URL"

// Database is the URL of a database of its own for a test, with the tables of the views given. It is dropped when the test ends.
func Database(t testing.TB, views ...postgres.View) string {
	t.Helper()
	address := EmptyDatabase(t)
	pool := Connect(t, address)
	if err := postgres.Migrate(t.Context(), pool, views...); err != nil {
		t.Fatal(err)
	}
	pool.Close()
	return address
}

// EmptyDatabase is a database that was not migrated.
func EmptyDatabase(t testing.TB) string {
	t.Helper()
	server := server(t)
	address, err := url.Parse(server)
	if err != nil {
		t.Fatalf("%s is not a URL", ServerVariable)
	}
	name := "tooltape_test_" + strings.ToLower(rand.Text())
	execute(t, server, "CREATE DATABASE "+name+" ENCODING 'UTF8' TEMPLATE template0")
	t.Cleanup(func() { execute(t, server, "DROP DATABASE IF EXISTS "+name+" WITH (FORCE)") })
	address.Path = "/" + name
	return address.String()
}

// Connect is a pool that is closed when the test ends.
func Connect(t testing.TB, address string) *pgxpool.Pool {
	t.Helper()
	pool, err := postgres.Connect(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

func server(t testing.TB) string {
	t.Helper()
	address := os.Getenv(ServerVariable)
	if address == "" {
		t.Skipf("set %s to run this test", ServerVariable)
	}
	return address
}

// execute runs a statement on a connection of its own: a database cannot be made or dropped in a transaction. The test's context is
// already over when it ends.
func execute(t testing.TB, address, sql string) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	conn, err := pgx.Connect(ctx, address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	if _, err := conn.Exec(ctx, sql); err != nil {
		t.Error(err)
	}
}
