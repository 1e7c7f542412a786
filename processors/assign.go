package processors

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/tooltape/tooltape/processors/topics"
	"github.com/tooltape/tooltape/sinks"
)

// takeOver is called with each assignment, between fetching Kafka's committed offsets, which are never what a restart reads, and
// consuming. It acquires each partition from the sink and starts where the sink stands.
//
// The broker or the store being away is waited out, for as long as the assignment lasts; a log that is not the one the position
// counts in ends the processor.
func (p *Processor) takeOver(ctx context.Context, assigned map[string]map[int32]kgo.Offset) (map[string]map[int32]kgo.Offset, error) {
	wait := p.backoff()
	for {
		starts, err := p.acquire(ctx, assigned[p.topic])
		if err == nil {
			return map[string]map[int32]kgo.Offset{p.topic: starts}, nil
		}
		if fatal := (*fatalError)(nil); errors.As(err, &fatal) {
			p.stop(fatal)
			return nil, err
		}
		p.trouble(noPartition, err)
		if !wait(ctx) {
			return nil, context.Cause(ctx)
		}
	}
}

func (p *Processor) acquire(ctx context.Context, assigned map[int32]kgo.Offset) (map[int32]kgo.Offset, error) {
	log, err := p.describeLog(ctx)
	if err != nil {
		return nil, err
	}
	if p.topicNow.Partitions == 0 {
		p.topicNow = log.topic
	}
	if log.topic != p.topicNow {
		return nil, &fatalError{fmt.Errorf("topic %s has changed while it was projected: it had %d partitions and the id %s, it has %d and %s; start again to see what that means",
			p.topic, p.topicNow.Partitions, p.topicNow.ID, log.topic.Partitions, log.topic.ID)}
	}
	positions := make([]sinks.Position, 0, len(assigned))
	for id := range assigned {
		if err := p.canGoOn(ctx, id, log); err != nil {
			return nil, err
		}
		at, err := p.cfg.Sink.Acquire(ctx, id, log.topic)
		if errors.As(err, new(*sinks.RefusedError)) || errors.As(err, new(*sinks.UnusableError)) {
			return nil, &fatalError{fmt.Errorf("taking over partition %d of topic %s: %w", id, p.topic, err)}
		}
		if err != nil {
			return nil, err
		}
		positions = append(positions, at)
	}
	starts := make(map[int32]kgo.Offset, len(assigned))
	for _, at := range positions {
		start, _ := log.start.Lookup(p.topic, at.Partition)
		p.hold(at, start.Offset)
		starts[at.Partition] = kgo.NewOffset().At(at.NextOffset)
	}
	p.well(noPartition)
	return starts, nil
}

// canGoOn looks, before anything is taken from anybody, whether the log is the one that the partition's position counts in.
func (p *Processor) canGoOn(ctx context.Context, id int32, log logState) error {
	at, known, err := p.cfg.Sink.Position(ctx, id)
	if err != nil {
		return err
	}
	if !known {
		at = sinks.Position{Partition: id, Topic: log.topic}
	}
	if err := log.holds(p.topic, at); err != nil {
		return &fatalError{err}
	}
	return nil
}

// logState is the topic as the broker has it now.
type logState struct {
	topic      sinks.Topic
	start, end kadm.ListedOffsets
}

func (p *Processor) describeLog(ctx context.Context) (logState, error) {
	admin := kadm.NewClient(p.client)
	all, err := admin.ListTopics(topics.Fresh(ctx), p.topic)
	if err != nil {
		return logState{}, fmt.Errorf("describing topic %s: %w", p.topic, err)
	}
	detail := all[p.topic]
	if errors.Is(detail.Err, kerr.UnknownTopicOrPartition) {
		return logState{}, &fatalError{fmt.Errorf("topic %s is not there: tooltape topics apply creates it", p.topic)}
	}
	if detail.Err != nil {
		return logState{}, fmt.Errorf("describing topic %s: %w", p.topic, detail.Err)
	}
	policy, err := topics.CleanupPolicy(ctx, admin, p.topic)
	if err != nil {
		return logState{}, err
	}
	if err := topics.KeepsEverything(p.topic, policy); err != nil {
		return logState{}, &fatalError{err}
	}
	start, err := admin.ListStartOffsets(ctx, p.topic)
	if err == nil {
		err = start.Error()
	}
	if err != nil {
		return logState{}, fmt.Errorf("reading the start offsets of topic %s: %w", p.topic, err)
	}
	end, err := admin.ListEndOffsets(ctx, p.topic)
	if err == nil {
		err = end.Error()
	}
	if err != nil {
		return logState{}, fmt.Errorf("reading the end offsets of topic %s: %w", p.topic, err)
	}
	return logState{topic: sinks.Topic{ID: uuid.UUID(detail.ID).String(), Partitions: int32(len(detail.Partitions))}, start: start, end: end}, nil
}

// holds says why a position cannot go on in this log, in words for a person.
func (l logState) holds(topic string, at sinks.Position) error {
	const remedy = "; the tables were made from another log: restore that topic, or migrate an empty database and project this one from its start"
	start, _ := l.start.Lookup(topic, at.Partition)
	end, _ := l.end.Lookup(topic, at.Partition)
	switch {
	case at.Topic.ID != l.topic.ID:
		return fmt.Errorf("topic %s was deleted and made again: its id is %s, the position of partition %d counts in %s%s",
			topic, l.topic.ID, at.Partition, at.Topic.ID, remedy)
	case at.Topic.Partitions != l.topic.Partitions:
		return fmt.Errorf("topic %s has %d partitions, the positions were taken with %d: sessions lie on other partitions now%s",
			topic, l.topic.Partitions, at.Topic.Partitions, remedy)
	case at.NextOffset < start.Offset:
		return fmt.Errorf("topic %s partition %d begins at offset %d, after the position %d: records were deleted before they were projected%s",
			topic, at.Partition, start.Offset, at.NextOffset, remedy)
	case at.NextOffset > end.Offset:
		return fmt.Errorf("topic %s partition %d ends at offset %d, before the position %d: the log is shorter than what was projected%s",
			topic, at.Partition, end.Offset, at.NextOffset, remedy)
	}
	return nil
}
