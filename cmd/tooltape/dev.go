package main

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/tooltape/tooltape/deploy/local"
	"github.com/tooltape/tooltape/processors/eventlog"
	"github.com/tooltape/tooltape/processors/topics"
	"github.com/tooltape/tooltape/sinks/history"
	"github.com/tooltape/tooltape/sinks/postgres"
)

// devPartitions is enough to see sessions side by side, and little for a laptop.
const devPartitions = 4

//go:embed demo.jsonl
var demo []byte

type devOptions struct {
	runOptions
	dir          string
	demo, once   bool
	imports      []string
	path         string
	kafkaPort    int
	postgresPort int
}

func (a *app) devCommand() *cobra.Command {
	var o devOptions
	cmd := &cobra.Command{
		Use:   "dev",
		Short: "Everything on this machine: Kafka, PostgreSQL, topics, tables and the processor",
		Long: `Run everything on this machine in one process tree: a Kafka in process, a PostgreSQL (an installed one, else one that is downloaded
once), topics, tables and the processor, until Ctrl-C. The data stays in --data for the next start.

DIR/env holds the settings for every other command: set -a; . ./.tooltape/env; set +a`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return untilStopped(cmd.Context(), a.dev(cmd.Context(), o))
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.dir, "data", ".tooltape", "where the data is kept between starts")
	f.BoolVar(&o.demo, "demo", false, "append a few generated sessions that tell the story")
	f.StringArrayVar(&o.imports, "import", nil, "FORMAT=FILE to import at the start: openai-chat, claude-code, or events (JSON form); may be repeated")
	f.StringVar(&o.path, "path", "", "for openai-chat: where the sessions are in the file, such as '[].traj'")
	f.BoolVar(&o.once, "once", false, "end when all input is projected, and print a summary; exit code 1 if anything is parked")
	f.IntVar(&o.kafkaPort, "kafka-port", 0, "Kafka's port; 0 is the last one, else any free one")
	f.IntVar(&o.postgresPort, "postgres-port", 0, "PostgreSQL's port; 0 is the last one, else any free one")
	f.StringVar(&o.listen, "listen", "127.0.0.1:0", "where to answer /livez, /readyz and /metrics; port 0 is any free one")
	return cmd
}

// dev starts everything in order and stops it in the opposite one.
func (a *app) dev(ctx context.Context, o devOptions) (err error) {
	inputs, err := parseImports(o)
	if err != nil {
		return err
	}
	o.instanceID = "dev" // after a kill the next start need not wait until the group has given the last one up
	started := time.Now()
	stop, err := a.startServices(ctx, o)
	defer func() { err = errors.Join(err, stop()) }()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended, err := a.startProcessor(ctx, o)
	if err != nil {
		return err
	}
	defer func() { // the processor leaves its group before Kafka goes
		cancel()
		if runErr := <-ended; err == nil && runErr != nil {
			err = fmt.Errorf("%w (%s)", runErr, a.dataAt)
		}
	}()
	a.sayf("ready in %.1f s\n", time.Since(started).Seconds())
	if err := a.feed(ctx, o, inputs); err != nil {
		return err
	}
	if o.once {
		return a.finish(ctx, started, ended)
	}
	if o.demo {
		a.sayf("%s", demoTour(o.dir))
	}
	a.sayf("Ctrl-C stops.\n")
	select {
	case <-ctx.Done():
		return nil
	case runErr := <-ended:
		ended <- runErr
		return nil
	}
}

// sayf talks to a person: on standard error, where it disturbs no output that a program reads.
func (a *app) sayf(format string, args ...any) {
	fmt.Fprint(a.errs, printable(fmt.Sprintf(format, args...)))
}

// startServices starts Kafka and PostgreSQL, makes topics and tables, and points the settings at them. The function that it returns
// stops what was started, also after an error.
func (a *app) startServices(ctx context.Context, o devOptions) (stop func() error, err error) {
	var stops []func() error
	stop = func() error {
		var errs []error
		for i := len(stops) - 1; i >= 0; i-- {
			errs = append(errs, stops[i]())
		}
		return errors.Join(errs...)
	}
	if err := os.MkdirAll(o.dir, 0o755); err != nil {
		return stop, err
	}
	db, err := local.StartPostgres(ctx, local.PostgresOptions{Dir: o.dir, Port: o.postgresPort, Log: a.errs})
	if err != nil {
		return stop, err
	}
	stops = append(stops, db.Stop)
	kafka, err := local.StartKafka(ctx, local.KafkaOptions{Dir: o.dir, Port: o.kafkaPort})
	if err != nil {
		return stop, err
	}
	stops = append(stops, func() error { kafka.Stop(); return nil })
	a.settings.brokers, a.settings.databaseURL, a.settings.registryURL = kafka.Brokers, db.URL, ""
	a.dataAt = fmt.Sprintf("dev keeps its data in %s and %s; to begin anew, delete both", filepath.Join(o.dir, "kafka"), filepath.Join(db.Dir, "postgres"))
	return stop, a.prepare(ctx, o)
}

// prepare makes topics and tables, and writes down how to reach them.
func (a *app) prepare(ctx context.Context, o devOptions) error {
	admin, err := a.admin(ctx)
	if err != nil {
		return err
	}
	defer admin.Close()
	if _, err := topics.Apply(ctx, admin, topics.Spec{Topics: a.settings.topics(), Partitions: devPartitions, ReplicationFactor: 1}); err != nil {
		return err
	}
	pool, err := a.database(ctx)
	if err != nil {
		return err
	}
	defer pool.Close()
	if err := postgres.Migrate(ctx, pool, history.View()); err != nil {
		return err
	}
	return a.writeEnv(o.dir)
}

// writeEnv makes DIR/env, readable by its owner alone: it holds the database's password.
func (a *app) writeEnv(dir string) error {
	text := fmt.Sprintf("TOOLTAPE_BROKERS=%s\nTOOLTAPE_DATABASE_URL=%s\nTOOLTAPE_TOPIC_PREFIX=%s\n",
		strings.Join(a.settings.brokers, ","), a.settings.databaseURL, a.settings.topicPrefix)
	path := filepath.Join(dir, "env")
	if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// startProcessor runs the history's processor until ctx ends; the channel then gives its end.
func (a *app) startProcessor(ctx context.Context, o devOptions) (chan error, error) {
	log, err := a.settings.logger(a, "warn") // dev has words of its own
	if err != nil {
		return nil, err
	}
	tel, err := newTelemetry(ctx)
	if err != nil {
		return nil, err
	}
	p, closeStore, err := a.historyProcessor(ctx, o.runOptions, log, tel)
	if err != nil {
		return nil, err
	}
	addr, err := tel.serve(ctx, o.listen, p.Ready)
	if err != nil {
		closeStore()
		return nil, err
	}
	a.sayf("metrics and health on http://%s; settings for other commands in %s\n", addr, filepath.Join(o.dir, "env"))
	ended := make(chan error, 1)
	go func() {
		err := p.Run(ctx)
		closeStore()
		ended <- errors.Join(err, tel.close())
	}()
	return ended, nil
}

// input is one file to import at the start.
type input struct {
	format *format // nil: events in JSON form
	file   string
}

func parseImports(o devOptions) ([]input, error) {
	var inputs []input
	for _, text := range o.imports {
		name, file, ok := strings.Cut(text, "=")
		in := input{file: file}
		for i := range formats {
			if formats[i].name == name {
				in.format = &formats[i]
			}
		}
		if !ok || in.format == nil && name != "events" {
			return nil, usagef("--import is FORMAT=FILE with the format openai-chat, claude-code or events, not %q", text)
		}
		if _, err := os.Stat(file); err != nil {
			return nil, usagef("--import %s: %s", text, err)
		}
		inputs = append(inputs, in)
	}
	return inputs, nil
}

// feed appends the demo and the files.
func (a *app) feed(ctx context.Context, o devOptions, inputs []input) error {
	if o.demo {
		if _, err := a.produce(ctx, bytes.NewReader(demo), "the demo", true); err != nil {
			return err
		}
	}
	for _, in := range inputs {
		if err := a.feedOne(ctx, o, in); err != nil {
			return err
		}
	}
	return nil
}

func (a *app) feedOne(ctx context.Context, o devOptions, in input) error {
	if in.format != nil {
		rows, err := a.importFiles(ctx, *in.format, importOptions{path: o.path}, []string{in.file})
		for _, r := range rows {
			a.sayf("%s: %d sessions, %d events appended\n", r.File, r.Sessions, r.Events)
		}
		return err
	}
	f, err := os.Open(in.file)
	if err != nil {
		return err
	}
	defer f.Close()
	p, err := a.produce(ctx, f, in.file, true)
	a.sayf("%s: %d sessions, %d events appended\n", in.file, p.Sessions, p.Events)
	return err
}

// devSummary is what dev --once prints: totals in the store, and how long it all took.
type devSummary struct {
	Sessions int64   `json:"sessions"`
	Events   int64   `json:"events"`
	Items    int64   `json:"items"`
	Parked   int64   `json:"parked"`
	SetAside int64   `json:"set_aside"`
	Seconds  float64 `json:"seconds"`
}

// finish waits until everything that is in the log now is projected, and tells what the store holds.
func (a *app) finish(ctx context.Context, started time.Time, ended chan error) error {
	log, err := a.eventLog(ctx)
	if err != nil {
		return err
	}
	defer log.Close()
	bounds, err := log.Bounds(ctx)
	if err != nil {
		return err
	}
	pool, err := a.migrated(ctx)
	if err != nil {
		return err
	}
	defer pool.Close()
	for tick := time.NewTicker(10 * time.Millisecond); ; {
		done, err := projected(ctx, pool, bounds)
		if err != nil {
			return err
		}
		if done {
			tick.Stop()
			break
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case runErr := <-ended:
			ended <- runErr
			return nil
		case <-tick.C:
		}
	}
	totals, err := history.ReadTotals(ctx, pool)
	if err != nil {
		return err
	}
	if err := a.printOne(devSummary{
		Sessions: totals.Sessions, Events: totals.Events, Items: totals.Items, Parked: totals.Parked, SetAside: totals.SetAside,
		Seconds: time.Since(started).Seconds(),
	}); err != nil {
		return err
	}
	if totals.Parked > 0 {
		return withCode("parked", fmt.Errorf("parked sessions: %d; while dev runs, tooltape parked says why", totals.Parked))
	}
	return nil
}

// projected says whether the history has read every partition up to its end.
func projected(ctx context.Context, pool *pgxpool.Pool, bounds []eventlog.Bounds) (bool, error) {
	positions, err := postgres.Positions(ctx, pool, history.Name)
	if err != nil {
		return false, err
	}
	at := map[int32]int64{}
	for _, p := range positions {
		at[p.Partition] = p.NextOffset
	}
	for p, b := range bounds {
		if at[int32(p)] < b.End {
			return false, nil
		}
	}
	return true, nil
}
