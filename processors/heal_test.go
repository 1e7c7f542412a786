package processors_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/tooltape/tooltape/processors"
	"github.com/tooltape/tooltape/processors/topics/topicstest"
	"github.com/tooltape/tooltape/schemas"
	"github.com/tooltape/tooltape/schemas/event"
	"github.com/tooltape/tooltape/sinks"
)

// build is a processor of a named build.
func (s *stage) build(name string, sink sinks.Sink) *processors.Processor {
	s.Helper()
	p, err := processors.New(processors.Config{
		Projection: "history", Topics: s.topics, Sink: sink, Decoder: schemas.NewDecoder(nil), Build: name,
		Kafka: []kgo.Opt{kgo.SeedBrokers(topicstest.Brokers(s)...), kgo.MetadataMinAge(100 * time.Millisecond)}, SessionTimeout: 3 * time.Second,
	})
	if err != nil {
		s.Fatal(err)
	}
	return p
}

// running runs a processor while do goes on.
func (s *stage) running(p *processors.Processor, do func(ended <-chan error)) {
	s.Helper()
	ctx, cancel := context.WithCancel(s.Context())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	do(ended)
	cancel()
	if err := <-ended; err != nil {
		s.Fatal(err)
	}
}

// encoded is the value of an event as it was recorded.
func (s *stage) encoded(e event.Event) []byte {
	s.Helper()
	stored, err := schemas.StoredOf(e)
	if err != nil {
		s.Fatal(err)
	}
	value, err := schemas.NewEncoder().Encode(nil, stored)
	if err != nil {
		s.Fatal(err)
	}
	return value
}

// elsewhere records events of a session in another log, so that a test may bring them here in an order of its own.
func (s *stage) elsewhere(session string, n int) []event.Event {
	s.Helper()
	other := newStage(s.T)
	texts := make([]string, n)
	for i := range texts {
		texts[i] = fmt.Sprint("text ", i+1)
	}
	return other.say(session, texts...)
}

func (s *stage) bring(events ...event.Event) {
	s.Helper()
	for _, e := range events {
		s.put(e.SessionID, schemas.EventKey(e.SessionID, e.Seq, e.EventID), s.encoded(e))
	}
}

func (s *stage) unparkedAt(session string, seq int64) func() bool {
	return func() bool {
		at := s.sink.Session(session)
		return at.Parked == nil && at.Watermark.Seq == seq
	}
}

func TestAHoleHealsWhenTheMissingEventComes(t *testing.T) {
	orders := map[string][]int{
		"the missing one last":          {1, 3, 4, 2},
		"from the end to the beginning": {5, 4, 3, 2, 1},
		"two holes, filled from above":  {1, 3, 5, 4, 2},
		"two holes, filled from below":  {1, 3, 5, 2, 4},
		"sent twice while it waits":     {1, 3, 3, 4, 4, 2, 2, 3},
		"backwards":                     {3, 2, 1},
	}
	for name, order := range orders {
		t.Run(name, func(t *testing.T) {
			s := newStage(t)
			last := 0
			for _, seq := range order {
				last = max(last, seq)
			}
			events := s.elsewhere("a", last)
			s.running(s.build("one", s.sink), func(ended <-chan error) {
				for _, seq := range order {
					s.bring(events[seq-1])
				}
				s.until(s.unparkedAt("a", int64(last)), ended)
			})
			if rows := s.sink.Rows("a"); len(rows) != last {
				t.Errorf("%d rows, want %d", len(rows), last)
			}
		})
	}
}

func TestABuildThatKnowsMoreHealsWhatOneParkedThatKnewLess(t *testing.T) {
	s := newStage(t)
	s.say("a", "one", "new thing", "three")
	s.say("b", "fine")
	s.running(s.build("old", refusing{s.sink, "new thing"}), func(ended <-chan error) {
		s.until(both(s.isParked("a"), s.reached("b", 1)), ended)
	})
	s.say("a", "four")
	s.running(s.build("old", refusing{s.sink, "new thing"}), func(ended <-chan error) {
		s.say("b", "two")
		s.until(s.reached("b", 2), ended)
	})
	if p := s.sink.Session("a").Parked; p == nil || len(p.Builds) != 1 {
		t.Fatalf("%+v: the build that has tried tries again only when it is told to", p)
	}
	s.running(s.build("new", s.sink), func(ended <-chan error) { s.until(s.unparkedAt("a", 4), ended) })
	if rows := s.sink.Rows("a"); len(rows) != 4 {
		t.Errorf("%d rows, want 4", len(rows))
	}
}

func TestABuildThatFailsTooIsWrittenDownAndTheSessionStays(t *testing.T) {
	s := newStage(t)
	s.say("a", "one", "bad", "three", "four")
	s.running(s.build("first", refusing{s.sink, "bad"}), func(ended <-chan error) {
		s.until(func() bool { p := s.sink.Session("a").Parked; return p != nil && p.Held == 2 }, ended)
	})
	before := *s.sink.Session("a").Parked
	s.running(s.build("second", refusing{s.sink, "bad"}), func(ended <-chan error) {
		s.until(func() bool { return len(s.sink.Session("a").Parked.Builds) == 2 }, ended)
	})
	after := *s.sink.Session("a").Parked
	if after.Held != 2 || after.Due || after.Code != event.StoreRefused || after.Since != before.Since || after.FromOffset != before.FromOffset {
		t.Errorf("after the second build's try the row says %+v, before %+v", after, before)
	}
	if got := s.sink.Session("a").Watermark.Seq; got != 1 {
		t.Errorf("the watermark went to %d, past what could not be projected", got)
	}
}

func TestManySessionsHealBesideTheLiveFlow(t *testing.T) {
	s := newStage(t)
	const sessions = 300
	for i := range sessions {
		s.say(fmt.Sprint("parked-", i), "one", "new thing", "three")
		s.say(fmt.Sprint("fine-", i), "one", "two", "three", "four", "five", "six", "seven", "eight")
	}
	s.running(s.build("old", refusing{s.sink, "new thing"}), func(ended <-chan error) {
		s.until(func() bool { return len(s.sink.Parked()) == sessions }, ended)
	})
	s.running(s.build("new", s.sink), func(ended <-chan error) {
		for i := range sessions {
			s.say(fmt.Sprint("parked-", i), "four")
			s.say(fmt.Sprint("live-", i), "one")
		}
		s.until(func() bool {
			for i := range sessions {
				if !s.unparkedAt(fmt.Sprint("parked-", i), 4)() || !s.reached(fmt.Sprint("live-", i), 1)() {
					return false
				}
			}
			return true
		}, ended)
	})
	for i := range sessions {
		if n := len(s.sink.Rows(fmt.Sprint("parked-", i))); n != 4 {
			t.Fatalf("session %d has %d rows, want 4", i, n)
		}
	}
}

func TestABuildThatWouldParkTheWorldStops(t *testing.T) {
	s := newStage(t)
	s.say("fine", "fine")
	p := s.build("bad", refusing{s.sink, "unknown"})
	// Sixty sessions of one partition begin with a version that this build does not know.
	events := 0
	for i := 0; events < 60; i++ {
		id := fmt.Sprint("s", i)
		if schemas.Partition(id, partitions) != 0 {
			continue
		}
		events++
		s.put(id, schemas.EventKey(id, 1, "018f0000-0000-7000-8000-000000000001"), []byte{7})
	}
	s.running(p, func(ended <-chan error) {

		s.until(func() bool { var bad *processors.BadBuildError; return errors.As(p.Ready(), &bad) }, ended)
	})
	if n := len(s.sink.Parked()); n != 0 {
		t.Errorf("%d sessions were parked all the same", n)
	}
}
