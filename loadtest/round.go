package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tooltape/tooltape/schemas"
	"github.com/tooltape/tooltape/sinks/history"
	"github.com/tooltape/tooltape/sinks/postgres"
)

// The sides.
const (
	floorName   = "floor"
	productName = "product"
)

// side is one of the two that are compared.
type side struct {
	name    string
	group   string
	command func(ctx context.Context) (*exec.Cmd, error)
	// stored is how many events the side has stored.
	stored func(ctx context.Context, p *process, db *pgx.Conn) (int64, error)
}

func (b *bench) floorSide(names schemas.Topics) side {
	group := names.Group(floorName)
	return side{
		name: floorName, group: group,
		command: func(ctx context.Context) (*exec.Cmd, error) {
			self, err := os.Executable()
			return exec.CommandContext(ctx, self, "floor", "--brokers", strings.Join(b.services.brokers, ","),
				"--topic", names.Events(), "--group", group), err
		},
		stored: func(_ context.Context, p *process, _ *pgx.Conn) (int64, error) { return p.stored.Load(), nil },
	}
}

func (b *bench) productSide(names schemas.Topics) side {
	return side{
		name: productName, group: names.Group(history.Name),
		command: func(ctx context.Context) (*exec.Cmd, error) {
			return exec.CommandContext(ctx, b.product, "run", "history", "--brokers", strings.Join(b.services.brokers, ","),
				"--topic-prefix", names.Prefix), nil
		},
		stored: func(ctx context.Context, _ *process, db *pgx.Conn) (n int64, err error) {
			err = db.QueryRow(ctx, `SELECT coalesce(sum(next_offset), 0)::bigint FROM tooltape.position`).Scan(&n)
			return n, err
		},
	}
}

// sample is what one side did in one round.
type sample struct {
	RowsPerSecond float64 `json:"rows_per_s"`
	ClientMicros  float64 `json:"client_us_per_row"`
	ServerMicros  float64 `json:"server_us_per_row"`
	PeakMB        float64 `json:"peak_mb"`
	checksum      string
}

// round lets a side fill an empty database, as a consumer group that nobody knows.
func (b *bench) round(ctx context.Context, s side, l load) (_ sample, err error) {
	address, drop, err := b.database(ctx)
	if err != nil {
		return sample{}, err
	}
	defer func() { err = errors.Join(err, drop()) }()
	db, err := pgx.Connect(ctx, address)
	if err != nil {
		return sample{}, err
	}
	defer db.Close(context.WithoutCancel(ctx))
	cmd, err := s.command(ctx)
	if err != nil {
		return sample{}, err
	}
	cmd.Env = append(bareEnvironment(), databaseVariable+"="+address)
	p, err := start(ctx, cmd)
	if err != nil {
		return sample{}, err
	}
	result, err := watch(ctx, s, p, db, l)
	if err := errors.Join(err, p.stop()); err != nil {
		return sample{}, err
	}
	if _, err := b.admin.DeleteGroups(ctx, s.group); err != nil {
		return sample{}, fmt.Errorf("deleting the consumer group %s: %w", s.group, err)
	}
	result.checksum, err = checksum(ctx, db)
	return result, err
}

// state is how far a side is, and what it has cost.
type state struct {
	at             time.Time
	stored         int64
	client, server time.Duration
}

// watch measures from the moment that the first rows are seen, so that no start counts, to the moment that the last are. How late
// either is seen does not depend on the side.
func watch(ctx context.Context, s side, p *process, db *pgx.Conn, l load) (sample, error) {
	const look = 10 * time.Millisecond
	var first state
	for {
		n, err := s.stored(ctx, p, db)
		if err := errors.Join(err, p.fault(), ctx.Err()); err != nil {
			return sample{}, err
		}
		if n > 0 && first.stored == 0 || n >= int64(l.events) {
			now := state{at: time.Now(), stored: n, client: processorTime(p.cmd.Process.Pid)}
			if now.server, err = serverTime(ctx, db); err != nil {
				return sample{}, err
			}
			if n >= int64(l.events) {
				return between(first, now, peakMemory(p.cmd.Process.Pid)), nil
			}
			first = now
		}
		time.Sleep(look)
	}
}

func between(first, last state, peak int64) sample {
	rows := float64(last.stored - first.stored)
	return sample{
		RowsPerSecond: rows / last.at.Sub(first.at).Seconds(),
		ClientMicros:  (last.client - first.client).Seconds() * 1e6 / rows,
		ServerMicros:  (last.server - first.server).Seconds() * 1e6 / rows,
		PeakMB:        float64(peak) / 1e6,
	}
}

// serverTime is what the server's processes for this database have used, where the server is on this machine.
func serverTime(ctx context.Context, db *pgx.Conn) (time.Duration, error) {
	rows, err := db.Query(ctx, `SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()`)
	if err != nil {
		return 0, err
	}
	pids, err := pgx.CollectRows(rows, pgx.RowTo[int32])
	var sum time.Duration
	for _, pid := range pids {
		if name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid)); strings.HasPrefix(string(name), "postgres") {
			sum += processorTime(int(pid))
		}
	}
	return sum, err
}

const checksumRows = `
SELECT count(*) || ' rows, ' || coalesce(sum(hashtextextended(item::text, 0)::numeric + hashtextextended(concat_ws(' ',
    session_id, seq, item_index, event_id, run_id, occurred_at, builder_version), 0)), 0)
FROM tooltape.history_item`

// checksum says what the table holds: the same rows have the same one, in whatever order they came.
func checksum(ctx context.Context, db *pgx.Conn) (sum string, err error) {
	err = db.QueryRow(ctx, checksumRows).Scan(&sum)
	return sum, err
}

// database makes an empty one with the product's tables.
func (b *bench) database(ctx context.Context) (address string, drop func() error, err error) {
	b.made++
	name := fmt.Sprintf("%s_%d", b.name, b.made)
	if err := execute(ctx, b.services.databaseURL, "CREATE DATABASE "+name+" ENCODING 'UTF8' TEMPLATE template0"); err != nil {
		return "", nil, err
	}
	drop = func() error {
		return execute(context.WithoutCancel(ctx), b.services.databaseURL, "DROP DATABASE "+name+" WITH (FORCE)")
	}
	parsed, err := url.Parse(b.services.databaseURL)
	if err != nil {
		return "", nil, errors.Join(errors.New("--database-url is not a URL"), drop())
	}
	parsed.Path = "/" + name
	pool, err := postgres.Connect(ctx, parsed.String())
	if err != nil {
		return "", nil, errors.Join(err, drop())
	}
	defer pool.Close()
	if err := postgres.Migrate(ctx, pool, history.View()); err != nil {
		return "", nil, errors.Join(err, drop())
	}
	return parsed.String(), drop, nil
}

// execute runs a statement on a connection of its own: a database cannot be made or dropped in a transaction.
func execute(ctx context.Context, address, sql string) error {
	db, err := pgx.Connect(ctx, address)
	if err != nil {
		return err
	}
	defer db.Close(ctx)
	_, err = db.Exec(ctx, sql)
	return err
}

// bareEnvironment is this process's without what sets up Tooltape or a collector: both sides run as they come.
func bareEnvironment() []string {
	var bare []string
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "TOOLTAPE_") && !strings.HasPrefix(v, "OTEL_") {
			bare = append(bare, v)
		}
	}
	return bare
}
