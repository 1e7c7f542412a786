package processors_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/tooltape/tooltape/processors"
	"github.com/tooltape/tooltape/processors/projection"
	"github.com/tooltape/tooltape/processors/topics/topicstest"
	"github.com/tooltape/tooltape/producer"
	"github.com/tooltape/tooltape/schemas"
	"github.com/tooltape/tooltape/schemas/event"
	"github.com/tooltape/tooltape/sinks"
	"github.com/tooltape/tooltape/sinks/memory"
)

const partitions = 4

// stage is one test's topics, writer and store.
type stage struct {
	*testing.T
	topics schemas.Topics
	sink   *memory.Sink
	writer *producer.Writer
	client *kgo.Client // for what no writer would write
}

func newStage(t *testing.T) *stage {
	t.Helper()
	names := topicstest.New(t, partitions)
	kafka := []kgo.Opt{kgo.SeedBrokers(topicstest.Brokers(t)...)}
	w, err := producer.New(t.Context(), producer.Config{
		Kafka: kafka, Topics: names, Encoder: schemas.NewEncoder(),
		Find: func(context.Context, []string) (map[string]producer.Tail, error) { return nil, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	client, err := kgo.NewClient(append(kafka, kgo.RecordPartitioner(kgo.ManualPartitioner()))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return &stage{T: t, topics: names, sink: memory.New(), writer: w, client: client}
}

// say appends user messages to a session.
func (s *stage) say(session string, texts ...string) []event.Event {
	s.Helper()
	var drafts []event.Event
	for _, text := range texts {
		drafts = append(drafts, event.Event{
			Envelope: event.Envelope{ActorType: "application"},
			Payload:  event.UserMessageCreated{Content: []event.Part{event.Text{Text: text}}, Trust: event.User},
		})
	}
	recorded, err := s.writer.Append(s.Context(), session, drafts...)
	if err != nil {
		s.Fatal(err)
	}
	return recorded
}

// put writes a record as it is, on the session's partition.
func (s *stage) put(session, key string, value []byte) {
	s.Helper()
	r := &kgo.Record{Topic: s.topics.Events(), Partition: schemas.Partition(session, partitions), Key: []byte(key), Value: value}
	if err := s.client.ProduceSync(s.Context(), r).FirstErr(); err != nil {
		s.Fatal(err)
	}
}

func (s *stage) processor(sink sinks.Sink) *processors.Processor {
	s.Helper()
	p, err := processors.New(processors.Config{
		Projection: "history", Topics: s.topics, Sink: sink, Decoder: schemas.NewDecoder(nil), Build: "test",
		Kafka: []kgo.Opt{kgo.SeedBrokers(topicstest.Brokers(s)...), kgo.MetadataMinAge(100 * time.Millisecond)}, SessionTimeout: 3 * time.Second,
	})
	if err != nil {
		s.Fatal(err)
	}
	return p
}

// project runs a processor until done, then stops it.
func (s *stage) project(sink sinks.Sink, done func() bool) {
	s.Helper()
	ctx, cancel := context.WithCancel(s.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.processor(sink).Run(ctx) }()
	s.until(done, ended)
	cancel()
	if err := <-ended; err != nil {
		s.Fatal(err)
	}
}

// until waits for a condition; the processor must not end before.
func (s *stage) until(done func() bool, ended <-chan error) {
	s.Helper()
	deadline := time.After(time.Minute)
	for tick := time.NewTicker(5 * time.Millisecond); !done(); {
		select {
		case err := <-ended:
			s.Fatalf("the processor ended before what was waited for came: %v", err)
		case <-deadline:
			s.Fatalf("what was waited for did not come in a minute; watermarks %v, parked %v", s.sink.Watermarks(), s.sink.Parked())
		case <-tick.C:
		}
	}
}

// reached says that a session is projected up to seq.
func (s *stage) reached(session string, seq int64) func() bool {
	return func() bool { return s.sink.Session(session).Watermark.Seq >= seq }
}

func (s *stage) isParked(session string) func() bool {
	return func() bool { return s.sink.Session(session).Parked != nil }
}

func both(a, b func() bool) func() bool { return func() bool { return a() && b() } }

func TestEventsBecomeRowsInOrder(t *testing.T) {
	s := newStage(t)
	for i := range 20 {
		s.say(fmt.Sprintf("session-%d", i), "one", "two", "three")
	}
	s.project(s.sink, func() bool {
		for i := range 20 {
			if !s.reached(fmt.Sprintf("session-%d", i), 3)() {
				return false
			}
		}
		return true
	})
	for i := range 20 {
		rows := s.sink.Rows(fmt.Sprintf("session-%d", i))
		if len(rows) != 3 {
			t.Fatalf("session %d has %d rows, want 3", i, len(rows))
		}
		for n, want := range []string{"one", "two", "three"} {
			if got := string(projection.AppendJSON(nil, rows[n].Item)); !strings.Contains(got, `"text":"`+want+`"`) {
				t.Errorf("row %d is %s, want the text %q", n, got, want)
			}
		}
	}
}

func TestARestartGoesOnWhereTheSinkStands(t *testing.T) {
	s := newStage(t)
	s.say("a", "one")
	s.project(s.sink, s.reached("a", 1))
	s.say("a", "two")
	s.project(s.sink, s.reached("a", 2))
	if rows := s.sink.Rows("a"); len(rows) != 2 {
		t.Fatalf("%d rows after a restart, want 2", len(rows))
	}
}

func TestAnEventThatIsSentAgainChangesNothing(t *testing.T) {
	s := newStage(t)
	recorded := s.say("a", "one", "two")
	stored, err := schemas.StoredOf(recorded[0])
	if err != nil {
		t.Fatal(err)
	}
	value, err := schemas.NewEncoder().Encode(nil, stored)
	if err != nil {
		t.Fatal(err)
	}
	s.put("a", schemas.EventKey("a", 1, recorded[0].EventID), value)
	s.say("a", "three")
	s.project(s.sink, s.reached("a", 3))
	if rows := s.sink.Rows("a"); len(rows) != 3 || s.sink.Session("a").Parked != nil {
		t.Fatalf("%d rows, parked %v; want 3 rows and nothing parked", len(rows), s.sink.Session("a").Parked)
	}
}

// bad are records that no session can take, each for its code.
func bad(t *testing.T) map[string]struct {
	key   string
	value []byte
	code  event.Code
} {
	t.Helper()
	good := event.Event{
		Envelope: event.Envelope{
			EnvelopeVersion: 1, EventID: "018f0000-0000-7000-8000-000000000001", TenantID: "default", SessionID: "bad", Seq: 1,
			ActorType: "runtime", PartitionKey: "bad",
		},
		Payload: event.ToolCallDenied{ToolResult: event.ToolResult{
			CallID: "c1", Name: "send", ReasonCode: event.Some("user"),
			ResultItem: event.Recorded(event.ResultItem{CallID: "c1", Content: []event.Part{event.Text{Text: "no"}}, IsError: event.Some(true), Trust: event.Platform}),
		}},
	}
	encode := func(e event.Event) []byte {
		stored, err := schemas.StoredOf(e)
		if err != nil {
			t.Fatal(err)
		}
		value, err := schemas.NewEncoder().Encode(nil, stored)
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
	value, key := encode(good), schemas.EventKey("bad", 1, good.EventID)
	// The envelope's bytes are the same for every type and version; version 3 differs from 2 in one of them.
	versioned := encode(good)
	at := strings.Index(string(versioned), "tool.call.denied") + len("tool.call.denied")
	versioned[at] = 3 << 1
	binary.LittleEndian.PutUint64(versioned[2:], 0x1234)
	gap := good
	gap.Seq, gap.PrevEventID = 3, event.Some("018f0000-0000-7000-8000-000000000009")
	type c = struct {
		key   string
		value []byte
		code  event.Code
	}
	return map[string]c{
		"a wrong magic byte":                   {key, append([]byte{7}, value[1:]...), event.BadFrame},
		"a truncated value":                    {key, value[:len(value)-3], event.BadPayload},
		"bytes after the record":               {key, append(append([]byte{}, value...), 0), event.LeftOverBytes},
		"an unknown schema id":                 {key, append([]byte{0, 0, 0, 0, 9}, value[10:]...), event.UnknownSchema},
		"a payload version newer than known":   {key, versioned, event.NewerVersion},
		"a key that names another event":       {schemas.EventKey("bad", 1, "018f0000-0000-7000-8000-000000000002"), value, event.KeyMismatch},
		"an event beyond a hole":               {schemas.EventKey("bad", 3, good.EventID), encode(gap), event.Gap},
		"an array that claims 2 billion items": {key, append(append([]byte{}, value[:10]...), 0xfe, 0xff, 0xff, 0xff, 0x0f), event.BadEnvelope},
	}
}

func TestABadEventParksItsSessionAndItsNeighboursGoOn(t *testing.T) {
	for name := range bad(t) {
		t.Run(name, func(t *testing.T) {
			s := newStage(t)
			c := bad(t)[name]
			s.put("bad", c.key, c.value)
			neighbours := s.neighbours("bad")
			for _, n := range neighbours {
				s.say(n, "fine")
			}
			s.project(s.sink, func() bool {
				for _, n := range neighbours {
					if !s.reached(n, 1)() {
						return false
					}
				}
				return s.isParked("bad")()
			})
			p := s.sink.Parked()["bad"]
			if p.Code != c.code {
				t.Errorf("parked for %s (%s), want %s", p.Code, p.Message, c.code)
			}
			if p.Message == "" || p.Partition != schemas.Partition("bad", partitions) || len(p.Builds) != 1 {
				t.Errorf("the parked row does not say enough: %+v", p)
			}
		})
	}
}

// neighbours are two sessions on the same partition.
func (s *stage) neighbours(session string) []string {
	var found []string
	for i := 0; len(found) < 2; i++ {
		if id := fmt.Sprintf("n%d", i); schemas.Partition(id, partitions) == schemas.Partition(session, partitions) {
			found = append(found, id)
		}
	}
	return found
}

func TestWhatComesBehindAParkedEventIsHeldAndCounted(t *testing.T) {
	s := newStage(t)
	recorded := s.say("a", "one")
	s.put("a", schemas.EventKey("a", 2, "018f0000-0000-7000-8000-000000000002"), []byte{7})
	s.writer.Resume("a", producer.Tail{Seq: 2, EventID: "018f0000-0000-7000-8000-000000000002"})
	s.say("a", "three", "four")
	s.project(s.sink, func() bool { p := s.sink.Session("a").Parked; return p != nil && p.Held == 2 })
	got := s.sink.Session("a")
	if got.Watermark.Seq != 1 || got.Watermark.EventID != recorded[0].EventID {
		t.Errorf("the watermark is %+v, want it to stay before the bad event", got.Watermark)
	}
	if len(s.sink.Rows("a")) != 1 {
		t.Errorf("%d rows, want 1: nothing overtakes a parked event", len(s.sink.Rows("a")))
	}
}

func TestRecordsOfNoSessionAreSetAside(t *testing.T) {
	cases := map[string]struct {
		key   string
		value []byte
		code  event.Code
	}{
		"an unreadable key":                      {"no key of ours", []byte("x"), event.BadKey},
		"an empty value":                         {schemas.EventKey("a", 1, "018f0000-0000-7000-8000-000000000001"), []byte{}, event.EmptyValue},
		"a tombstone that no purge announced":    {schemas.EventKey("a", 1, "018f0000-0000-7000-8000-000000000001"), nil, event.UnannouncedRemoval},
		"a key that is not valid UTF-8 anywhere": {"\xff\xfe/1/x", []byte("x"), event.BadKey},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s := newStage(t)
			s.put("a", c.key, c.value)
			partition := schemas.Partition("a", partitions)
			s.say("a", "fine")
			s.project(s.sink, both(s.reached("a", 1), func() bool { return len(s.sink.SetAside(partition)) == 1 }))
			got := s.sink.SetAside(partition)[0]
			if got.Code != c.code || string(got.Key) != c.key || string(got.Value) != string(c.value) {
				t.Errorf("set aside %+v, want code %s with the raw bytes", got, c.code)
			}
		})
	}
}

func TestTwoEventsAtOnePlaceAreAConflict(t *testing.T) {
	s := newStage(t)
	first := s.say("a", "one", "two")
	rival := first[1]
	rival.EventID = "018f0000-0000-7000-8000-00000000000f"
	stored, err := schemas.StoredOf(rival)
	if err != nil {
		t.Fatal(err)
	}
	value, err := schemas.NewEncoder().Encode(nil, stored)
	if err != nil {
		t.Fatal(err)
	}
	s.put("a", schemas.EventKey("a", 2, rival.EventID), value)
	s.project(s.sink, s.isParked("a"))
	if p := s.sink.Parked()["a"]; p.Code != event.Conflict || !strings.Contains(p.Message, rival.EventID) || !strings.Contains(p.Message, first[1].EventID) {
		t.Errorf("parked %s: %s; want a conflict that names both events", p.Code, p.Message)
	}
}

// refusing is a store that never takes what contains a word.
type refusing struct {
	sinks.Sink
	word string
}

func (r refusing) Write(ctx context.Context, b sinks.Batch) (sinks.Position, error) {
	for _, e := range b.Events {
		for _, item := range e.Items {
			if strings.Contains(string(projection.AppendJSON(nil, item)), r.word) {
				return b.At, &sinks.RefusedError{Message: "invalid value"}
			}
		}
	}
	return r.Sink.Write(ctx, b)
}

func TestWhatTheStoreRefusesParksItsSessionAndCostsNoNeighbour(t *testing.T) {
	s := newStage(t)
	for i := range 50 {
		s.say(fmt.Sprintf("s%d", i), "fine", "fine")
	}
	s.say("s7", "unspeakable")
	s.say("s7", "after")
	for i := range 50 {
		s.say(fmt.Sprintf("t%d", i), "fine")
	}
	s.project(refusing{s.sink, "unspeakable"}, func() bool {
		for i := range 50 {
			if !s.reached(fmt.Sprintf("s%d", i), 2)() || !s.reached(fmt.Sprintf("t%d", i), 1)() {
				return false
			}
		}
		p := s.sink.Session("s7").Parked
		return p != nil && p.Held == 1
	})
	if parked := s.sink.Parked(); len(parked) != 1 || parked["s7"].Code != event.StoreRefused || parked["s7"].Seq != 3 {
		t.Errorf("parked %+v, want s7 at seq 3 for store_refused, and nothing else", parked)
	}
}

// flaky is a store that is away for a while, and whose answers get lost.
type flaky struct {
	sinks.Sink
	calls int
}

func (f *flaky) Write(ctx context.Context, b sinks.Batch) (sinks.Position, error) {
	f.calls++
	switch f.calls % 3 {
	case 1:
		return b.At, errors.New("connection refused")
	case 2: // it took, but nobody hears of it
		if _, err := f.Sink.Write(ctx, b); err != nil {
			return b.At, err
		}
		return b.At, errors.New("connection reset by peer")
	}
	return f.Sink.Write(ctx, b)
}

func TestAStoreThatIsAwayIsWaitedForAndNothingIsTwice(t *testing.T) {
	s := newStage(t)
	for i := range 10 {
		s.say("a", fmt.Sprint("text ", i))
	}
	s.project(&flaky{Sink: s.sink}, s.reached("a", 10))
	s.say("a", "eleven")
	s.project(&flaky{Sink: s.sink}, s.reached("a", 11))
	if rows := s.sink.Rows("a"); len(rows) != 11 {
		t.Errorf("%d rows, want 11", len(rows))
	}
}

func TestAHolderThatWasReplacedChangesNothing(t *testing.T) {
	s := newStage(t)
	s.say("a", "one")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- s.processor(s.sink).Run(ctx) }()
	s.until(s.reached("a", 1), ended)
	// Someone who believes to be the rightful holder takes the partition over.
	at := s.sink.Positions()[schemas.Partition("a", partitions)]
	taken, err := s.sink.Acquire(ctx, at.Partition, at.Topic)
	if err != nil {
		t.Fatal(err)
	}
	s.say("a", "two")
	other := s.other("a")
	s.say(other, "fine")
	s.until(s.reached(other, 1), ended)
	if got := s.sink.Session("a").Watermark.Seq; got != 1 {
		t.Errorf("the replaced holder went on to seq %d", got)
	}
	if now := s.sink.Positions()[at.Partition]; now.Epoch != taken.Epoch {
		t.Errorf("the replaced holder raised the epoch from %d to %d", taken.Epoch, now.Epoch)
	}
}

func TestAHolderThatTheGroupStillNamesDoesNotStandStillInSilence(t *testing.T) {
	s := newStage(t)
	s.say("a", "one")
	ended := make(chan error, 1)
	go func() { ended <- s.processor(s.sink).Run(t.Context()) }()
	s.until(s.reached("a", 1), ended)
	at := s.sink.Positions()[schemas.Partition("a", partitions)]
	if _, err := s.sink.Acquire(t.Context(), at.Partition, at.Topic); err != nil {
		t.Fatal(err)
	}
	s.say("a", "two")
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "not in this group") {
		t.Errorf("it ended with %v, want to hear of somebody else at the store", err)
	}
}

// other is a session on another partition.
func (s *stage) other(session string) string {
	for i := 0; ; i++ {
		if id := fmt.Sprintf("o%d", i); schemas.Partition(id, partitions) != schemas.Partition(session, partitions) {
			return id
		}
	}
}

func TestALogThatIsNotTheProjectedOneIsRefusedInWords(t *testing.T) {
	cases := map[string]struct {
		change func(*sinks.Position)
		says   string
	}{
		"a topic that was made again":                     {func(p *sinks.Position) { p.Topic.ID = "other" }, "deleted and made again"},
		"another number of partitions":                    {func(p *sinks.Position) { p.Topic.Partitions = 99 }, "99"},
		"a log that is shorter than the position":         {func(p *sinks.Position) { p.NextOffset = 1000 }, "shorter"},
		"a log that begins after the position, truncated": {func(p *sinks.Position) { p.NextOffset = -1 }, "deleted before they were projected"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s := newStage(t)
			s.say("a", "one")
			s.project(s.sink, s.reached("a", 1))
			at := s.sink.Positions()[0]
			err := s.processor(moved{s.sink, at.Topic, c.change}).Run(t.Context())
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("it ended with %v, want words about %q", err, c.says)
			}
			if now := s.sink.Positions()[0]; now.Epoch != at.Epoch {
				t.Errorf("a refusal took the partition from its holder: epoch %d became %d", at.Epoch, now.Epoch)
			}
		})
	}
}

// moved is a store whose positions are not what they were.
type moved struct {
	*memory.Sink
	topic  sinks.Topic
	change func(*sinks.Position)
}

func (m moved) Position(_ context.Context, partition int32) (sinks.Position, bool, error) {
	at := sinks.Position{Partition: partition, Topic: m.topic}
	m.change(&at)
	return at, true, nil
}

func TestATopicThatDeletesByAgeIsRefused(t *testing.T) {
	s := newStage(t)
	admin := topicstest.Admin(t)
	defer admin.Close()
	setPolicy(t, admin, s.topics.Events(), "compact,delete")
	if err := s.processor(s.sink).Run(t.Context()); err == nil || !strings.Contains(err.Error(), "cleanup.policy") {
		t.Errorf("it ended with %v, want words about the cleanup policy", err)
	}
}

func TestATopicThatIsNotThereIsRefused(t *testing.T) {
	s := newStage(t)
	s.topics.Prefix += "x"
	if err := s.processor(s.sink).Run(t.Context()); err == nil || !strings.Contains(err.Error(), "tooltape topics apply") {
		t.Errorf("it ended with %v, want to be told to make the topic", err)
	}
}

// stuck is a store that is away for one partition.
type stuck struct {
	sinks.Sink
	partition int32
	back      chan struct{}
}

func (s stuck) Write(ctx context.Context, b sinks.Batch) (sinks.Position, error) {
	if b.At.Partition == s.partition {
		select {
		case <-s.back:
		default:
			return b.At, errors.New("no answer")
		}
	}
	return s.Sink.Write(ctx, b)
}

func TestAPartitionThatWaitsHoldsNoOtherUp(t *testing.T) {
	s := newStage(t)
	sink := stuck{s.sink, schemas.Partition("a", partitions), make(chan struct{})}
	s.say("a", "one")
	other := s.other("a")
	p := s.processor(sink)
	s.running(p, func(ended <-chan error) {
		for i := range 20 {
			s.say(other, fmt.Sprint("text ", i))
			s.until(s.reached(other, int64(i+1)), ended)
		}
		s.until(func() bool { return p.Ready() != nil }, ended)
		s.say("a", "two")
		close(sink.back)
		s.until(s.reached("a", 2), ended)
		s.until(func() bool { return p.Ready() == nil }, ended)
	})
}

func TestABatchThatUnpacksToTooMuchStopsItsPartitionAndNoOther(t *testing.T) {
	s := newStage(t)
	huge := strings.Repeat("all the same ", 500_000)
	client, err := kgo.NewClient(kgo.SeedBrokers(topicstest.Brokers(t)...), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerBatchCompression(kgo.ZstdCompression()), kgo.ProducerLinger(time.Second), kgo.ProducerBatchMaxBytes(8<<20))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	var batch []*kgo.Record
	for _, e := range s.elsewhere("a", 1) {
		e.Payload = event.UserMessageCreated{Content: []event.Part{event.Text{Text: huge}}, Trust: event.User}
		batch = append(batch, &kgo.Record{Topic: s.topics.Events(), Partition: schemas.Partition("a", partitions),
			Key: []byte(schemas.EventKey("a", 1, e.EventID)), Value: s.encoded(e)})
	}
	if err := client.ProduceSync(t.Context(), batch...).FirstErr(); err != nil {
		t.Fatal(err)
	}
	other := s.other("a")
	s.say(other, "fine")
	p, err := processors.New(processors.Config{
		Projection: "history", Topics: s.topics, Sink: s.sink, Decoder: schemas.NewDecoder(nil), Build: "test", MaxUnpackedBytes: 1 << 20,
		Kafka: []kgo.Opt{kgo.SeedBrokers(topicstest.Brokers(s)...), kgo.MetadataMinAge(100 * time.Millisecond)}, SessionTimeout: 3 * time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	s.running(p, func(ended <-chan error) {
		s.until(s.reached(other, 1), ended)
		s.until(func() bool {
			err := p.Ready()
			return err != nil && strings.Contains(err.Error(), "--max-unpacked-bytes")
		}, ended)
		s.say(other, "still fine")
		s.until(s.reached(other, 2), ended)
	})
	s.project(s.sink, s.reached("a", 1)) // with the ordinary bound it passes
}

func TestATopicThatIsMadeAgainWhileItIsReadEndsTheProcessorWithWords(t *testing.T) {
	s := newStage(t)
	s.say("a", "one")
	ended := make(chan error, 1)
	go func() { ended <- s.processor(s.sink).Run(t.Context()) }()
	s.until(s.reached("a", 1), ended)
	admin := topicstest.Admin(t)
	defer admin.Close()
	if _, err := admin.DeleteTopics(t.Context(), s.topics.Events()); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		if err == nil || !strings.Contains(err.Error(), "tooltape topics apply") && !strings.Contains(err.Error(), "made again") {
			t.Errorf("it ended with %v, want words about the topic", err)
		}
	case <-time.After(time.Minute):
		t.Error("it went on waiting for a topic that is gone")
	}
}

func TestAnotherEventFarBelowTheWatermarkIsAConflictToo(t *testing.T) {
	s := newStage(t)
	first := s.say("a", "one", "two", "three", "four")
	s.project(s.sink, s.reached("a", 4))
	rival := first[1]
	rival.EventID = "018f0000-0000-7000-8000-00000000000f"
	s.bring(rival)
	s.project(s.sink, s.isParked("a"))
	if p := s.sink.Parked()["a"]; p.Code != event.Conflict || p.Seq != 2 || !strings.Contains(p.Message, first[1].EventID) {
		t.Errorf("parked %s at seq %d: %s; want a conflict at seq 2 that names both", p.Code, p.Seq, p.Message)
	}
	if got := s.sink.Session("a").Watermark.Seq; got != 4 {
		t.Errorf("the watermark is at %d, want 4: what was projected stays", got)
	}
}

func TestAPartitionThatWaitedIsReadAgainByWhoeverHoldsItNext(t *testing.T) {
	s := newStage(t)
	sink := stuck{s.sink, schemas.Partition("a", partitions), make(chan struct{})}
	s.say("a", "one")
	first := s.processor(sink)
	s.running(first, func(ended <-chan error) {
		s.until(func() bool { return first.Ready() != nil && s.sink.Positions()[sink.partition].Epoch > 0 }, ended)
		for range 3 { // the partition goes to and fro while it waits
			before := s.sink.Positions()
			s.running(s.processor(sink), func(<-chan error) {
				s.until(func() bool {
					for id, at := range s.sink.Positions() {
						if at.Epoch > before[id].Epoch {
							return true
						}
					}
					return false
				}, ended)
			})
			s.say("a", "more")
		}
		close(sink.back)
		s.until(s.reached("a", 4), ended)
	})
	if rows := s.sink.Rows("a"); len(rows) != 4 {
		t.Errorf("%d rows, want 4", len(rows))
	}
}
