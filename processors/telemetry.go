package processors

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
	"go.opentelemetry.io/otel/semconv/v1.41.0/messagingconv"
	"go.opentelemetry.io/otel/trace"
	tracenoop "go.opentelemetry.io/otel/trace/noop"

	"github.com/tooltape/tooltape/schemas/event"
	"github.com/tooltape/tooltape/sinks"
)

// maxLinks bounds how many events a batch's span points back to.
const maxLinks = 32

// Telemetry is what a processor tells of itself, by OpenTelemetry's messaging conventions and, under tooltape.*, its own words. No
// session id is ever an attribute.
type Telemetry struct {
	tracer    trace.Tracer
	consumed  messagingconv.ClientConsumedMessages
	processed messagingconv.ProcessDuration
	projected metric.Int64Counter
	parked    metric.Int64Counter
	setAside  metric.Int64Counter
	behind    metric.Int64Gauge
	delay     metric.Float64Gauge
}

// NewTelemetry makes the instruments. Nil providers record nothing.
func NewTelemetry(tracers trace.TracerProvider, meters metric.MeterProvider) (*Telemetry, error) {
	if tracers == nil {
		tracers = tracenoop.NewTracerProvider()
	}
	if meters == nil {
		meters = metricnoop.NewMeterProvider()
	}
	const scope = "github.com/tooltape/tooltape/processors"
	m := meters.Meter(scope)
	t := &Telemetry{tracer: tracers.Tracer(scope)}
	var errs [7]error
	t.consumed, errs[0] = messagingconv.NewClientConsumedMessages(m)
	t.processed, errs[1] = messagingconv.NewProcessDuration(m, metric.WithExplicitBucketBoundaries(
		0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)) // as the convention has them
	t.projected, errs[2] = m.Int64Counter("tooltape.events.projected", metric.WithUnit("{event}"),
		metric.WithDescription("Events that were projected and stored."))
	t.parked, errs[3] = m.Int64Counter("tooltape.sessions.parked.count", metric.WithUnit("{session}"),
		metric.WithDescription("How often a session was parked, by code."))
	t.setAside, errs[4] = m.Int64Counter("tooltape.records.set_aside", metric.WithUnit("{record}"),
		metric.WithDescription("Records that belong to no session, by code."))
	t.behind, errs[5] = m.Int64Gauge("tooltape.events.behind", metric.WithUnit("{event}"),
		metric.WithDescription("Offsets between a projection's position and the end of its partition."))
	t.delay, errs[6] = m.Float64Gauge("tooltape.watermark.delay", metric.WithUnit("s"),
		metric.WithDescription("Age of the newest event when it was stored."))
	for _, err := range errs {
		if err != nil {
			return nil, fmt.Errorf("making the processor's instruments: %w", err)
		}
	}
	return t, nil
}

// labels are the attribute sets of one partition, made once.
type labels struct {
	projection, topic, group, partition string
	process                             []attribute.KeyValue
	own                                 metric.MeasurementOption
}

func newLabels(projection, topic, group string, partition int32) labels {
	id := strconv.Itoa(int(partition))
	return labels{
		projection: projection, topic: topic, group: group, partition: id,
		process: []attribute.KeyValue{
			semconv.MessagingConsumerGroupName(group), semconv.MessagingDestinationName(topic), semconv.MessagingDestinationPartitionID(id),
		},
		own: metric.WithAttributeSet(attribute.NewSet(attribute.String("tooltape.projection", projection), attribute.String("tooltape.partition", id))),
	}
}

// begin opens the span of a batch: one for the batch, linked to the events that carry a trace, never one an event. The function
// that it returns ends the span.
func (t *Telemetry) begin(ctx context.Context, l labels, records []*kgo.Record) (context.Context, func(error)) {
	started := time.Now()
	ctx, span := t.tracer.Start(ctx, "process "+l.topic, trace.WithSpanKind(trace.SpanKindConsumer),
		trace.WithAttributes(append([]attribute.KeyValue{
			semconv.MessagingSystemKafka, semconv.MessagingOperationName("process"), semconv.MessagingOperationTypeProcess,
			semconv.MessagingBatchMessageCount(len(records)),
		}, l.process...)...))
	if span.IsRecording() {
		linkOrigins(span, records)
	}
	return ctx, func(err error) {
		if err != nil {
			span.SetStatus(codes.Error, err.Error())
		}
		span.End()
		// The metrics' own context must not end with the assignment.
		ctx := context.WithoutCancel(ctx)
		t.consumed.Add(ctx, int64(len(records)), "process", "kafka", l.process...)
		t.processed.Record(ctx, time.Since(started).Seconds(), "process", "kafka", l.process...)
	}
}

// linkOrigins points the span at the traces in which its events were appended.
func linkOrigins(span trace.Span, records []*kgo.Record) {
	links := 0
	for _, r := range records {
		if links == maxLinks {
			return
		}
		carrier := propagation.MapCarrier{}
		for _, h := range r.Headers {
			carrier[h.Key] = string(h.Value)
		}
		if len(carrier) == 0 {
			continue
		}
		origin := trace.SpanContextFromContext(propagation.TraceContext{}.Extract(context.Background(), carrier))
		if origin.IsValid() {
			span.AddLink(trace.Link{SpanContext: origin})
			links++
		}
	}
}

// stored counts what one transaction brought.
func (t *Telemetry) stored(ctx context.Context, l labels, b *sinks.Batch, newly map[event.Code]int64, end int64, newest time.Time) {
	t.projected.Add(ctx, int64(len(b.Events)), l.own)
	for code, n := range newly {
		t.parked.Add(ctx, n, l.own, metric.WithAttributes(attribute.String("tooltape.code", string(code))))
	}
	for _, s := range b.SetAside {
		t.setAside.Add(ctx, 1, l.own, metric.WithAttributes(attribute.String("tooltape.code", string(s.Code))))
	}
	t.behind.Record(ctx, max(0, end-b.NextOffset), l.own)
	if !newest.IsZero() {
		t.delay.Record(ctx, time.Since(newest).Seconds(), l.own)
	}
}

// health is whether the processor can do its work, for readiness and for saying trouble once.
type health struct {
	mu      sync.Mutex
	joined  bool
	trouble map[int32]error // by partition; of noPartition what is nobody's own
	stop    error           // what stopped a partition for good
}

// noPartition stands for the group and the brokers as a whole.
const noPartition = -1

// stopped remembers why a partition stopped: the processor is not ready from then on.
func (h *health) stopped(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stop = err
}

// troubled remembers what stands in a partition's way and says whether it is news.
func (h *health) troubled(partition int32, err error) (news bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	news = h.trouble[partition] == nil
	if h.trouble == nil {
		h.trouble = map[int32]error{}
	}
	h.trouble[partition] = err
	return news
}

// well forgets a partition's trouble, and that of the whole, and says whether there was any.
func (h *health) well(partition int32) (news bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.joined = true
	news = h.trouble[partition] != nil || h.trouble[noPartition] != nil
	delete(h.trouble, partition)
	delete(h.trouble, noPartition)
	return news
}

// lost forgets the trouble of a partition that is somebody else's now.
func (h *health) lost(partition int32) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.trouble, partition)
}

func (h *health) ready() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.stop != nil {
		return h.stop
	}
	for _, err := range h.trouble {
		return err
	}
	if !h.joined {
		return errNotJoined
	}
	return nil
}
