package producer_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tooltape/tooltape/processors/topics"
	"github.com/tooltape/tooltape/producer"
	"github.com/tooltape/tooltape/schemas"
	"github.com/tooltape/tooltape/schemas/event"
)

// newFaultyStage is a stage on a broker of its own, whose answers a test can take away.
func newFaultyStage(t *testing.T) (*stage, *kfake.Cluster) {
	t.Helper()
	cluster := must(kfake.NewCluster(kfake.NumBrokers(1), kfake.BrokerConfigs(map[string]string{"message.max.bytes": "8388608"})))(t)
	t.Cleanup(cluster.Close)
	s := &stage{t, schemas.Topics{}, []kgo.Opt{kgo.SeedBrokers(cluster.ListenAddrs()...)}}
	client := must(kgo.NewClient(s.kafka...))(t)
	defer client.Close()
	must(topics.Apply(t.Context(), kadm.NewClient(client), topics.Spec{Partitions: partitions, ReplicationFactor: 1}))(t)
	return s, cluster
}

// silence lets no good word about a produce request out until the function that it returns is called. With written, the broker writes all
// the same, and says that it cannot promise it; without, the connection ends before anything is written.
func silence(cluster *kfake.Cluster, written bool) (end func()) {
	if written {
		return cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.NotEnoughReplicasAfterAppend, Count: -1}).Remove
	}
	var over atomic.Bool
	cluster.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		if over.Load() {
			cluster.DropControl()
			return nil, nil, false
		}
		cluster.KeepControl()
		return nil, errors.New("the connection is cut"), true
	})
	return func() { over.Store(true) }
}

// appendUnheard appends with a context that ends before any word of the broker comes, and demands to be told that nobody knows.
func appendUnheard(t *testing.T, w *producer.Writer, session string, drafts ...event.Event) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	began := time.Now()
	_, err := w.Append(ctx, session, drafts...)
	var unknown *producer.UnknownOutcomeError
	if !errors.As(err, &unknown) || unknown.SessionID != session {
		t.Fatalf("the error is %v, want an unknown outcome of session %s", err, session)
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("the append took %s, and its context 300 ms", took)
	}
}

func TestAfterAnUnknownOutcomeTheSessionIsLockedUntilTheSameEventsAreAcknowledged(t *testing.T) {
	for name, written := range map[string]bool{"and they were written": true, "and they were not written": false} {
		t.Run(name, func(t *testing.T) {
			s, cluster := newFaultyStage(t)
			w := s.writer()
			must(w.Append(t.Context(), "a", says("one")))(t)
			end := silence(cluster, written)
			appendUnheard(t, w, "a", says("two"), says("three"))
			if _, err := w.Append(t.Context(), "a", says("four")); !errors.Is(err, producer.ErrLocked) {
				t.Errorf("the locked session's append gives %v, want ErrLocked", err)
			}
			end()
			must(w.Append(t.Context(), "b", says("one")))(t) // no lock of another session
			if _, err := w.Append(t.Context(), "a", says("four")); !errors.Is(err, producer.ErrLocked) {
				t.Errorf("that the broker is back unlocks nothing, but the append gives %v", err)
			}
			retried := must(w.Retry(t.Context(), "a"))(t)
			if len(retried) != 2 || retried[0].Seq != 2 || retried[1].Seq != 3 {
				t.Fatalf("the retry gives %+v, want the events 2 and 3", retried)
			}
			if again := must(w.Retry(t.Context(), "a"))(t); again != nil {
				t.Errorf("a retry of an unlocked session sends %v", again)
			}
			four := must(w.Append(t.Context(), "a", says("four")))(t)[0]
			if four.Seq != 4 || four.PrevEventID.Value != retried[1].EventID {
				t.Errorf("the next event has seq %d after %s, want 4 after %s", four.Seq, four.PrevEventID.Value, retried[1].EventID)
			}
			s.hasOneEventAtEachPlace("a", 4)
			s.holds(map[string]int{"a": 4, "b": 1}) // what is on its way is waited for, not sent again
		})
	}
}

// hasOneEventAtEachPlace demands that the log holds the seqs up to last, each under one key with one value, however often it was sent.
func (s *stage) hasOneEventAtEachPlace(session string, last int64) {
	s.Helper()
	ids, values := map[int64]string{}, map[string]string{}
	for _, r := range s.log()[session] {
		key := must(schemas.ParseKey(r.Key))(s)
		if id, ok := ids[key.Seq]; ok && id != key.EventID {
			s.Errorf("two events claim seq %d", key.Seq)
		}
		if value, ok := values[string(r.Key)]; ok && value != string(r.Value) {
			s.Errorf("the event at seq %d was sent with two values", key.Seq)
		}
		ids[key.Seq], values[string(r.Key)] = key.EventID, string(r.Value)
	}
	for seq := int64(1); seq <= last; seq++ {
		if ids[seq] == "" {
			s.Errorf("seq %d is not in the log", seq)
		}
	}
	if int64(len(ids)) != last {
		s.Errorf("the log holds %d places, want %d", len(ids), last)
	}
}

func TestARetryThatIsNotHeardEitherLeavesTheLock(t *testing.T) {
	s, cluster := newFaultyStage(t)
	w := s.writer()
	end := silence(cluster, true)
	appendUnheard(t, w, "a", says("one"))
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := w.Retry(ctx, "a"); !errors.As(err, new(*producer.UnknownOutcomeError)) {
		t.Errorf("the retry gives %v, want an unknown outcome", err)
	}
	end()
	must(w.Retry(t.Context(), "a"))(t)
	s.hasOneEventAtEachPlace("a", 1)
}

func TestAnErrorThatSaysNothingOfTheOutcomeLocks(t *testing.T) {
	s, cluster := newFaultyStage(t)
	w := s.writer()
	cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.UnknownServerError})
	if _, err := w.Append(t.Context(), "a", says("one")); !errors.As(err, new(*producer.UnknownOutcomeError)) {
		t.Fatalf("the error is %v, want an unknown outcome", err)
	}
	must(w.Retry(t.Context(), "a"))(t) // the first attempt has ended: it is sent again
	s.hasOneEventAtEachPlace("a", 1)
}

func TestResumeDoesNotUnlock(t *testing.T) {
	s, cluster := newFaultyStage(t)
	w := s.writer()
	end := silence(cluster, false)
	appendUnheard(t, w, "a", says("one"))
	end()
	w.Resume("a", producer.Tail{})
	if _, err := w.Append(t.Context(), "a", says("x")); !errors.Is(err, producer.ErrLocked) {
		t.Errorf("after Resume the locked session's append gives %v, want ErrLocked", err)
	}
}

func TestARetryOfEventsOldAndNewEndsWithTheNewest(t *testing.T) {
	s, cluster := newFaultyStage(t)
	w := s.writer()
	w.Resume("a", producer.Tail{Recorded: map[int64]string{}})
	one := must(w.Append(t.Context(), "a", says("one")))(t)[0]
	end := silence(cluster, false)
	appendUnheard(t, w, "a", says("two"), one)
	end()
	must(w.Retry(t.Context(), "a"))(t)
	if three := must(w.Append(t.Context(), "a", says("three")))(t)[0]; three.Seq != 3 {
		t.Errorf("the next event has seq %d, want 3", three.Seq)
	}
	s.hasOneEventAtEachPlace("a", 3)
}

func TestWhatABrokerRefusesOutrightLocksNothing(t *testing.T) {
	s, cluster := newFaultyStage(t)
	w := s.writer()
	must(w.Append(t.Context(), "a", says("one")))(t)
	cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.TopicAuthorizationFailed})
	_, err := w.Append(t.Context(), "a", says("two"))
	if !errors.Is(err, kerr.TopicAuthorizationFailed) || errors.As(err, new(*producer.UnknownOutcomeError)) {
		t.Fatalf("the error is %v, want the broker's refusal", err)
	}
	if two := must(w.Append(t.Context(), "a", says("two")))(t)[0]; two.Seq != 2 {
		t.Errorf("after the refusal the next event has seq %d, want 2", two.Seq)
	}
	s.hasOneEventAtEachPlace("a", 2)
}

func TestAnAppendWhoseContextIsOverIsNotSentAndLocksNothing(t *testing.T) {
	s := newStage(t)
	w := s.writer()
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := w.Append(over, "a", says("one")); !errors.Is(err, context.Canceled) || errors.As(err, new(*producer.UnknownOutcomeError)) {
		t.Fatalf("the error is %v, want that of the context alone", err)
	}
	must(w.Append(t.Context(), "a", says("one")))(t)
	s.holds(map[string]int{"a": 1})
}

func TestOneCallersImpatienceDoesNotHarmTheOthers(t *testing.T) {
	s, cluster := newFaultyStage(t)
	w := s.writer()
	must(w.Append(t.Context(), "warm", says("up")))(t)
	end := silence(cluster, true)
	patient := make(chan error)
	go func() {
		_, err := w.Append(t.Context(), "patient", says("one"))
		patient <- err
	}()
	appendUnheard(t, w, "a", says("one"))
	end()
	if err := <-patient; err != nil {
		t.Errorf("the patient caller is told %v", err)
	}
	must(w.Retry(t.Context(), "a"))(t)
	s.hasOneEventAtEachPlace("a", 1)
	s.hasOneEventAtEachPlace("patient", 1)
}
