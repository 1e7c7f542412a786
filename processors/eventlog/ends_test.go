package eventlog_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/tooltape/tooltape/processors/eventlog"
	"github.com/tooltape/tooltape/processors/topics/topicstest"
	"github.com/tooltape/tooltape/producer"
	"github.com/tooltape/tooltape/schemas"
	"github.com/tooltape/tooltape/schemas/event"
)

// id is the event id of the n-th event of a session.
func id(n int) string { return fmt.Sprintf("018f0000-0000-7000-8000-%012d", n) }

// newSessions is a topic with the sessions "a" and "b" of three events each.
func newSessions(t *testing.T) *stage {
	t.Helper()
	names := topicstest.New(t, 1)
	s := onStage(t, topicstest.Brokers(t), names.Events())
	w := must(producer.New(t.Context(), producer.Config{Kafka: s.kafka, Topics: names, Encoder: schemas.NewEncoder()}))(t)
	t.Cleanup(w.Close)
	for _, session := range []string{"a", "b"} {
		w.Resume(session, producer.Tail{})
		for n := 1; n <= 3; n++ {
			must(w.Append(t.Context(), session, event.Event{
				Envelope: event.Envelope{EventID: id(n), ActorType: "runtime", RunID: event.Some(fmt.Sprint("run-", n))},
				Payload:  event.UserMessageCreated{Content: []event.Part{event.Text{Text: "x"}}, Trust: event.User},
			}))(t)
		}
	}
	return s
}

// put writes a value that cannot be read, at a place of a session.
func (s *stage) putAt(session string, seq int64, eventID string) {
	s.Helper()
	r := &kgo.Record{Topic: s.topic, Key: []byte(schemas.EventKey(session, seq, eventID)), Value: []byte{7}}
	must(s.client.ProduceSync(s.Context(), r).First())(s)
}

func (s *stage) index(from int64) *eventlog.Index {
	s.Helper()
	return must(s.log.Index(s.Context(), schemas.NewDecoder(nil), map[int32]int64{0: from}))(s)
}

func TestTheEndOfASession(t *testing.T) {
	s := newSessions(t)
	for name, c := range map[string]struct {
		from     int64
		session  string
		known    eventlog.Known
		seq      int64
		recorded string
		last     string // the run of the last event, where that was read
	}{
		"is in the log":                                     {0, "a", eventlog.Known{}, 3, "123", "run-3"},
		"of another one, too":                               {0, "b", eventlog.Known{}, 3, "123", "run-3"},
		"is nothing for one that is nowhere":                {0, "c", eventlog.Known{}, 0, "", ""},
		"is what is known where the log has no more":        {6, "a", eventlog.Known{Seq: 3, EventID: id(3)}, 3, "", ""},
		"is beyond what is known":                           {1, "a", eventlog.Known{Seq: 1, EventID: id(1)}, 3, "23", "run-3"},
		"is found where known events are read once more":    {0, "a", eventlog.Known{Seq: 2, EventID: id(2)}, 3, "123", "run-3"},
		"is what is known where that is more than was read": {0, "a", eventlog.Known{Seq: 5, EventID: id(5)}, 5, "123", ""},
	} {
		t.Run(name, func(t *testing.T) {
			end := must(s.index(c.from).End(c.session, c.known))(t)
			recorded := ""
			for n := int64(1); n <= 5; n++ {
				if e, ok := end.Recorded[n]; ok && e == id(int(n)) {
					recorded += fmt.Sprint(n)
				}
			}
			wantID := ""
			if c.seq > 0 {
				wantID = id(int(c.seq))
			}
			got := fmt.Sprint(end.Seq, end.EventID, recorded, end.Last.Value.RunID.Value)
			if want := fmt.Sprint(c.seq, wantID, c.recorded, c.last); got != want {
				t.Errorf("the end is %s, want %s", got, want)
			}
		})
	}
}

func TestAValueThatCannotBeReadHasItsPlaceAllTheSame(t *testing.T) {
	s := newSessions(t)
	s.putAt("a", 4, id(4))
	end := must(s.index(0).End("a", eventlog.Known{}))(t)
	if end.Seq != 4 || end.EventID != id(4) || end.Last.OK {
		t.Errorf("the end is %+v, want seq 4 without an envelope", end)
	}
}

func TestWhatIsNoEventEndsNothing(t *testing.T) {
	s := newSessions(t)
	for _, r := range []*kgo.Record{
		{Key: []byte("no key of ours"), Value: []byte("x")},
		{Key: []byte(schemas.RunKey("a", "r")), Value: []byte("x")},
		{Key: []byte(schemas.EventKey("a", 4, id(4)))},
	} {
		r.Topic = s.topic
		must(s.client.ProduceSync(t.Context(), r).First())(t)
	}
	if end := must(s.index(0).End("a", eventlog.Known{}))(t); end.Seq != 3 {
		t.Errorf("the end is at %d, want 3", end.Seq)
	}
}

func TestAWithdrawnRivalNoLongerCounts(t *testing.T) {
	s := newSessions(t)
	s.putAt("a", 2, id(9))
	s.putAt("a", 3, id(8))
	for _, rival := range []int{9, 8} {
		r := &kgo.Record{Topic: s.topic, Key: []byte(schemas.WithdrawnKey("a", id(rival))), Value: []byte("x")}
		must(s.client.ProduceSync(t.Context(), r).First())(t)
	}
	if end := must(s.index(0).End("a", eventlog.Known{}))(t); end.Seq != 3 || end.EventID != id(3) || end.Recorded[2] != id(2) {
		t.Errorf("the end is %+v, want that of the events that were kept", end)
	}
}

func TestAPurgedSessionHasNoEnd(t *testing.T) {
	s := newSessions(t)
	r := &kgo.Record{Topic: s.topic, Key: []byte(schemas.ClosedKey("a")), Value: []byte("x")}
	must(s.client.ProduceSync(t.Context(), r).First())(t)
	if _, err := s.index(0).End("a", eventlog.Known{}); err == nil || !strings.Contains(err.Error(), "purged") {
		t.Errorf("the end of a purged session is no error that says so: %v", err)
	}
}

func TestASessionWithAHoleOrTwoEventsAtOnePlaceHasNoEnd(t *testing.T) {
	for name, c := range map[string]struct {
		seq   int64
		id    int
		known eventlog.Known
		from  int64
		want  string
	}{
		"a hole":                   {seq: 6, id: 6, want: "seq 6 is recorded, seq 4 is not"},
		"a rival":                  {seq: 2, id: 9, want: "both claim seq 2"},
		"a rival of what is known": {seq: 3, id: 9, known: eventlog.Known{Seq: 3, EventID: id(3)}, from: 6, want: "both claim seq 3"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSessions(t)
			s.putAt("a", c.seq, id(c.id))
			index := s.index(c.from)
			_, err := index.End("a", c.known)
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "session a") {
				t.Errorf("the error is %v, want one that says %q of session a", err, c.want)
			}
			must(index.End("b", eventlog.Known{}))(t) // its neighbour has one
		})
	}
}

func TestAnEventThatWasSentAgainIsNoRival(t *testing.T) {
	s := newSessions(t)
	s.putAt("a", 2, id(2))
	if end := must(s.index(0).End("a", eventlog.Known{}))(t); end.Seq != 3 {
		t.Errorf("the end is at %d, want 3", end.Seq)
	}
}

func TestAPartitionThatIsNotThereCannotBeIndexed(t *testing.T) {
	s := newSessions(t)
	if _, err := s.log.Index(t.Context(), schemas.NewDecoder(nil), map[int32]int64{3: 0}); err == nil || !strings.Contains(err.Error(), "no partition 3") {
		t.Errorf("the error is %v", err)
	}
}
