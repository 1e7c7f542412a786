package processors

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

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

// assignment is a partition and the end of this member's hold on it.
type assignment struct {
	*partition
	end  context.CancelCauseFunc
	lost atomic.Bool // another holder has taken it over
}

// hold begins an assignment.
func (p *Processor) hold(at sinks.Position, logStart int64) {
	id := at.Partition
	p.drop(id, errRevoked)
	ctx, end := context.WithCancelCause(p.run)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.client.ResumeFetchPartitions(map[string][]int32{p.topic: {id}}) // an earlier hold may have waited for something
	a := &assignment{partition: &partition{
		Processor: p, id: id, logStart: logStart, ctx: ctx, mu: newLock(), at: at,
		sessions: newSessionCache(max(cachedSessions, p.cfg.BatchRecords)), erased: map[string]bool{}, due: make(chan struct{}, 1),
		labels: newLabels(p.cfg.Projection, p.topic, p.cfg.Topics.Group(p.cfg.Projection), id),
	}, end: end}
	p.held[id] = a
	p.beside.Go(func() {
		if err := p.outcome(a, a.heal()); err != nil {
			p.stop(err)
		}
	})
	p.log.Info("partition taken over", "partition", id, "offset", at.NextOffset, "epoch", at.Epoch)
}

func (p *Processor) assigned(id int32) *assignment {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.held[id]
}

// assignedNothing makes a member ready for which the group has no partition: it is there to take one over.
func (p *Processor) assignedNothing(_ context.Context, _ *kgo.Client, assigned map[string][]int32) {
	if len(assigned[p.topic]) == 0 {
		p.well(noPartition)
	}
}

// giveUp ends assignments. It does not wait for a write that is under way: it takes before the next holder's acquisition, or fails.
func (p *Processor) giveUp(_ context.Context, _ *kgo.Client, lost map[string][]int32) {
	for _, id := range lost[p.topic] {
		p.drop(id, errRevoked)
	}
}

func (p *Processor) drop(id int32, cause error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if a := p.held[id]; a != nil {
		a.end(cause)
		delete(p.held, id)
		p.health.lost(id)
	}
}

// fenced stops work on a partition that another holder has taken over. Usually the group has given it away, and is about to say so; where it
// does not, someone outside the group writes to the store, and nobody would project the partition.
func (p *Processor) fenced(a *assignment) {
	if !a.lost.CompareAndSwap(false, true) {
		return
	}
	p.log.Warn("another holder has taken the partition over; this one waits to hear of it from the group", "partition", a.id)
	p.health.troubled(a.id, sinks.ErrFenced)
	p.beside.Go(func() {
		grace := time.NewTimer(2 * p.cfg.SessionTimeout)
		defer grace.Stop()
		select {
		case <-a.ctx.Done():
		case <-grace.C:
			p.stop(&fatalError{fmt.Errorf("topic %s partition %d was taken over by a holder that is not in this group; is a processor of another topic prefix, group or cluster writing to this store? %w",
				p.topic, a.id, sinks.ErrFenced)})
		}
	})
}

// stopPartition ends work on one partition, for a person to see; the others go on, and the processor is not ready.
func (p *Processor) stopPartition(id int32, why error) {
	p.log.Error("the partition stops", "partition", id, "error", why)
	p.health.stopped(why)
	p.drop(id, why)
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
