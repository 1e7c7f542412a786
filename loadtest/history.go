package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/tooltape/tooltape/processors/topics"
	"github.com/tooltape/tooltape/schemas"
)

const module = "github.com/tooltape/tooltape"

type options struct {
	rounds      int
	sizes       []int
	events      int
	sessions    int
	perSession  int
	open        int
	partitions  int32
	brokers     []string
	databaseURL string
	product     string
	output      string
}

// load is what a topic of events of a size holds.
func (o options) load(size int) load {
	const most, bytes = 200_000, 160 << 20
	l := load{size: size, events: o.events, sessions: o.sessions, open: o.open}
	if l.events == 0 {
		l.events = min(most, bytes/size)
	}
	if l.sessions == 0 {
		l.sessions = max(l.events/o.perSession, 1)
	}
	l.sessions = min(l.sessions, l.events)
	return l
}

func (o options) check() error {
	switch {
	case o.rounds < 1 || o.events < 0 || o.sessions < 0 || o.open < 1 || o.partitions < 1:
		return errors.New("--rounds, --open and --partitions are at least 1, --events and --sessions at least 0")
	case o.output != "text" && o.output != "json":
		return fmt.Errorf("--output is text or json, not %q", o.output)
	}
	for _, size := range o.sizes {
		if size < 1 || size > 4<<20 {
			return fmt.Errorf("an event of %d bytes cannot be made: --size is 1 to %d", size, 4<<20)
		}
	}
	return nil
}

// runHistory measures all sizes and prints what came out.
func runHistory(ctx context.Context, o options, out io.Writer) (err error) {
	if err := o.check(); err != nil {
		return err
	}
	b := &bench{options: o, name: "loadtest_" + strings.ToLower(rand.Text()[:8])}
	if b.services, err = findServices(ctx, o); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.services.stop()) }()
	if b.product == "" {
		dir, err := os.MkdirTemp("", "tooltape-loadtest-")
		if err != nil {
			return err
		}
		defer func() { _ = os.RemoveAll(dir) }()
		b.product = filepath.Join(dir, "tooltape")
		if _, err := output(exec.CommandContext(ctx, "go", "build", "-o", b.product, module+"/cmd/tooltape")); err != nil {
			return err
		}
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(b.services.brokers...))
	if err != nil {
		return err
	}
	defer client.Close()
	b.admin = kadm.NewClient(client)

	r := report{Machine: machine()}
	if r.PostgreSQL, r.Fsync, err = describeServer(ctx, b.services.databaseURL); err != nil {
		return err
	}
	for _, size := range o.sizes {
		s, err := b.measure(ctx, o.load(size))
		if err != nil {
			return fmt.Errorf("events of %d bytes: %w", size, err)
		}
		r.Sizes = append(r.Sizes, s)
	}
	return r.print(out, o.output)
}

// bench is one run of the command.
type bench struct {
	options
	services *services
	admin    *kadm.Client
	name     string // what topics, groups and databases begin with
	made     int    // databases
}

// measure fills a topic, lets both sides read it in turns, and removes it again.
func (b *bench) measure(ctx context.Context, l load) (_ sized, err error) {
	names := schemas.Topics{Prefix: fmt.Sprintf("%s_%d", b.name, l.size)}
	if _, err := topics.Apply(ctx, b.admin, topics.Spec{Topics: names, Partitions: b.partitions, ReplicationFactor: -1}); err != nil {
		return sized{}, err
	}
	defer func() {
		_, deleted := b.admin.DeleteTopics(context.WithoutCancel(ctx), names.Events(), names.Runs(), names.Decisions(), names.Retries())
		err = errors.Join(err, deleted)
	}()
	b.say("%d B: writing %d events of %d sessions", l.size, l.events, l.sessions)
	if err := fill(ctx, b.services.brokers, names.Events(), b.partitions, l); err != nil {
		return sized{}, fmt.Errorf("filling the topic: %w", err)
	}
	sides := []side{b.floorSide(names), b.productSide(names)}
	results := map[string][]sample{}
	for round := range b.rounds {
		for turn := range sides {
			s := sides[(round+turn)%len(sides)] // who goes first changes, too
			result, err := b.round(ctx, s, l)
			if err != nil {
				return sized{}, fmt.Errorf("%s: %w", s.name, err)
			}
			b.say("%d B: round %d of %d: %-7s %8.0f rows/s", l.size, round+1, b.rounds, s.name, result.RowsPerSecond)
			results[s.name] = append(results[s.name], result)
		}
	}
	return summarize(l, b.logBytes(ctx, names.Events()), results)
}

// logBytes is how large the topic is on the broker's disk; 0 where the broker does not say.
func (b *bench) logBytes(ctx context.Context, topic string) int64 {
	partitions := make([]int32, b.partitions)
	for i := range partitions {
		partitions[i] = int32(i)
	}
	var all kadm.TopicsSet
	all.Add(topic, partitions...)
	dirs, err := b.admin.DescribeAllLogDirs(ctx, all)
	if err != nil {
		return 0
	}
	var size int64
	dirs.Each(func(d kadm.DescribedLogDir) { size += d.Size() })
	return size
}

func (b *bench) say(format string, args ...any) {
	if b.output == "text" {
		fmt.Fprintf(os.Stderr, format+"\n", args...)
	}
}
