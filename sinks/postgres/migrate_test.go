package postgres_test

import (
	"errors"
	"strings"
	"testing"
	"testing/fstest"

	"golang.org/x/sync/errgroup"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tooltape/tooltape/sinks"
	"github.com/tooltape/tooltape/sinks/postgres"
	"github.com/tooltape/tooltape/sinks/sinktest"
)

// with is a view with these migrations, each of which makes a table.
func with(files ...string) postgres.View {
	fs := fstest.MapFS{}
	for _, f := range files {
		name, _, _ := strings.Cut(f[len("0001_"):], ".")
		fs["migrations/"+f] = &fstest.MapFile{Data: []byte("CREATE TABLE tooltape." + name + " (id integer); SELECT 1;")}
	}
	return postgres.View{Name: "notes", BuilderVersion: 1, Migrations: fs}
}

func TestMigrateGoesOnWhereItEnded(t *testing.T) {
	pool := sinktest.Connect(t, sinktest.EmptyDatabase(t))
	one, two := with("0001_one.sql"), with("0001_one.sql", "0002_two.sql")
	if err := postgres.Check(t.Context(), pool, one); !errors.Is(err, postgres.ErrNotMigrated) {
		t.Errorf("an empty database gives %v", err)
	}
	for range 2 {
		migrate(t, pool, one)
	}
	if err := postgres.Check(t.Context(), pool, one); err != nil {
		t.Error(err)
	}
	err := postgres.Check(t.Context(), pool, two)
	if !errors.Is(err, postgres.ErrNotMigrated) || !strings.Contains(err.Error(), "notes has 1 of 2") {
		t.Errorf("one missing gives %v", err)
	}
	migrate(t, pool, two)
	count(t, pool, "tooltape.two")
}

func migrate(t *testing.T, pool *pgxpool.Pool, views ...postgres.View) {
	t.Helper()
	if err := postgres.Migrate(t.Context(), pool, views...); err != nil {
		t.Fatal(err)
	}
}

func TestMigrateRefusesWhatIsNotItsOwn(t *testing.T) {
	pool := sinktest.Connect(t, sinktest.EmptyDatabase(t))
	migrate(t, pool, with("0001_one.sql", "0002_two.sql"))
	other := with("0001_one.sql", "0002_two.sql")
	other.Migrations.(fstest.MapFS)["migrations/0002_two.sql"].Data = []byte("SELECT 2")
	for want, view := range map[string]postgres.View{
		"a newer Tooltape migrated this database": with("0001_one.sql"),
		"is not what was applied":                 other,
	} {
		for _, err := range []error{postgres.Migrate(t.Context(), pool, view), postgres.Check(t.Context(), pool, view)} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want %q", err, want)
			}
		}
	}
	for want, view := range map[string]postgres.View{
		"should have number 2":           with("0001_one.sql", "0003_two.sql"),
		"does not begin with its number": with("first_one.sql"),
	} {
		if err := postgres.Migrate(t.Context(), pool, view); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

func TestAMigrationThatFailsLeavesNothing(t *testing.T) {
	pool := sinktest.Connect(t, sinktest.EmptyDatabase(t))
	view := with("0001_one.sql", "0002_two.sql")
	view.Migrations.(fstest.MapFS)["migrations/0002_two.sql"].Data = []byte("CREATE TABLE tooltape.half (); SELECT 1/0;")
	if err := postgres.Migrate(t.Context(), pool, view); err == nil {
		t.Fatal("no error")
	}
	if n := count(t, pool, "tooltape.migration WHERE line = 'notes'") + count(t, pool, "pg_tables WHERE tablename = 'half'"); n != 1 {
		t.Errorf("%d, want 1: the first migration", n)
	}
	migrate(t, pool, with("0001_one.sql", "0002_two.sql"))
}

func TestInstancesThatMigrateAtOnce(t *testing.T) {
	pool := sinktest.Connect(t, sinktest.EmptyDatabase(t))
	var group errgroup.Group
	for range 6 {
		group.Go(func() error { return postgres.Migrate(t.Context(), pool, with("0001_one.sql", "0002_two.sql")) })
	}
	if err := group.Wait(); err != nil {
		t.Error(err)
	}
}

func TestEverythingIsCommented(t *testing.T) {
	pool := sinktest.Connect(t, sinktest.Database(t))
	for _, missing := range []string{
		`pg_class WHERE relnamespace = 'tooltape'::regnamespace AND relkind = 'r' AND obj_description(oid, 'pg_class') IS NULL`,
		`pg_attribute a JOIN pg_class c ON c.oid = a.attrelid WHERE c.relnamespace = 'tooltape'::regnamespace AND c.relkind = 'r' AND a.attnum > 0
			AND col_description(c.oid, a.attnum) IS NULL`,
	} {
		if n := count(t, pool, missing); n != 0 {
			t.Errorf("%d without a comment: %s", n, missing)
		}
	}
}

func TestADatabaseThatWasNotMigrated(t *testing.T) {
	pool := sinktest.Connect(t, sinktest.EmptyDatabase(t))
	sink := postgres.New(pool, with())
	topic := sinks.Topic{ID: "00000000-0000-4000-8000-000000000000", Partitions: 1}
	if _, err := sink.Acquire(t.Context(), 0, topic); !errors.Is(err, postgres.ErrNotMigrated) {
		t.Errorf("Acquire gives %v", err)
	}
	if _, err := sink.Write(t.Context(), sinks.Batch{}); !errors.Is(err, postgres.ErrNotMigrated) {
		t.Errorf("Write gives %v", err)
	}
	if _, err := postgres.Positions(t.Context(), pool, ""); !errors.Is(err, postgres.ErrNotMigrated) {
		t.Errorf("Positions gives %v", err)
	}
}

func TestAServerThatIsAway(t *testing.T) {
	pool := sinktest.Connect(t, "postgres://nobody:hunter2@127.0.0.1:1/none?sslmode=disable")
	err := postgres.Check(t.Context(), pool)
	if err == nil || errors.Is(err, postgres.ErrNotMigrated) || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("got %v", err)
	}
}

func TestABadURLIsRefusedWithoutItsPassword(t *testing.T) {
	for _, address := range []string{
		"postgres://user:hunter2@host:port/db", "postgres://user:hunter2@host/db?sslmode=nonsense", "postgres://user:hun/ter2@host:1/db",
		"postgres://user:12/hunter2@host:1/db?x=%zz", "postgres://user@host/db?password=hunter2&pool_max_conns=many", "mysql://user:hunter2@host/db",
		"host=h password=hunter2 port=x", "postgres://user:hunter2#@host/db?sslmode=x", "hunter2",
	} {
		_, err := postgres.Connect(t.Context(), address)
		if err == nil || strings.Contains(err.Error(), "ter2") || !strings.Contains(err.Error(), "postgres://") {
			t.Errorf("%s gives: %v", address, err)
		}
	}
}
