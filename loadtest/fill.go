package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/tooltape/tooltape/schemas"
	"github.com/tooltape/tooltape/schemas/event"
)

// load is what a topic is filled with.
type load struct {
	size     int // of an encoded event, in bytes
	events   int
	sessions int
	open     int // sessions that go on at the same time, taking turns
}

// filler makes the events. The same seed makes the same texts.
type filler struct {
	load
	random   *rand.Rand
	ids      *rand.ChaCha8
	encoder  *schemas.Encoder
	overhead map[event.Type]int
	now      time.Time
}

// session is a session that goes on.
type session struct {
	id, run, last string
	seq, left     int
}

func newFiller(l load) *filler {
	return &filler{load: l, random: rand.New(rand.NewPCG(1, uint64(l.size))), ids: rand.NewChaCha8([32]byte{byte(l.size)}),
		encoder: schemas.NewEncoder(), overhead: map[event.Type]int{}, now: time.Now().UTC().Truncate(time.Microsecond)}
}

// fill writes the events as the writer would, but many at a time.
func fill(ctx context.Context, brokers []string, topic string, partitions int32, l load) error {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(brokers...),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerBatchCompression(kgo.ZstdCompression()),
		kgo.ProducerBatchMaxBytes(1<<20),
		kgo.ProducerLinger(10*time.Millisecond),
		kgo.MaxBufferedBytes(64<<20),
	)
	if err != nil {
		return err
	}
	defer client.Close()
	var failed atomic.Pointer[error]
	err = newFiller(l).each(func(e event.Event, value []byte) error {
		if err := failed.Load(); err != nil {
			return *err
		}
		client.Produce(ctx, &kgo.Record{
			Topic: topic, Partition: schemas.Partition(e.PartitionKey, partitions), Timestamp: e.OccurredAt.Value,
			Key: []byte(schemas.EventKey(e.SessionID, e.Seq, e.EventID)), Value: value,
		}, func(_ *kgo.Record, err error) {
			if err != nil {
				failed.CompareAndSwap(nil, &err)
			}
		})
		return nil
	})
	if err := errors.Join(err, client.Flush(ctx)); err != nil {
		return err
	}
	if err := failed.Load(); err != nil {
		return *err
	}
	return nil
}

// each yields the events in the order of the log: of the sessions that are open, one after the other has its next event.
func (f *filler) each(yield func(event.Event, []byte) error) error {
	var open []*session
	begun := 0
	for i := 0; begun < f.sessions || len(open) > 0; i++ {
		for len(open) < f.open && begun < f.sessions {
			open = append(open, f.begin(begun))
			begun++
		}
		at := i % len(open)
		e := f.next(open[at])
		value, err := f.encode(e)
		if err != nil {
			return err
		}
		if err := yield(e, value); err != nil {
			return err
		}
		if open[at].left == 0 {
			open[at] = open[len(open)-1]
			open = open[:len(open)-1]
		}
	}
	return nil
}

// begin is the i-th session. The events are spread evenly.
func (f *filler) begin(i int) *session {
	s := &session{id: f.id(), run: f.id(), left: f.events / f.sessions}
	if i < f.events%f.sessions {
		s.left++
	}
	return s
}

func (f *filler) id() string { return uuid.Must(uuid.NewV7FromReader(f.ids)).String() }

// next is a user's message, and then nothing but tool results: each makes one row.
func (f *filler) next(s *session) event.Event {
	s.seq++
	s.left--
	f.now = f.now.Add(time.Millisecond)
	e := event.Event{Envelope: event.Envelope{
		EnvelopeVersion: event.EnvelopeVersion, EventID: f.id(), TenantID: event.DefaultTenant, SessionID: s.id, RunID: event.Some(s.run),
		Seq: int64(s.seq), OccurredAt: event.Some(f.now), ActorType: "runtime", PartitionKey: s.id,
	}}
	if s.seq > 1 {
		e.PrevEventID = event.Some(s.last)
	}
	s.last = e.EventID
	if s.seq == 1 {
		e.Payload = event.UserMessageCreated{Trust: event.User}
	} else {
		e.Payload = event.ToolCallCompleted{ToolResult: event.ToolResult{
			CallID: fmt.Sprintf("call_%06d", s.seq), Name: "search_documents",
			ResultItem: event.Recorded(event.ResultItem{CallID: fmt.Sprintf("call_%06d", s.seq), Trust: event.ExternalUntrusted}),
		}}
	}
	e.Type = e.Payload.Type()
	if f.overhead[e.Type] == 0 {
		bare, _ := f.encodeWith(e, "")
		f.overhead[e.Type] = len(bare)
	}
	return e
}

// encode fills the event with text up to the size asked for, give or take the few bytes by which events of a type differ.
func (f *filler) encode(e event.Event) ([]byte, error) {
	return f.encodeWith(e, f.text(max(f.size-f.overhead[e.Type], 1)))
}

func (f *filler) encodeWith(e event.Event, text string) ([]byte, error) {
	content := []event.Part{event.Text{Text: text}}
	switch p := e.Payload.(type) {
	case event.UserMessageCreated:
		p.Content = content
		e.Payload = p
	case event.ToolCallCompleted:
		p.ResultItem.Item.Content = content
		e.Payload = p
	}
	stored, err := schemas.StoredOf(e)
	if err != nil {
		return nil, err
	}
	return f.encoder.Encode(nil, stored)
}

var words = strings.Fields(`the a of to and in that invoice customer order refund shipped delayed address search result document page
	table column row index query failed succeeded retry timeout warehouse Berlin Zürich São Paulo Kraków naïve café price total
	discount account balance transfer approved pending policy section clause appendix version release commit branch merge
	function returns error value string number list object field record partition offset session token budget limit — € ✓ 東京`)

// text is n bytes as a tool might have returned them: lines of JSON with words, numbers and ids, mostly ASCII and not all of it. It
// packs about as well as such results do.
func (f *filler) text(n int) string {
	b := make([]byte, 0, n+256)
	for len(b) <= n {
		b = fmt.Appendf(b, `{"id":%d,"ref":"%08x","score":%.4f,"text":"`, f.random.IntN(1e6), f.random.Uint32(), f.random.Float64())
		for range 4 + f.random.IntN(24) {
			b = append(append(b, words[f.random.IntN(len(words))]...), ' ')
		}
		b = append(b[:len(b)-1], "\"}\n"...)
	}
	for !utf8.RuneStart(b[n]) {
		n--
	}
	return string(b[:n])
}
