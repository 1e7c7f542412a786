package processors

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/tooltape/tooltape/schemas"
	"github.com/tooltape/tooltape/schemas/event"
	"github.com/tooltape/tooltape/sinks"
)

// partition is this member's hold on one partition, from its assignment to its loss. One goroutine at a time works on it.
type partition struct {
	*Processor
	id       int32
	logStart int64
	ctx      context.Context // ends when the assignment does

	// mu is held while a batch is decided and written, by the live flow and by the second reader in turn: within this process
	// neither finds the position moved by the other.
	mu       lock
	at       sinks.Position
	sessions sessionCache
	// erased are the sessions that the live flow has taken back to their beginning since the second reader's scan began.
	erased map[string]bool

	// due wakes the second reader.
	due    chan struct{}
	labels labels
	end    int64 // the partition's end offset when these records were fetched

	mayWait bool // for a store or registry that does not answer
}

// lock is a mutex that is held while the store or a broker is waited for. It is a channel, as who waits for a channel is at rest to a
// simulation's clock, which stands still while anybody waits for a sync.Mutex.
type lock chan struct{}

func newLock() lock { return make(lock, 1) }

func (l lock) Lock()   { l <- struct{}{} }
func (l lock) Unlock() { <-l }

// project brings the records, which follow the position, into the sink. It returns only when they are stored, or with the reason
// why this partition cannot go on: the assignment ended, another holder took over, or a fault that a person must see.
//
// Where the store or the registry does not answer, it waits if it may; else it returns a *notNowError, and has stored what it could.
func (p *partition) project(records []*kgo.Record, end int64, mayWait bool) error {
	p.end, p.mayWait = end, mayWait
	for len(records) > 0 {
		n := p.stretch(records)
		ctx, done := p.cfg.Telemetry.begin(p.ctx, p.labels, records[:n])
		err := p.projectStretch(ctx, read(records[:n]))
		done(err)
		if err != nil {
			return err
		}
		records = records[n:]
	}
	return nil
}

// stretch is how many of the records make up one transaction.
func (p *partition) stretch(records []*kgo.Record) int {
	size := 0
	for i, r := range records[:min(len(records), p.cfg.BatchRecords)] {
		if size += len(r.Value); size > p.cfg.BatchBytes && i > 0 {
			return i
		}
	}
	return min(len(records), p.cfg.BatchRecords)
}

// read takes the records' keys apart. Their values are decoded only when they are needed.
func read(records []*kgo.Record) []record {
	out := make([]record, 0, len(records))
	for _, r := range records {
		if r.Attrs.IsControl() { // a transaction's marker: no record, but the position passes it
			out = append(out, record{offset: r.Offset, control: true})
			continue
		}
		place, err := schemas.ParseKey(r.Key)
		out = append(out, record{offset: r.Offset, time: r.Timestamp, key: r.Key, value: r.Value, place: place, placeErr: err})
	}
	return out
}

// projectStretch stores one transaction's worth. What the store refuses for what it holds is halved until one record is left,
// whose session is then parked: a row never costs its neighbours.
func (p *partition) projectStretch(ctx context.Context, records []record) error {
	refused := &sinks.RefusedError{}
	err := p.untilStored(ctx, records)
	switch {
	case !errors.As(err, &refused):
		return err
	case len(records) > 1:
		half := len(records) / 2
		if err := p.projectStretch(ctx, records[:half]); err != nil {
			return err
		}
		return p.projectStretch(ctx, records[half:])
	case records[0].fault != nil:
		return fmt.Errorf("%s partition %d offset %d: the store does not even take the report of a fault: %w", p.topic, p.id, records[0].offset, err)
	}
	records[0].fault = &event.Error{Code: event.StoreRefused, Message: refused.Message}
	return p.projectStretch(ctx, records)
}

// untilStored decides and writes until the store has it. The store or the registry being away is waited out; a position that
// moved is read again. Everything else is returned.
func (p *partition) untilStored(ctx context.Context, records []record) error {
	wait := p.backoff()
	for {
		err := p.decideAndWrite(ctx, records)
		switch {
		case err == nil, errors.Is(err, sinks.ErrFenced), errors.As(err, new(*sinks.RefusedError)), errors.As(err, new(*BadBuildError)), errors.As(err, new(*fatalError)):
			return err
		case errors.As(err, new(*sinks.UnusableError)):
			return &fatalError{fmt.Errorf("topic %s partition %d: %w", p.topic, p.id, err)}
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, sinks.ErrStale): // only what it says can be done: read again
		case !p.mayWait:
			return &notNowError{err}
		default:
			p.trouble(p.id, err)
			if !wait(ctx) {
				return context.Cause(ctx)
			}
		}
		if err := p.refresh(ctx); errors.Is(err, sinks.ErrFenced) {
			return err
		}
	}
}

// notNowError is trouble that passes, met by who may not wait for that.
type notNowError struct{ error }

func (e *notNowError) Unwrap() error { return e.error }

// refresh reads the position again: whether the last write took is open, and the position says.
func (p *partition) refresh(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	at, err := p.cfg.Sink.Refresh(ctx, p.at)
	if err == nil && at != p.at {
		p.at = at
		p.sessions.clear()
	}
	return err
}

func (p *partition) decideAndWrite(ctx context.Context, records []record) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	// Records below the position are stored: a write with an unknown outcome took, or Kafka gave us more than we asked for.
	first := slices.IndexFunc(records, func(r record) bool { return r.offset >= p.at.NextOffset })
	if first < 0 {
		return nil
	}
	records = records[first:]
	if err := p.load(ctx, records); err != nil {
		return err
	}
	ids, err := p.cfg.Sink.EventIDs(ctx, p.claimedAgain(records))
	if err != nil {
		return err
	}
	d := newDecision(p.at, p.sessions.get, p.cfg.Build, time.Now())
	d.ids = ids
	d.batch.Events = make([]sinks.Projected, 0, len(records)) // events are large: growing would copy them again and again
	for i := range records {
		if err := d.take(&records[i], func(r *record) error { return p.decode(ctx, r) }); err != nil {
			return err
		}
	}
	if err := badBuild(d, records); err != nil {
		return err
	}
	if err := p.erase(ctx, d.erasures); err != nil {
		return err
	}
	if err := p.write(ctx, d); err != nil {
		return err
	}
	p.report(ctx, &d.batch, records[len(records)-1].time)
	return nil
}

// erase writes over what came behind its marker, and waits for the broker's word: content that was purged must not outlive the position.
func (p *partition) erase(ctx context.Context, erasures []erasure) error {
	if len(erasures) == 0 {
		return nil
	}
	records := make([]*kgo.Record, 0, len(erasures))
	for _, e := range erasures {
		r := &kgo.Record{Topic: p.topic, Partition: p.id, Key: e.key}
		if e.event != nil {
			stored, err := schemas.StoredOf(*e.event)
			if err == nil {
				r.Value, err = p.cfg.Encoder.Encode(nil, stored)
			}
			if err != nil {
				return &fatalError{fmt.Errorf("topic %s partition %d: writing over purged content of session %s, seq %d: %w", p.topic, p.id, e.event.SessionID, e.event.Seq, err)}
			}
		}
		records = append(records, r)
	}
	written := make(chan error, 1)
	go func() { written <- p.client.ProduceSync(ctx, records...).FirstErr() }() // ends with the broker's word or with the client
	select {
	case err := <-written:
		if err != nil {
			return fmt.Errorf("writing over purged content: %w", err)
		}
	case <-ctx.Done(): // what is on its way is not given up by the client, and the broker may be away for long
		return context.Cause(ctx)
	}
	p.log.Warn("content came behind the marker of its purge and was erased again", "partition", p.id, "records", len(records))
	return nil
}

// claimedAgain are the places below their session's watermark of which there are records: events that were sent again, or others. They are
// few, as no record is read twice.
func (p *partition) claimedAgain(records []record) []sinks.Place {
	var places []sinks.Place
	for _, r := range records {
		if r.placeErr == nil && r.place.Marker == schemas.NoMarker && len(r.value) > 0 && r.place.Seq < p.sessions.get(r.place.SessionID).Watermark.Seq {
			places = append(places, sinks.Place{SessionID: r.place.SessionID, Seq: r.place.Seq})
		}
	}
	return places
}

// write stores a decision, and from then on it is what is so. The caller holds mu.
func (p *partition) write(ctx context.Context, d *decision) error {
	at, err := p.cfg.Sink.Write(ctx, d.finish())
	if err != nil {
		return err
	}
	p.at = at
	p.sessions.put(d.changed)
	for _, id := range d.batch.Erased {
		p.erased[id] = true
	}
	p.well(p.id)
	if slices.ContainsFunc(d.batch.Parked, func(s sinks.Parked) bool { return s.Due }) {
		p.wake()
	}
	return nil
}

// wake tells the second reader that there is work.
func (p *partition) wake() {
	select {
	case p.due <- struct{}{}:
	default: // it knows
	}
}

// report tells of what was stored: the group's offset for the lag tools, the metrics, and each newly parked session once.
func (p *partition) report(ctx context.Context, b *sinks.Batch, newest time.Time) {
	p.client.MarkCommitOffsets(map[string]map[int32]kgo.EpochOffset{p.topic: {p.id: {Epoch: -1, Offset: b.NextOffset}}})
	newly := map[event.Code]int64{}
	for _, s := range b.Parked {
		if s.FromOffset < b.At.NextOffset {
			continue // parked before
		}
		newly[s.Code]++
		p.log.Warn("session parked", "session_id", s.SessionID, "seq", s.Seq, "type", s.Type, "payload_version", s.PayloadVersion,
			"code", s.Code, "reason", s.Message, "partition", s.Partition, "offset", s.Offset)
	}
	for _, s := range b.SetAside {
		p.log.Warn("record set aside", "code", s.Code, "reason", s.Message, "partition", p.id, "offset", s.Offset)
	}
	p.cfg.Telemetry.stored(ctx, p.labels, b, newly, p.end, newest)
}

// load brings the sessions of these records into the cache.
func (p *partition) load(ctx context.Context, records []record) error {
	ids := make([]string, 0, len(records))
	for _, r := range records {
		if r.place.SessionID != "" {
			ids = append(ids, r.place.SessionID)
		}
	}
	return p.loadSessions(ctx, ids)
}

func (p *partition) loadSessions(ctx context.Context, ids []string) error {
	var missing []string
	for _, id := range ids {
		if _, ok := p.sessions.find(id); !ok {
			missing = append(missing, id)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	slices.Sort(missing)
	missing = slices.Compact(missing)
	found, err := p.cfg.Sink.Sessions(ctx, p.at, missing)
	if err != nil {
		return err
	}
	for _, id := range missing {
		p.sessions.set(id, found[id])
	}
	return nil
}

// decode reads the record's value. An error is the moment's (the registry is away); what is wrong with the record is its fault.
func (p *partition) decode(ctx context.Context, r *record) error {
	if r.decoded {
		return nil
	}
	e, err := p.cfg.Decoder.Decode(ctx, r.value)
	r.event = e
	if err != nil && !errors.As(err, &r.fault) {
		return err
	}
	r.decoded = true
	return nil
}
