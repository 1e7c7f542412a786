package producer_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/tooltape/tooltape/processors/eventlog"
	"github.com/tooltape/tooltape/processors/topics/topicstest"
	"github.com/tooltape/tooltape/producer"
	"github.com/tooltape/tooltape/schemas"
	"github.com/tooltape/tooltape/schemas/event"
)

const partitions = 4

// stage is one test's topics and how to reach them.
type stage struct {
	*testing.T
	topics schemas.Topics
	kafka  []kgo.Opt
}

func newStage(t *testing.T) *stage {
	t.Helper()
	return &stage{t, topicstest.New(t, partitions), []kgo.Opt{kgo.SeedBrokers(topicstest.Brokers(t)...)}}
}

// allNew is a look-up in an empty log.
func allNew(context.Context, []string) (map[string]producer.Tail, error) { return nil, nil }

// writer makes a writer to which every session that it does not know is new.
func (s *stage) writer() *producer.Writer { return s.writerThatFinds(allNew) }

func (s *stage) writerThatFinds(find func(context.Context, []string) (map[string]producer.Tail, error)) *producer.Writer {
	s.Helper()
	w, err := producer.New(s.Context(), producer.Config{Kafka: s.kafka, Topics: s.topics, Encoder: schemas.NewEncoder(), Find: find})
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(w.Close)
	return w
}

// log is everything that is on the topic, each session's records in the order of their offsets.
func (s *stage) log() map[string][]*kgo.Record {
	s.Helper()
	log, err := eventlog.Open(s.kafka, s.topics.Events())
	if err != nil {
		s.Fatal(err)
	}
	defer log.Close()
	records := map[string][]*kgo.Record{}
	if err := log.ReadAll(s.Context(), func(r *kgo.Record) error {
		key, err := schemas.ParseKey(r.Key)
		records[key.SessionID] = append(records[key.SessionID], r)
		return err
	}); err != nil {
		s.Fatal(err)
	}
	return records
}

// stored is what is on the topic of one session, as it is stored.
func (s *stage) stored(session string) []schemas.Stored {
	s.Helper()
	var all []schemas.Stored
	for _, r := range s.log()[session] {
		stored, err := schemas.NewDecoder(nil).DecodeStored(s.Context(), r.Value)
		if err != nil {
			s.Fatal(err)
		}
		all = append(all, stored)
	}
	return all
}

// holds demands that the topic holds so many events of each session, and of no other.
func (s *stage) holds(want map[string]int) {
	s.Helper()
	got := map[string]int{}
	for session, records := range s.log() {
		got[session] = len(records)
	}
	if !maps.Equal(got, want) {
		s.Errorf("the topic holds %v events by session, want %v", got, want)
	}
}

// by is a draft of the payload by the runtime, in a run where the event must have one.
func by(p event.Payload) event.Event {
	e := event.Event{Envelope: event.Envelope{ActorType: "runtime"}, Payload: p}
	switch p.(type) {
	case event.RunStarted, event.RunCompleted:
		e.RunID = event.Some("run-1")
	}
	return e
}

func says(text string) event.Event {
	return by(event.UserMessageCreated{Content: []event.Part{event.Text{Text: text}}, Trust: event.User})
}

// result is what a call was answered with.
func result(isError event.Opt[bool]) event.ToolResult {
	return event.ToolResult{
		CallID: "c1", Name: "send", ReasonCode: event.Some("because"),
		ResultItem: event.Recorded(event.ResultItem{CallID: "c1", Content: []event.Part{event.Text{Text: "done"}}, IsError: isError, Trust: event.InternalTool}),
	}
}

func must[T any](v T, err error) func(t testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// refused demands a refusal of the draft at index for a field with a code.
func refused(t testing.TB, err error, index int, code event.Code, field string) {
	t.Helper()
	var refusal *producer.RefusedError
	var fault *event.Error
	if !errors.As(err, &refusal) || !errors.As(err, &fault) {
		t.Fatalf("the error is %v, want a refusal that names %s", err, field)
	}
	if got, want := fmt.Sprint(refusal.Index, fault.Code, fault.Field), fmt.Sprint(index, code, field); got != want {
		t.Errorf("refused is %s, want %s (%v)", got, want, err)
	}
}

func parse(t testing.TB, line string) schemas.Stored {
	t.Helper()
	return must(schemas.ParseJSON([]byte(line)))(t)
}
