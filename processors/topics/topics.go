// Package topics makes Tooltape's topics, and says why an existing one would lose data.
package topics

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/tooltape/tooltape/schemas"
	"github.com/tooltape/tooltape/sinks"
)

// DefaultPartitions is how many partitions each topic gets unless said otherwise: the most processors that can share one projection.
const DefaultPartitions = 48

// week is seven days in milliseconds: how long a superseded or deleted value may stay, and a tombstone must.
const week = "604800000"

// settings are the same for every topic.
var settings = map[string]string{
	"cleanup.policy":        "compact",
	"compression.type":      "zstd",
	"max.compaction.lag.ms": week,
	"delete.retention.ms":   week,
	"max.message.bytes":     "8388608",
}

// Spec is what the topics should be.
type Spec struct {
	Topics            schemas.Topics
	Partitions        int32
	ReplicationFactor int16 // -1 is the cluster's default
	// Recorded is what the positions in the store count in, if there are any: a topic made again, or with another number of partitions,
	// would not be the log that was projected.
	Recorded *sinks.Topic
}

// Change is what one topic needs.
type Change struct {
	Topic string `json:"topic"`
	// Action is create, alter, none or refuse.
	Action string `json:"action"`
	// Detail says what is set, or why it is refused.
	Detail string `json:"detail"`

	set map[string]string
}

// The actions of a change.
const (
	Create = "create"
	Alter  = "alter"
	None   = "none"
	Refuse = "refuse"
)

// Plan compares the cluster with the spec and changes nothing.
func Plan(ctx context.Context, admin *kadm.Client, spec Spec) ([]Change, error) {
	names := []string{spec.Topics.Events(), spec.Topics.Runs(), spec.Topics.Decisions(), spec.Topics.Retries()}
	details, err := admin.ListTopics(Fresh(ctx), names...)
	if err != nil {
		return nil, fmt.Errorf("listing topics: %w", err)
	}
	changes := make([]Change, 0, len(names))
	for _, name := range names {
		d := details[name]
		switch {
		case errors.Is(d.Err, kerr.UnknownTopicOrPartition) || d.Topic == "":
			changes = append(changes, Change{Topic: name, Action: Create, Detail: fmt.Sprintf("%d partitions, compacted", spec.Partitions)})
		case d.Err != nil:
			return nil, fmt.Errorf("describing topic %s: %w", name, d.Err)
		default:
			c, err := compare(ctx, admin, spec, d)
			if err != nil {
				return nil, err
			}
			changes = append(changes, c)
		}
	}
	return changes, nil
}

// compare says what an existing topic needs.
func compare(ctx context.Context, admin *kadm.Client, spec Spec, d kadm.TopicDetail) (Change, error) {
	refuse := func(format string, args ...any) (Change, error) {
		return Change{Topic: d.Topic, Action: Refuse, Detail: fmt.Sprintf(format, args...)}, nil
	}
	if n := int32(len(d.Partitions)); n != spec.Partitions {
		return refuse("it has %d partitions, not %d: with another number, sessions lie on other partitions; ask for %d, or make new topics under another prefix",
			n, spec.Partitions, n)
	}
	if r := spec.Recorded; r != nil && d.Topic == spec.Topics.Events() && r.ID != uuid.UUID(d.ID).String() {
		return refuse("it was deleted and made again: its id is %s, the store has projected %s", uuid.UUID(d.ID), r.ID)
	}
	if r := spec.Recorded; r != nil && d.Topic == spec.Topics.Events() && r.Partitions != spec.Partitions {
		return refuse("it has %d partitions, the store has projected %d: sessions now lie on other partitions than their earlier events; make new topics under another prefix, and copy the log",
			spec.Partitions, r.Partitions)
	}
	have, err := configs(ctx, admin, d.Topic)
	if err != nil {
		return Change{}, err
	}
	if err := KeepsEverything(d.Topic, have["cleanup.policy"]); err != nil {
		return Change{Topic: d.Topic, Action: Refuse, Detail: err.Error()}, nil
	}
	c := Change{Topic: d.Topic, Action: None, Detail: "as it should be", set: map[string]string{}}
	var words []string
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		if have[name] != settings[name] {
			c.set[name] = settings[name]
			words = append(words, fmt.Sprintf("%s=%s (is %s)", name, settings[name], have[name]))
		}
	}
	if len(words) > 0 {
		c.Action, c.Detail = Alter, strings.Join(words, ", ")
	}
	return c, nil
}

// KeepsEverything refuses a cleanup policy under which the log loses events.
func KeepsEverything(topic, policy string) error {
	if strings.Contains(policy, "delete") {
		return fmt.Errorf("topic %s has cleanup.policy=%s, which deletes events by age or size: set cleanup.policy=compact", topic, policy)
	}
	return nil
}

// CleanupPolicy is a topic's cleanup.policy.
func CleanupPolicy(ctx context.Context, admin *kadm.Client, topic string) (string, error) {
	have, err := configs(ctx, admin, topic)
	return have["cleanup.policy"], err
}

func configs(ctx context.Context, admin *kadm.Client, topic string) (map[string]string, error) {
	all, err := admin.DescribeTopicConfigs(ctx, topic)
	if err != nil {
		return nil, fmt.Errorf("describing the settings of topic %s: %w", topic, err)
	}
	rc, err := all.On(topic, nil)
	if err == nil {
		err = rc.Err
	}
	if err != nil {
		return nil, fmt.Errorf("describing the settings of topic %s: %w", topic, err)
	}
	have := map[string]string{}
	for _, c := range rc.Configs {
		have[c.Key] = c.MaybeValue()
	}
	return have, nil
}

// RefusedError is a topic that stays as it is, since going on with it would lose data.
type RefusedError struct{ Change }

func (e *RefusedError) Error() string { return fmt.Sprintf("topic %s: %s", e.Topic, e.Detail) }

// Apply carries a plan out, or nothing of it where one topic is refused.
func Apply(ctx context.Context, admin *kadm.Client, spec Spec) ([]Change, error) {
	changes, err := Plan(ctx, admin, spec)
	if err != nil {
		return nil, err
	}
	for _, c := range changes {
		if c.Action == Refuse {
			return changes, &RefusedError{c}
		}
	}
	for _, c := range changes {
		if err := apply(ctx, admin, spec, c); err != nil {
			return changes, err
		}
	}
	return changes, await(ctx, admin, changes)
}

// await returns when the brokers know every topic and a leader of each partition: a cluster has promised a topic before it has it.
func await(ctx context.Context, admin *kadm.Client, changes []Change) error {
	names := make([]string, 0, len(changes))
	for _, c := range changes {
		names = append(names, c.Topic)
	}
	ctx = kadm.WithAuthorizedOps(ctx) // asks the brokers: without it the client answers from its memory, for five seconds
	for tick := time.NewTicker(50 * time.Millisecond); ; {
		details, err := admin.ListTopics(Fresh(ctx), names...)
		if err != nil {
			return fmt.Errorf("waiting for the topics: %w", err)
		}
		if details.Error() == nil && !slices.ContainsFunc(names, func(name string) bool { return !served(details[name]) }) {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("waiting for the topics: %w", context.Cause(ctx))
		}
	}
}

// Fresh makes kadm ask the brokers about topics, where it would else answer from what the client knew seconds ago: it never caches an
// answer that holds authorized operations.
func Fresh(ctx context.Context) context.Context { return kadm.WithAuthorizedOps(ctx) }

func served(t kadm.TopicDetail) bool {
	for _, p := range t.Partitions {
		if p.Err != nil || p.Leader < 0 {
			return false
		}
	}
	return len(t.Partitions) > 0
}

func apply(ctx context.Context, admin *kadm.Client, spec Spec, c Change) error {
	switch c.Action {
	case Create:
		all := map[string]*string{}
		for k, v := range settings {
			all[k] = kadm.StringPtr(v)
		}
		r, err := admin.CreateTopic(ctx, spec.Partitions, spec.ReplicationFactor, all, c.Topic)
		if err == nil {
			err = r.Err
		}
		if err != nil && !errors.Is(err, kerr.TopicAlreadyExists) { // another apply was faster
			return fmt.Errorf("creating topic %s: %w", c.Topic, err)
		}
	case Alter:
		var alter []kadm.AlterConfig
		for _, name := range slices.Sorted(maps.Keys(c.set)) {
			alter = append(alter, kadm.AlterConfig{Op: kadm.SetConfig, Name: name, Value: kadm.StringPtr(c.set[name])})
		}
		rs, err := admin.AlterTopicConfigs(ctx, alter, c.Topic)
		for _, r := range rs {
			err = errors.Join(err, r.Err)
		}
		if err != nil {
			return fmt.Errorf("changing the settings of topic %s: %w", c.Topic, err)
		}
	}
	return nil
}
