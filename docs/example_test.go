package docs_test

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/tooltape/tooltape/processors/projection"
	"github.com/tooltape/tooltape/producer"
	"github.com/tooltape/tooltape/schemas"
	"github.com/tooltape/tooltape/schemas/event"
	"github.com/tooltape/tooltape/sinks/history"
	"github.com/tooltape/tooltape/sinks/postgres"
)

// The Go code of README.md. TestCode holds the page to this file, and TestDocuments runs it.

func remember(ctx context.Context, brokers []string, session string) ([]event.Event, error) {
	w, err := producer.New(ctx, producer.Config{Kafka: []kgo.Opt{kgo.SeedBrokers(brokers...)}, Encoder: schemas.NewEncoder()})
	if err != nil {
		return nil, err
	}
	defer w.Close()
	// What a draft leaves out, the writer fills: ids, seq, payload version, partition. Seq 1 says that the session is new.
	return w.Append(ctx, session,
		event.Event{Envelope: event.Envelope{Seq: 1, ActorType: "application"}, Payload: event.SessionCreated{}},
		event.Event{Envelope: event.Envelope{ActorType: "principal"}, Payload: event.UserMessageCreated{
			Content: []event.Part{event.Text{Text: "How many files are in a.tgz?"}}, Trust: event.User,
		}},
	)
}

func fromMemory(events []event.Event) ([]byte, error) {
	var held projection.History
	for _, e := range events {
		if err := held.Append(e); err != nil {
			return nil, err
		}
	}
	conversation, err := held.Conversation()
	if err != nil {
		return nil, err
	}
	return projection.RenderAnthropic(conversation)
}

func fromStore(ctx context.Context, databaseURL, session string, lastSeq int64) ([]byte, error) {
	pool, err := postgres.Connect(ctx, databaseURL)
	if err != nil {
		return nil, err
	}
	defer pool.Close()
	// AtLeast makes an agent read its own writes: it names the last one.
	conversation, err := history.NewReader(pool).Conversation(ctx, session, history.Options{AtLeast: lastSeq, Wait: 10 * time.Second})
	if err != nil {
		return nil, err
	}
	return projection.RenderAnthropic(conversation)
}

// example runs the code above: memory and store must show the same.
func (s *session) example(t *testing.T) {
	events, err := remember(t.Context(), []string{s.setting(t, "BROKERS")}, "from-go")
	if err != nil {
		t.Fatal(err)
	}
	held, err := fromMemory(events)
	if err != nil {
		t.Fatal(err)
	}
	stored, err := fromStore(t.Context(), s.setting(t, "DATABASE_URL"), "from-go", int64(len(events)))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(held, stored) {
		t.Errorf("memory gives %s, the store %s", held, stored)
	}
}
