package sinktest

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tooltape/tooltape/deploy/local"
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

// Main runs a package's tests, and then stops the PostgreSQL that they started, if they did. A package that asks for a Database needs
//
//	func TestMain(m *testing.M) { os.Exit(sinktest.Main(m)) }
func Main(m *testing.M) int {
	started.inMain = true
	code := m.Run()
	started.Lock()
	defer started.Unlock()
	if started.server != nil {
		if err := started.server.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	return code
}

// started is the PostgreSQL of this process, one for all its tests.
var started struct {
	sync.Mutex
	inMain bool
	server *local.Postgres
}

// server is the URL of the PostgreSQL that the environment names, else of one that is started now.
func server(t testing.TB) string {
	t.Helper()
	if address := os.Getenv(ServerVariable); address != "" {
		return address
	}
	started.Lock()
	defer started.Unlock()
	if !started.inMain {
		t.Fatalf("set %s, or add to the package: func TestMain(m *testing.M) { os.Exit(sinktest.Main(m)) }", ServerVariable)
	}
	if started.server == nil {
		// The server outlives the test that happens to start it.
		s, err := local.StartPostgres(context.WithoutCancel(t.Context()), local.PostgresOptions{NoSync: true, Log: os.Stderr})
		if err != nil {
			t.Fatal(err)
		}
		started.server = s
	}
	return started.server.URL
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
