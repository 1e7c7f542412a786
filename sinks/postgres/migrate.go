package postgres

import (
	"cmp"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

//go:embed migrations/*.sql
var migrations embed.FS

// ErrNotMigrated says that the database lacks tables that this build needs.
var ErrNotMigrated = errors.New("the database lacks tables of this version: run tooltape migrate")

// line is an ordered history of migrations of its own, so that a view brings its tables without a say in anybody else's.
type line struct {
	name  string
	files []migration
}

type migration struct {
	version   int
	name, sql string
	hash      string
}

// Migrate brings the database to what this build needs, and does nothing where it already is. Several instances may start at
// once. Each file is one transaction, so an interrupted run goes on where it ended. It refuses a database that a newer Tooltape
// migrated, or with other files.
func Migrate(ctx context.Context, pool *pgxpool.Pool, views ...View) error {
	lines, err := linesOf(views)
	if err != nil {
		return err
	}
	for _, l := range lines {
		for done := false; !done; {
			if done, err = l.step(ctx, pool); err != nil {
				return fmt.Errorf("migrating the tables of %s: %w", l.name, classify(err))
			}
		}
	}
	return nil
}

// Check is nil where the database has what this build needs, ErrNotMigrated where it does not yet, and otherwise says what is
// wrong. It changes nothing.
func Check(ctx context.Context, pool *pgxpool.Pool, views ...View) error {
	lines, err := linesOf(views)
	if err != nil {
		return err
	}
	for _, l := range lines {
		applied, err := l.applied(ctx, pool)
		if err != nil {
			return classify(err)
		}
		missing, err := l.missing(applied)
		if err != nil {
			return err
		}
		if len(missing) > 0 {
			return fmt.Errorf("%w (%s has %d of %d migrations)", ErrNotMigrated, l.name, len(applied), len(l.files))
		}
	}
	return nil
}

const (
	// A transaction's lock, not a session's: it works through a pooler, and nobody has to give it back. The number is arbitrary.
	lockMigrations = `SELECT pg_advisory_xact_lock(7466510120157331)`

	hasMigrations = `SELECT to_regclass('tooltape.migration') IS NOT NULL`

	// A schema that is there may be somebody else's, whose right it is to comment on it.
	createMigrations = `
DO $$
BEGIN
    IF to_regnamespace('tooltape') IS NULL THEN
        CREATE SCHEMA tooltape;
        COMMENT ON SCHEMA tooltape IS 'Tooltape: what is made from the events on Kafka. Its tables are documented, and may be read by anybody.';
    END IF;
END
$$;
CREATE TABLE tooltape.migration (
    line       text COLLATE "C" NOT NULL,
    version    integer NOT NULL,
    name       text NOT NULL,
    sha256     text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (line, version)
);
COMMENT ON TABLE  tooltape.migration IS 'The migrations that were applied.';
COMMENT ON COLUMN tooltape.migration.line       IS 'Whose tables: postgres for what all projections share, else the projection.';
COMMENT ON COLUMN tooltape.migration.version    IS 'Counts up from 1 in each line.';
COMMENT ON COLUMN tooltape.migration.name       IS 'The file.';
COMMENT ON COLUMN tooltape.migration.sha256     IS 'The hash of the file as it was applied.';
COMMENT ON COLUMN tooltape.migration.applied_at IS 'When it was applied.';`

	selectMigrations = `SELECT version, name, sha256 FROM tooltape.migration WHERE line = $1 ORDER BY version`

	insertMigration = `INSERT INTO tooltape.migration (line, version, name, sha256) VALUES ($1, $2, $3, $4)`
)

// step applies the first migration that is missing, and says whether none was.
func (l line) step(ctx context.Context, pool *pgxpool.Pool) (done bool, err error) {
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, lockMigrations); err != nil {
			return err
		}
		if err := prepare(ctx, tx); err != nil {
			return err
		}
		applied, err := l.applied(ctx, tx)
		if err != nil {
			return err
		}
		missing, err := l.missing(applied)
		if err != nil || len(missing) == 0 {
			done = true
			return err
		}
		m := missing[0]
		if err := execScript(ctx, tx, m.sql); err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
		_, err = tx.Exec(ctx, insertMigration, l.name, m.version, m.name, m.hash)
		return err
	})
	return done, err
}

// prepare makes the table of migrations, in a database that can hold every text.
func prepare(ctx context.Context, tx pgx.Tx) error {
	var encoding string
	if err := tx.QueryRow(ctx, `SHOW server_encoding`).Scan(&encoding); err != nil {
		return err
	}
	if encoding != "UTF8" {
		return fmt.Errorf("the database's encoding is %s; Tooltape needs one made with ENCODING 'UTF8' TEMPLATE template0", encoding)
	}
	var has bool
	if err := tx.QueryRow(ctx, hasMigrations).Scan(&has); err != nil || has {
		return err
	}
	return execScript(ctx, tx, createMigrations)
}

// execScript runs statements that take no parameters, however many there are.
func execScript(ctx context.Context, tx pgx.Tx, sql string) error {
	_, err := tx.Conn().PgConn().Exec(ctx, sql).ReadAll()
	return err
}

func (l line) applied(ctx context.Context, db Queryer) ([]migration, error) {
	rows, err := db.Query(ctx, selectMigrations, l.name)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (m migration, err error) {
		err = row.Scan(&m.version, &m.name, &m.hash)
		return m, err
	})
}

// missing are the files that are not applied yet. What is applied must be what the files say, and no more than they say.
func (l line) missing(applied []migration) ([]migration, error) {
	if len(applied) > len(l.files) {
		return nil, fmt.Errorf("a newer Tooltape migrated this database: %s of %s is not in this build; run that version or a newer one",
			applied[len(applied)-1].name, l.name)
	}
	for i, a := range applied {
		if f := l.files[i]; a.version != f.version || a.hash != f.hash {
			return nil, fmt.Errorf("migration %s of %s is not what was applied to this database as %s; restore the file, or restore the database "+
				"from before it", f.name, l.name, a.name)
		}
	}
	return l.files[len(applied):], nil
}

// linesOf are the migrations of this package, then those of the views.
func linesOf(views []View) ([]line, error) {
	shared, err := readLine("postgres", migrations)
	if err != nil {
		return nil, err
	}
	lines := []line{shared}
	for _, v := range views {
		l, err := readLine(v.Name, v.Migrations)
		if err != nil {
			return nil, err
		}
		lines = append(lines, l)
	}
	return lines, nil
}

// readLine reads files such as migrations/0001_positions.sql, which must count up from 1.
func readLine(name string, files fs.FS) (line, error) {
	names, err := fs.Glob(files, "migrations/*.sql")
	if err != nil {
		return line{}, err
	}
	l := line{name: name}
	for _, path := range names {
		sql, err := fs.ReadFile(files, path)
		if err != nil {
			return line{}, err
		}
		file := strings.TrimPrefix(path, "migrations/")
		number, _, _ := strings.Cut(file, "_")
		version, err := strconv.Atoi(number)
		if err != nil {
			return line{}, fmt.Errorf("migration %s of %s does not begin with its number", file, name)
		}
		hash := sha256.Sum256(sql)
		l.files = append(l.files, migration{version, file, string(sql), hex.EncodeToString(hash[:])})
	}
	slices.SortFunc(l.files, func(a, b migration) int { return cmp.Compare(a.version, b.version) })
	for i, f := range l.files {
		if f.version != i+1 {
			return line{}, fmt.Errorf("migration %s of %s should have number %d", f.name, name, i+1)
		}
	}
	return l, nil
}
