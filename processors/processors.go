// Package processors is the one loop: poll, decode, decide, store. A bad event stops its session and nothing else; what is not the
// event's fault is waited out; what a person must see ends the loop with a sentence.
package processors

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"

	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/errgroup"

	"github.com/tooltape/tooltape/processors/eventlog"
	"github.com/tooltape/tooltape/schemas"
	"github.com/tooltape/tooltape/sinks"
)

// Config is what a processor needs. Zero values of the numbers mean the defaults.
type Config struct {
	// Projection names the consumer; with the topic prefix it is the consumer group.
	Projection string
	Topics     schemas.Topics
	Sink       sinks.Sink
	Decoder    *schemas.Decoder
	// Encoder writes over content that came behind the marker of its purge (default: single-object encoding).
	Encoder *schemas.Encoder
	// Build names this program's build: it is written down with each session that it could not project.
	Build string
	// Kafka is how to reach the brokers: seeds, TLS, SASL, client id.
	Kafka []kgo.Opt
	// InstanceID makes this member a static one of the group: after a restart within the session timeout it gets its partitions back.
	InstanceID string
	// ServerSideGroup joins by the group protocol of KIP-848 where the broker has it, else by the classic one.
	ServerSideGroup bool
	// SessionTimeout is how long a silent member keeps its partitions (default 6 s).
	SessionTimeout time.Duration
	// BatchRecords and BatchBytes bound one transaction (defaults 2,000 records, 4 MiB of values).
	BatchRecords, BatchBytes int
	// Workers is how many partitions are worked on at once (default 2): each holds one connection to the store.
	Workers int
	// MaxUnpackedBytes bounds what one batch of the log may unpack to (default 64 MiB); a larger one stops its partition.
	MaxUnpackedBytes int
	// FetchBytes bounds what is fetched at once from a broker, compressed (default 1 MiB).
	FetchBytes int32
	Logger     *slog.Logger
	Telemetry  *Telemetry
}

// The defaults of Config.
const (
	DefaultSessionTimeout = 6 * time.Second
	DefaultBatchRecords   = 2000
	DefaultBatchBytes     = 4 << 20
	DefaultWorkers        = 2
	DefaultFetchBytes     = 1 << 20

	fetchPartitionBytes = 256 << 10
	// maxDecompressedBytes bounds what one batch of a few kilobytes may unpack to.
	maxDecompressedBytes = 64 << 20
	cachedSessions       = 4096
)

// Processor brings one projection up to date and keeps it so.
type Processor struct {
	cfg      Config
	topic    string
	client   *kgo.Client
	unpack   *unpacker
	topicNow sinks.Topic   // as it was at the first assignment
	scan     *eventlog.Log // for the second readers
	log      *slog.Logger
	health   health

	run  context.Context // of Run: each assignment ends with it
	stop context.CancelCauseFunc

	mu   sync.Mutex
	held map[int32]*assignment

	beside sync.WaitGroup // what runs beside the loop: second readers, partitions that wait
}

var (
	errRevoked   = errors.New("the partition was assigned to another member")
	errNotJoined = errors.New("no partition was assigned yet")
)

// fatalError ends the processor: going on would lose or invent something.
type fatalError struct{ error }

func (e *fatalError) Unwrap() error { return e.error }

// New checks the configuration. Nothing is connected before Run.
func New(cfg Config) (*Processor, error) {
	if cfg.Projection == "" || cfg.Sink == nil || cfg.Decoder == nil || cfg.Build == "" {
		return nil, errors.New("a processor needs a projection, a sink, a decoder and the name of its build")
	}
	orDefault(&cfg.SessionTimeout, DefaultSessionTimeout)
	orDefault(&cfg.BatchRecords, DefaultBatchRecords)
	orDefault(&cfg.BatchBytes, DefaultBatchBytes)
	orDefault(&cfg.MaxUnpackedBytes, maxDecompressedBytes)
	orDefault(&cfg.Workers, DefaultWorkers)
	orDefault(&cfg.FetchBytes, DefaultFetchBytes)
	if cfg.Encoder == nil {
		cfg.Encoder = schemas.NewEncoder()
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Telemetry == nil {
		var err error
		if cfg.Telemetry, err = NewTelemetry(nil, nil); err != nil {
			return nil, err
		}
	}
	return &Processor{
		cfg: cfg, topic: cfg.Topics.Events(), held: map[int32]*assignment{},
		log: cfg.Logger.With("projection", cfg.Projection, "topic", cfg.Topics.Events()),
	}, nil
}

func orDefault[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}

// Run projects until ctx ends, then leaves the group and returns nil; or until something that a person must see, and returns it.
func (p *Processor) Run(ctx context.Context) error {
	run, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	p.run, p.stop = run, stop
	var err error
	if p.unpack, err = newUnpacker(p.cfg.MaxUnpackedBytes); err != nil {
		return err
	}
	client, err := kgo.NewClient(slices.Concat(p.cfg.Kafka, p.options())...)
	if err != nil {
		return fmt.Errorf("configuring the Kafka client: %w", err)
	}
	p.client = client
	if p.scan, err = eventlog.Open(p.cfg.Kafka, p.topic); err != nil {
		client.Close()
		return err
	}
	defer p.scan.Close()
	if _, err := p.describeLog(run); err != nil { // what is wrong from the start is said at the start
		client.Close()
		return err
	}
	client.AddConsumeTopics(p.topic) // only now: a client that has topics joins its group while it is made
	err = p.loop(run)
	if ctx.Err() == nil && run.Err() != nil { // not told to stop: something below ended it
		err = context.Cause(run)
	}
	stop(nil)
	p.beside.Wait()
	p.leave()
	return err
}

func (p *Processor) options() []kgo.Opt {
	opts := []kgo.Opt{
		kgo.ConsumerGroup(p.cfg.Topics.Group(p.cfg.Projection)),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.KeepControlRecords(), // else the lag of a log with transactions never becomes 0
		// The start comes from the sink; a position outside the log is an error, never a jump.
		kgo.ConsumeStartOffset(kgo.NoResetOffset()),
		kgo.ConsumeResetOffset(kgo.NoResetOffset()),
		kgo.AdjustFetchOffsetsFn(p.takeOver),
		kgo.BlockRebalanceOnPoll(), // until it is settled whose the polled records are
		kgo.OnPartitionsAssigned(p.assignedNothing),
		kgo.OnPartitionsRevoked(p.giveUp),
		kgo.OnPartitionsLost(p.giveUp),
		kgo.WithDecompressor(p.unpack),
		kgo.RecordPartitioner(kgo.ManualPartitioner()), // what is erased again stays where it was
		kgo.AutoCommitMarks(),                          // what is stored, for the ordinary lag tools only
		kgo.AutoCommitInterval(time.Second),
		kgo.SessionTimeout(p.cfg.SessionTimeout),
		kgo.RebalanceTimeout(2 * p.cfg.SessionTimeout),
		kgo.HeartbeatInterval(p.cfg.SessionTimeout / 4),
	}
	opts = append(opts, Fetching(p.cfg.FetchBytes)...)
	if p.cfg.InstanceID != "" {
		opts = append(opts, kgo.InstanceID(p.cfg.InstanceID))
	}
	if p.cfg.ServerSideGroup {
		opts = append(opts, kgo.Balancers(kgo.StickyBalancer()), kgo.ServerSideBalancer())
	}
	return opts
}

// Fetching is how the log is read: it bounds the memory, and it is apart so that the load test's floor reads no other way.
func Fetching(fetchBytes int32) []kgo.Opt {
	return []kgo.Opt{
		kgo.FetchMaxBytes(fetchBytes),
		kgo.FetchMaxPartitionBytes(fetchPartitionBytes),
		kgo.MaxConcurrentFetches(1),
		kgo.MaxDecompressBatchBytes(maxDecompressedBytes),
		kgo.FetchMaxWait(500 * time.Millisecond),
	}
}

func (p *Processor) loop(ctx context.Context) error {
	for {
		fetches := p.client.PollFetches(ctx)
		work := p.dealOut(fetches)
		p.client.AllowRebalance()
		if ctx.Err() != nil {
			return nil
		}
		p.unpack.begin()
		if err := p.fetchErrors(fetches); err != nil {
			return err
		}
		if err := p.projectAll(work); err != nil {
			return err
		}
	}
}

// fetched are records of a partition, and the assignment under which they were polled. A later one may stand before them: handed to it, they
// would move its position past what it has not seen.
type fetched struct {
	*assignment
	records []*kgo.Record
	end     int64
}

// dealOut says whose the polled records are, while no rebalance can change it.
func (p *Processor) dealOut(fetches kgo.Fetches) []fetched {
	var work []fetched
	fetches.EachPartition(func(f kgo.FetchTopicPartition) {
		if a := p.assigned(f.Partition); len(f.Records) > 0 && a != nil && !a.lost.Load() {
			work = append(work, fetched{a, f.Records, f.HighWatermark})
		}
	})
	return work
}

// projectAll works on the fetched partitions side by side and returns when all are stored, or wait for what does not answer.
func (p *Processor) projectAll(work []fetched) error {
	var g errgroup.Group
	g.SetLimit(p.cfg.Workers)
	for _, f := range work {
		g.Go(func() error {
			err := f.project(f.records, f.end, false)
			if errors.As(err, new(*notNowError)) {
				p.wait(f)
				return nil
			}
			return p.outcome(f.assignment, err)
		})
	}
	return g.Wait()
}

// wait goes on with a partition apart from the others, whose store or registry may be there: it fetches no more until what was fetched is
// stored.
func (p *Processor) wait(f fetched) {
	if !p.pause(f.assignment, true) {
		return // another assignment begins where the store stands
	}
	p.beside.Go(func() {
		err := p.outcome(f.assignment, f.project(f.records, f.end, true))
		p.pause(f.assignment, false)
		if err != nil {
			p.stop(err)
		}
	})
}

// pause stops or resumes the fetching of a partition, if the assignment is still the one that holds it: whether it is paused is the business
// of the current one alone.
func (p *Processor) pause(a *assignment, pause bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.held[a.id] != a {
		return false
	}
	if fetching := map[string][]int32{p.topic: {a.id}}; pause {
		p.client.PauseFetchPartitions(fetching)
	} else {
		p.client.ResumeFetchPartitions(fetching)
	}
	return true
}

// outcome sorts the end of a partition's work: an ended assignment is ordinary, a fence ends the assignment, the rest is a person's.
func (p *Processor) outcome(a *assignment, err error) error {
	switch {
	case err == nil, a.ctx.Err() != nil:
		return nil
	case errors.Is(err, sinks.ErrFenced):
		p.fenced(a)
		return nil
	case errors.As(err, new(*BadBuildError)):
		p.stopPartition(a.id, err)
		return nil
	}
	return err
}

// sameLog looks, when the brokers no longer know the topic by its id, whether it was deleted or made again. That may also be a broker that has
// just started, and passes.
func (p *Processor) sameLog(partition int32, reason error) error {
	ctx, cancel := context.WithTimeout(p.run, p.cfg.SessionTimeout)
	defer cancel()
	log, err := p.describeLog(ctx)
	if errors.As(err, new(*fatalError)) {
		return err
	}
	if err == nil {
		if err := p.canGoOn(ctx, partition, log); errors.As(err, new(*fatalError)) {
			return err
		}
	}
	p.trouble(partition, reason)
	return nil
}

// fetchErrors sorts what a poll reports: what passes by itself is said and waited out, what does not ends the processor.
func (p *Processor) fetchErrors(fetches kgo.Fetches) error {
	for _, f := range fetches.Errors() {
		var loss *kgo.ErrDataLoss
		var tooLarge *kgo.ErrDecompressTooLarge
		switch err := f.Err; {
		case errors.Is(err, errUnpackedEnough): // it comes again
		case errors.As(err, &tooLarge):
			p.stopPartition(f.Partition, fmt.Errorf("topic %s partition %d: the batch at offset %d unpacks to more than %d bytes: the partition stops before it; where it may be that large, raise --max-unpacked-bytes",
				p.topic, f.Partition, tooLarge.Offset, p.cfg.MaxUnpackedBytes))
		case errors.Is(err, kerr.UnknownTopicID), errors.Is(err, kerr.InconsistentTopicID):
			if err := p.sameLog(f.Partition, err); err != nil {
				return err
			}
		case errors.As(err, &loss), errors.Is(err, kerr.OffsetOutOfRange):
			return &fatalError{fmt.Errorf("topic %s partition %d: the log is no longer the one that was projected; start again to see what differs: %w", p.topic, f.Partition, err)}
		case errors.Is(err, kerr.TopicAuthorizationFailed), errors.Is(err, kerr.ClusterAuthorizationFailed), errors.Is(err, kerr.SaslAuthenticationFailed):
			return &fatalError{fmt.Errorf("reading topic %s partition %d: %w", p.topic, f.Partition, err)}
		default: // the group's session, a broker that starts, stops or stumbles
			p.trouble(f.Partition, err)
		}
	}
	return nil
}

// Ready says why the processor cannot do its work now, or nil: it has its partitions, and store and brokers are there.
func (p *Processor) Ready() error { return p.health.ready() }

// trouble says once that something is away; what is said again later is that it is back.
func (p *Processor) trouble(partition int32, err error) {
	if p.run.Err() == nil && p.health.troubled(partition, err) {
		p.log.Warn("waiting: a broker, the registry or the store does not answer; nothing is lost, it goes on by itself", "partition", partition, "error", err)
	}
}

func (p *Processor) well(partition int32) {
	if p.health.well(partition) {
		p.log.Info("going on", "partition", partition)
	}
}

// leave commits what is stored, for the lag tools, and leaves the group, so that the others go on at once.
func (p *Processor) leave() {
	ctx, cancel := context.WithTimeout(context.Background(), p.cfg.SessionTimeout)
	defer cancel()
	if err := p.client.CommitMarkedOffsets(ctx); err != nil && !errors.Is(err, context.Canceled) {
		p.log.Warn("the group's offsets are behind; they are for lag tools only", "error", err)
	}
	p.client.CloseAllowingRebalance()
}

// backoff gives a wait that doubles from 50 ms to 5 s and is never quite the same; it says whether the wait ran out before ctx.
func (p *Processor) backoff() func(context.Context) bool {
	d := 50 * time.Millisecond
	return func(ctx context.Context) bool {
		timer := time.NewTimer(d/2 + rand.N(d))
		defer timer.Stop()
		d = min(2*d, 5*time.Second)
		select {
		case <-timer.C:
			return true
		case <-ctx.Done():
			return false
		}
	}
}
