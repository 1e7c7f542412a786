// Package producer is the one writer: it numbers a session's events, stamps their payload version, refuses what may not be recorded,
// and waits for the broker's word.
package producer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.opentelemetry.io/otel/propagation"

	"github.com/tooltape/tooltape/schemas"
	"github.com/tooltape/tooltape/schemas/event"
)

// MaxRecordBytes bounds an encoded event. It leaves room below the topic's max.message.bytes of 8 MiB for key, headers and framing.
const MaxRecordBytes = 8<<20 - 64<<10

// answerWithin bounds how long an append waits for the broker's word where its context does not; Kafka's own clients have the same.
const answerWithin = 2 * time.Minute

// Config is what a writer needs.
type Config struct {
	// Kafka is how to reach the brokers: seeds, TLS, SASL, client id.
	Kafka   []kgo.Opt
	Topics  schemas.Topics
	Encoder *schemas.Encoder
	// Find looks up where sessions end that this writer was not told about; those not in its answer are new. Nil: such a session is
	// refused, unless its first draft states seq 1.
	Find func(ctx context.Context, sessions []string) (map[string]Tail, error)
}

// Tail is where a session ends: its last event as far as it is known.
type Tail struct {
	// Seq is 0 for a session that has no event yet.
	Seq     int64
	EventID string
	RunID   event.Opt[string]
	// PartitionKey is empty where it is not known; Partition then says where the session lies.
	PartitionKey string
	Partition    event.Opt[int32]
	// Recorded holds event ids by seq, where the log was read: what is appended again is then recognised, wherever it stands. The writer
	// adds what it appends. Nil: only the session's last event is recognised.
	Recorded map[int64]string
}

// Writer appends events. One writer at a time numbers a session: who, is for the caller to decide (a lease, one process), Kafka cannot
// enforce it. A Writer is safe for concurrent use.
type Writer struct {
	cfg        Config
	client     *kgo.Client
	partitions int32

	mu       sync.Mutex
	sessions map[string]*session
}

// session is the end of one session, as this writer knows it.
type session struct {
	mu    sync.Mutex
	known bool
	tail  Tail
	// pending are records whose outcome is unknown; until they are acknowledged nothing else is appended.
	pending []prepared
	// attempt, if there is one, is still on its way with what is pending.
	attempt *attempt
}

// attempt is records on their way to the broker. It goes on when its caller has lost patience: to take records back that the broker may
// have is to send them twice, and would fail those of other sessions that travel with them.
type attempt struct {
	done    chan struct{}
	results kgo.ProduceResults // once done is closed
}

// prepared is an event that was checked, numbered and encoded.
type prepared struct {
	event  event.Event
	record *kgo.Record
	again  bool // it is recorded already: nothing is sent
}

// New connects and reads how many partitions the topic has.
func New(ctx context.Context, cfg Config) (*Writer, error) {
	client, err := kgo.NewClient(append([]kgo.Opt{
		kgo.RecordPartitioner(kgo.ManualPartitioner()), // the rule lives in schemas.Partition
		kgo.ProducerBatchCompression(kgo.ZstdCompression(), kgo.NoCompression()),
		kgo.ProducerBatchMaxBytes(8 << 20),
		kgo.RequiredAcks(kgo.AllISRAcks()),
	}, cfg.Kafka...)...)
	if err != nil {
		return nil, fmt.Errorf("configuring the Kafka client: %w", err)
	}
	topics, err := kadm.NewClient(client).ListTopics(ctx, cfg.Topics.Events())
	if err == nil {
		err = topics[cfg.Topics.Events()].Err
	}
	if err != nil {
		client.Close()
		return nil, fmt.Errorf("describing topic %s (tooltape topics apply creates it): %w", cfg.Topics.Events(), err)
	}
	return &Writer{
		cfg: cfg, client: client, partitions: int32(len(topics[cfg.Topics.Events()].Partitions)), sessions: map[string]*session{},
	}, nil
}

// Close waits for nothing: what an Append has not been told of by now stays unknown.
func (w *Writer) Close() { w.client.Close() }

// Resume tells the writer where a session ends; the zero Tail is a new session. It replaces what the writer knew, but not a lock.
func (w *Writer) Resume(sessionID string, t Tail) {
	s := w.session(sessionID)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known, s.tail = true, t
}

// Append records drafts of one session in their order, all or none numbered, and returns them as recorded.
//
// A draft is an event of the current shape. The writer fills what is left zero: type, event id (a UUID v7), seq, prev_event_id, payload
// version, envelope version, tenant, partition key. What a draft states must be what the writer would give; an event that is
// recorded already is not recorded twice. Errors: *RefusedError (nothing was written), *UnknownOutcomeError (the session is locked),
// ErrLocked, ErrUnknownSession, or a failed look-up.
func (w *Writer) Append(ctx context.Context, sessionID string, drafts ...event.Event) ([]event.Event, error) {
	return w.append(ctx, sessionID, len(drafts), func(i int, fill fill) (candidate, error) {
		c := candidate{event: drafts[i]}
		var err error
		if c.again, err = fill(&c.event.Envelope); err != nil {
			return c, err
		}
		c.stored, err = schemas.StoredOf(c.event) // stamps type and payload version
		c.event.Envelope = c.stored.Envelope
		if err == nil && !c.again {
			err = event.CheckRecordable(c.event)
		}
		return c, err
	})
}

// AppendStored is Append for events that were read from JSON form: each must have its type's current payload version.
func (w *Writer) AppendStored(ctx context.Context, sessionID string, events ...schemas.Stored) ([]event.Event, error) {
	return w.append(ctx, sessionID, len(events), func(i int, fill fill) (candidate, error) {
		c, err := complete(events[i], fill)
		if err == nil && c.stored.PayloadVersion != schemas.Latest(c.stored.Type) {
			err = &event.Error{Code: event.BadEnvelope, Field: "payload_version", Message: fmt.Sprintf("is %d, the current one of %s is %d; a backfill keeps older events as they are",
				c.stored.PayloadVersion, c.stored.Type, schemas.Latest(c.stored.Type))}
		}
		if err == nil && !c.again {
			err = event.CheckRecordable(c.event)
		}
		return c, err
	})
}

// Backfill records events of one session as an older log held them: each in its stated, known payload version, checked against that
// version's schema, and not by what a writer refuses today. Otherwise it is Append.
func (w *Writer) Backfill(ctx context.Context, sessionID string, events ...schemas.Stored) ([]event.Event, error) {
	return w.append(ctx, sessionID, len(events), func(i int, fill fill) (candidate, error) {
		return complete(events[i], fill)
	})
}

// complete fills a stored event's envelope and checks the event as every reader will.
func complete(stored schemas.Stored, fill fill) (candidate, error) {
	again, err := fill(&stored.Envelope)
	if err != nil {
		return candidate{}, err
	}
	e, err := stored.Event()
	if again {
		err = nil
	}
	return candidate{stored, e, again}, err
}

// candidate is an event with its envelope completed. One that is recorded already (again) says all that it must by its id and its place;
// whether it could be recorded today is not asked.
type candidate struct {
	stored schemas.Stored
	event  event.Event
	again  bool
}

// prepare makes the i-th event ready for recording.
type prepare func(i int, fill fill) (candidate, error)

// fill completes an envelope for its place, and says whether its event is recorded already.
type fill func(*event.Envelope) (again bool, err error)

func (w *Writer) append(ctx context.Context, sessionID string, n int, prepare prepare) ([]event.Event, error) {
	if err := ctx.Err(); err != nil || n == 0 { // else nobody would know of a cancelled append that it was not sent
		return nil, err
	}
	s := w.session(sessionID)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pending != nil {
		return nil, fmt.Errorf("session %s: %w", sessionID, ErrLocked)
	}
	if err := w.find(ctx, sessionID, s); err != nil {
		return nil, err
	}
	batch, end, err := w.number(sessionID, s, n, prepare)
	if err != nil {
		return nil, err
	}
	return w.send(ctx, sessionID, s, batch, end)
}

// Retry waits for what a session is locked for, sends it again if it must, and unlocks the session once it is acknowledged. What was
// written and is sent again is harmless: it has the same key.
func (w *Writer) Retry(ctx context.Context, sessionID string) ([]event.Event, error) {
	s := w.session(sessionID)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pending == nil {
		return nil, nil
	}
	end := s.tail
	for _, p := range s.pending {
		if !p.again {
			end = end.after(p.event)
		}
	}
	return w.send(ctx, sessionID, s, s.pending, end)
}

func (w *Writer) session(id string) *session {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.sessions[id]
	if s == nil {
		s = &session{}
		w.sessions[id] = s
	}
	return s
}

// find makes the end of the session known, if there is a way to.
func (w *Writer) find(ctx context.Context, sessionID string, s *session) error {
	if s.known || w.cfg.Find == nil {
		return nil
	}
	tails, err := w.cfg.Find(ctx, []string{sessionID})
	if err != nil {
		return fmt.Errorf("looking up where session %s ends: %w", sessionID, err)
	}
	s.known, s.tail = true, tails[sessionID]
	return nil
}

// number checks, numbers and encodes the whole batch, or refuses it.
func (w *Writer) number(sessionID string, s *session, n int, prepare prepare) ([]prepared, Tail, error) {
	end := s.tail
	batch := make([]prepared, 0, n)
	for i := range n {
		p, err := w.prepareOne(sessionID, s.known || i > 0, end, batch, prepare)
		if err != nil {
			if errors.Is(err, ErrUnknownSession) {
				return nil, Tail{}, err
			}
			return nil, Tail{}, &RefusedError{SessionID: sessionID, Index: i, Err: err}
		}
		if !p.again {
			end = end.after(p.event)
		}
		batch = append(batch, p)
	}
	return batch, end, nil
}

// prepareOne prepares the event that comes after batch, and so after end.
func (w *Writer) prepareOne(sessionID string, known bool, end Tail, batch []prepared, prepare prepare) (prepared, error) {
	c, err := prepare(len(batch), func(e *event.Envelope) (bool, error) {
		if !known && e.Seq != 1 {
			return false, fmt.Errorf("session %s: %w", sessionID, ErrUnknownSession)
		}
		return place(e, sessionID, end, batch)
	})
	if err != nil {
		return prepared{}, err
	}
	e := c.event
	if c.again {
		return prepared{event: e, again: true}, nil
	}
	if err := w.checkPlace(e, end); err != nil {
		return prepared{}, err
	}
	value, err := w.cfg.Encoder.Encode(nil, c.stored)
	if err != nil {
		return prepared{}, err
	}
	if len(value) > MaxRecordBytes {
		return prepared{}, tooLarge(e, len(value))
	}
	return prepared{event: e, record: &kgo.Record{
		Topic: w.cfg.Topics.Events(), Partition: schemas.Partition(e.PartitionKey, w.partitions),
		Key: []byte(schemas.EventKey(e.SessionID, e.Seq, e.EventID)), Value: value,
	}}, nil
}

// place completes an envelope for the place after end, and says whether the event is recorded already, or stands in the batch before it.
// What the envelope states must be what it would be given.
func place(e *event.Envelope, sessionID string, end Tail, batch []prepared) (again bool, err error) {
	orDefault(&e.EnvelopeVersion, event.EnvelopeVersion)
	orDefault(&e.TenantID, event.DefaultTenant)
	orDefault(&e.SessionID, sessionID)
	if e.SessionID != sessionID {
		return false, &event.Error{Code: event.BadEnvelope, Field: "session_id", Message: "it is another session than the one appended to"}
	}
	if e.Seq != 0 && e.Seq <= end.Seq {
		before := standsAt(e.Seq-1, end, batch)
		orDefault(&e.PrevEventID, event.Opt[string]{Value: before, OK: before != ""})
		orDefault(&e.PartitionKey, end.PartitionKey)
		return true, recorded(e, end, batch)
	}
	orDefault(&e.Seq, end.Seq+1)
	if e.Seq != end.Seq+1 {
		return false, &event.Error{Code: event.Gap, Field: "seq", Message: fmt.Sprintf("it states %d, the session's next is %d", e.Seq, end.Seq+1)}
	}
	if e.EventID == "" {
		id, err := uuid.NewV7()
		if err != nil {
			return false, fmt.Errorf("making an event id: %w", err)
		}
		e.EventID = id.String()
	}
	prev := event.Opt[string]{Value: end.EventID, OK: end.EventID != ""}
	if e.PrevEventID.OK && e.PrevEventID != prev {
		return false, &event.Error{Code: event.Conflict, Field: "prev_event_id", Message: fmt.Sprintf("it states another event than the session's last, %s", prev.Or("none"))}
	}
	e.PrevEventID = prev
	orDefault(&e.PartitionKey, end.PartitionKey)
	orDefault(&e.PartitionKey, sessionID)
	return false, nil
}

// recorded is an error unless the event that stands at e's stated place is e itself.
func recorded(e *event.Envelope, end Tail, batch []prepared) error {
	switch there := standsAt(e.Seq, end, batch); there {
	case "":
		return &event.Error{Code: event.Conflict, Field: "seq", Message: fmt.Sprintf("it states %d, but the session has come to %d, and which event stands there is not known", e.Seq, end.Seq)}
	case e.EventID:
		return nil
	default:
		return &event.Error{Code: event.Conflict, Field: "seq", Message: fmt.Sprintf("it states %d, where event %s is recorded", e.Seq, there)}
	}
}

// standsAt is the event at a place; empty where it is not known.
func standsAt(seq int64, end Tail, batch []prepared) string {
	if seq == end.Seq {
		return end.EventID
	}
	for _, p := range batch {
		if p.event.Seq == seq {
			return p.event.EventID
		}
	}
	return end.Recorded[seq]
}

// checkPlace holds a session to one partition key, its own id or a record's key, and a run about a record to that record's.
func (w *Writer) checkPlace(e event.Event, end Tail) error {
	bad := func(format string, args ...any) error {
		return &event.Error{Code: event.BadEnvelope, Field: "partition_key", Message: fmt.Sprintf(format, args...)}
	}
	if _, _, _, err := schemas.ParseRecordKey(e.PartitionKey); err != nil && e.PartitionKey != e.SessionID {
		return bad("it is neither the session's id nor the key of a record, <tenant_id>/<batch>/<key>: %s", err)
	}
	if end.PartitionKey != "" && e.PartitionKey != end.PartitionKey {
		return bad("the session's first event fixed another one")
	}
	if at, p := end.Partition, schemas.Partition(e.PartitionKey, w.partitions); at.OK && at.Value != p {
		return bad("it belongs on partition %d, the session lies on %d: state the key of the session's first event", p, at.Value)
	}
	if run, ok := e.Payload.(event.RunStarted); ok && run.Record.OK {
		if e.PartitionKey != schemas.RecordKey(e.TenantID, run.Record.Value.Batch, run.Record.Value.Key) {
			return bad("a run about a record belongs to a session whose partition key is that record's key")
		}
	}
	return nil
}

// after is the tail once e is recorded.
func (t Tail) after(e event.Event) Tail {
	t.Seq, t.EventID, t.RunID, t.PartitionKey = e.Seq, e.EventID, e.RunID, e.PartitionKey
	return t
}

// send produces the batch, or goes on waiting where it is on its way already, until the broker's word about all of it has come.
func (w *Writer) send(ctx context.Context, sessionID string, s *session, batch []prepared, end Tail) ([]event.Event, error) {
	if s.attempt == nil {
		s.attempt = w.produce(ctx, batch)
	}
	results, err := s.attempt.wait(ctx)
	if err != nil {
		s.pending = batch
		return nil, &UnknownOutcomeError{SessionID: sessionID, Err: err}
	}
	s.attempt = nil
	err = results.FirstErr()
	switch {
	case err == nil:
		s.known, s.tail, s.pending = true, end, nil
		return written(batch, end), nil
	case s.pending == nil && !slices.ContainsFunc(results, mayBeWritten):
		return nil, fmt.Errorf("session %s: the broker refused the append, nothing was written: %w", sessionID, err)
	}
	s.pending = batch
	return nil, &UnknownOutcomeError{SessionID: sessionID, Err: err}
}

// produce sends what of the batch is not recorded yet.
func (w *Writer) produce(ctx context.Context, batch []prepared) *attempt {
	var records []*kgo.Record
	headers := traceHeaders(ctx)
	for _, p := range batch {
		if !p.again {
			r := *p.record // kgo writes into what it sends, and a retry may send again
			r.Headers = headers
			records = append(records, &r)
		}
	}
	a := &attempt{done: make(chan struct{})}
	go func() { // ends with the broker's word or with the client
		a.results = w.client.ProduceSync(context.WithoutCancel(ctx), records...)
		close(a.done)
	}()
	return a
}

// wait gives up when the context ends, or the broker has had its time. The attempt goes on.
func (a *attempt) wait(ctx context.Context) (kgo.ProduceResults, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, answerWithin, fmt.Errorf("the broker did not answer in %s", answerWithin))
	defer cancel()
	select {
	case <-a.done:
		return a.results, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// written are the events of a batch that is acknowledged; the tail remembers them, if it is to.
func written(batch []prepared, end Tail) []event.Event {
	events := make([]event.Event, 0, len(batch))
	for _, p := range batch {
		events = append(events, p.event)
		if end.Recorded != nil {
			end.Recorded[p.event.Seq] = p.event.EventID
		}
	}
	return events
}

// mayBeWritten is false only for what a broker says before it writes anything.
func mayBeWritten(r kgo.ProduceResult) bool {
	for _, e := range []error{kerr.MessageTooLarge, kerr.RecordListTooLarge, kerr.InvalidRecord, kerr.TopicAuthorizationFailed, kerr.ClusterAuthorizationFailed} {
		if errors.Is(r.Err, e) {
			return false
		}
	}
	return true
}

// traceHeaders carries the caller's trace, so that what is projected later can point back at it.
func traceHeaders(ctx context.Context) []kgo.RecordHeader {
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	headers := make([]kgo.RecordHeader, 0, len(carrier))
	for _, k := range carrier.Keys() {
		headers = append(headers, kgo.RecordHeader{Key: k, Value: []byte(carrier[k])})
	}
	return headers
}

func orDefault[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}
