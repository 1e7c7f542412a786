package topics_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/tooltape/tooltape/processors/topics"
	"github.com/tooltape/tooltape/processors/topics/topicstest"
	"github.com/tooltape/tooltape/schemas"
	"github.com/tooltape/tooltape/sinks"
)

// stage is a prefix of one test, and what its topics should be.
type stage struct {
	*testing.T
	admin *kadm.Client
	spec  topics.Spec
}

func newStage(t *testing.T) *stage {
	t.Helper()
	names := topicstest.New(t, 4)
	admin := topicstest.Admin(t)
	t.Cleanup(admin.Close)
	return &stage{t, admin, topics.Spec{Topics: names, Partitions: 4, ReplicationFactor: 1}}
}

func (s *stage) set(topic, name, value string) {
	s.Helper()
	answers, err := s.admin.AlterTopicConfigs(s.Context(), []kadm.AlterConfig{{Op: kadm.SetConfig, Name: name, Value: &value}}, topic)
	for _, a := range answers {
		err = errors.Join(err, a.Err)
	}
	s.check(err)
	s.await(topic, name, value)
}

// await waits for a setting that is promised: a real broker learns of it from its controller.
func (s *stage) await(topic, name, value string) {
	s.Helper()
	deadline := time.After(time.Minute)
	for tick := time.NewTicker(20 * time.Millisecond); s.get(topic, name) != value; {
		select {
		case <-deadline:
			s.Fatalf("%s of %s is %s, want %s", name, topic, s.get(topic, name), value)
		case <-tick.C:
		}
	}
}

func (s *stage) get(topic, name string) string {
	s.Helper()
	all, err := s.admin.DescribeTopicConfigs(s.Context(), topic)
	s.check(err)
	for _, c := range all[0].Configs {
		if c.Key == name {
			return c.MaybeValue()
		}
	}
	return ""
}

// id is the events topic's id.
func (s *stage) id() string {
	s.Helper()
	details, err := s.admin.ListTopics(s.Context(), s.spec.Topics.Events())
	s.check(err)
	return uuid.UUID(details[s.spec.Topics.Events()].ID).String()
}

func (s *stage) check(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// actions is what is planned by the end of each topic's name.
func (s *stage) actions(changes []topics.Change) map[string]string {
	actions := map[string]string{}
	for _, c := range changes {
		actions[strings.TrimPrefix(c.Topic, s.spec.Topics.Prefix+".")] = c.Action
	}
	return actions
}

func (s *stage) want(changes []topics.Change, want map[string]string) {
	s.Helper()
	if got := s.actions(changes); !maps.Equal(got, want) {
		s.Errorf("the changes are %v, want %v", got, want)
	}
}

func all(action string) map[string]string {
	return map[string]string{"events": action, "runs": action, "decisions": action, "retries": action}
}

// but is all with another action for the events.
func but(events, action string) map[string]string {
	m := all(action)
	m["events"] = events
	return m
}

func (s *stage) plan() []topics.Change {
	s.Helper()
	changes, err := topics.Plan(s.Context(), s.admin, s.spec)
	s.check(err)
	return changes
}

func TestTopicsAreMadeAsTheyShouldBeAndThenLeftAlone(t *testing.T) {
	s := newStage(t)
	s.spec.Topics = schemas.Topics{Prefix: s.spec.Topics.Prefix + ".new"}
	t.Cleanup(func() {
		_, _ = s.admin.DeleteTopics(context.Background(), s.spec.Topics.Events(), s.spec.Topics.Runs(), s.spec.Topics.Decisions(), s.spec.Topics.Retries())
	})
	s.want(s.plan(), all(topics.Create))
	s.want(s.plan(), all(topics.Create)) // to plan changes nothing
	changes, err := topics.Apply(t.Context(), s.admin, s.spec)
	s.check(err)
	s.want(changes, all(topics.Create))
	fresh := topicstest.Admin(t)
	t.Cleanup(fresh.Close)
	s.admin = fresh
	s.want(s.plan(), all(topics.None))
	for name, want := range map[string]string{
		"cleanup.policy": "compact", "compression.type": "zstd", "max.compaction.lag.ms": "604800000", "delete.retention.ms": "604800000", "max.message.bytes": "8388608",
	} {
		if got := s.get(s.spec.Topics.Events(), name); got != want {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
	details, err := s.admin.ListTopics(t.Context(), s.spec.Topics.Events())
	s.check(err)
	if n := len(details[s.spec.Topics.Events()].Partitions); n != 4 {
		t.Errorf("the topic has %d partitions, want 4", n)
	}
}

func TestASettingThatDiffersIsSetAgain(t *testing.T) {
	s := newStage(t)
	events := s.spec.Topics.Events()
	s.set(events, "max.message.bytes", "1000000")
	changes := s.plan()
	s.want(changes, but(topics.Alter, topics.None))
	if want := "max.message.bytes=8388608 (is 1000000)"; changes[0].Detail != want {
		t.Errorf("the plan says %q, want %q", changes[0].Detail, want)
	}
	if got := s.get(events, "max.message.bytes"); got != "1000000" {
		t.Errorf("the plan has set it to %s", got)
	}
	_, err := topics.Apply(t.Context(), s.admin, s.spec)
	s.check(err)
	s.await(events, "max.message.bytes", "8388608")
	s.want(s.plan(), all(topics.None))
}

func TestATopicThatWouldLoseDataIsRefusedAndNothingIsApplied(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(s *stage)
		want  map[string]string
		says  string
	}{
		"it deletes by age": {func(s *stage) { s.set(s.spec.Topics.Events(), "cleanup.policy", "delete") },
			but(topics.Refuse, topics.None), "cleanup.policy=delete, which deletes events"},
		"it deletes and compacts": {func(s *stage) { s.set(s.spec.Topics.Events(), "cleanup.policy", "compact,delete") },
			but(topics.Refuse, topics.None), "cleanup.policy"},
		"it has another number of partitions": {func(s *stage) { s.spec.Partitions = 8 }, all(topics.Refuse), "4 partitions, not 8"},
		"it was given more partitions than were projected": {func(s *stage) { s.spec.Recorded = &sinks.Topic{ID: s.id(), Partitions: 2} },
			but(topics.Refuse, topics.None), "4 partitions, the store has projected 2"},
		"it is not the one that was projected": {func(s *stage) {
			s.spec.Recorded = &sinks.Topic{ID: "00000000-0000-0000-0000-000000000001", Partitions: 4}
		}, but(topics.Refuse, topics.None), "deleted and made again"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t)
			s.set(s.spec.Topics.Retries(), "max.message.bytes", "1000000")
			c.spoil(s)
			want := maps.Clone(c.want)
			if want["retries"] == topics.None {
				want["retries"] = topics.Alter
			}
			changes, err := topics.Apply(t.Context(), s.admin, s.spec)
			var refused *topics.RefusedError
			if !errors.As(err, &refused) || !strings.Contains(err.Error(), c.says) || refused.Topic != s.spec.Topics.Events() {
				t.Errorf("the error is %v, want a refusal of the events that says %q", err, c.says)
			}
			s.want(changes, want)
			if got := s.get(s.spec.Topics.Retries(), "max.message.bytes"); got != "1000000" {
				t.Errorf("another topic was changed all the same, to %s", got)
			}
		})
	}
}

func TestTheTopicThatWasProjectedIsTaken(t *testing.T) {
	s := newStage(t)
	s.spec.Recorded = &sinks.Topic{ID: s.id(), Partitions: 4}
	s.want(s.plan(), all(topics.None))
}

func TestTheLossOfAPartOfTheTopicsIsMendedByTheRest(t *testing.T) {
	s := newStage(t)
	_, err := s.admin.DeleteTopics(t.Context(), s.spec.Topics.Runs())
	s.check(err)
	fresh := topicstest.Admin(t) // the other client remembers the topic for some seconds
	t.Cleanup(fresh.Close)
	s.admin = fresh
	want := all(topics.None)
	want["runs"] = topics.Create
	changes, err := topics.Apply(t.Context(), s.admin, s.spec)
	s.check(err)
	s.want(changes, want)
	if names := slices.Sorted(maps.Keys(s.actions(changes))); len(names) != 4 {
		t.Errorf("the changes are of %v", names)
	}
}
