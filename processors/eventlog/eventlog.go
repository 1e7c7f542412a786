// Package eventlog reads stretches of the events topic outside any consumer group: from an offset to the end that the log had then,
// and not a record less. It is what cat, a resuming writer and a second reader stand on.
package eventlog

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Bounds of one read.
const (
	fetchBytes  = 1 << 20
	maxAttempts = 10
)

// Log is one topic, read by partition and offset.
type Log struct {
	topic  string
	client *kgo.Client
	admin  *kadm.Client
}

// Open makes a reader of a topic. Nothing is asked of the brokers yet.
func Open(kafka []kgo.Opt, topic string) (*Log, error) {
	client, err := kgo.NewClient(kafka...)
	if err != nil {
		return nil, fmt.Errorf("configuring the Kafka client: %w", err)
	}
	return &Log{topic: topic, client: client, admin: kadm.NewClient(client)}, nil
}

// Close ends the connections.
func (l *Log) Close() { l.client.Close() }

// Bounds are the offsets of a partition that can be read: from Start on, below End. End is the last stable offset, so that no reader
// waits for an open transaction.
type Bounds struct{ Start, End int64 }

// Bounds asks for the bounds of all partitions; the index is the partition.
func (l *Log) Bounds(ctx context.Context) ([]Bounds, error) {
	starts, err := l.admin.ListStartOffsets(ctx, l.topic)
	if err == nil {
		err = starts.Error()
	}
	if err != nil {
		return nil, fmt.Errorf("reading the start offsets of topic %s: %w", l.topic, err)
	}
	ends, err := l.admin.ListCommittedOffsets(ctx, l.topic)
	if err == nil {
		err = ends.Error()
	}
	if err != nil {
		return nil, fmt.Errorf("reading the end offsets of topic %s: %w", l.topic, err)
	}
	bounds := make([]Bounds, len(starts[l.topic]))
	for p := range bounds {
		start, ok := starts.Lookup(l.topic, int32(p))
		end, ok2 := ends.Lookup(l.topic, int32(p))
		if !ok || !ok2 {
			return nil, fmt.Errorf("topic %s: the brokers do not say where partition %d begins and ends", l.topic, p)
		}
		bounds[p] = Bounds{Start: start.Offset, End: end.Offset}
	}
	return bounds, nil
}

// Read hands on every committed record of a partition from offset from on and below to, in the order of the log. It ends when the
// brokers have said that nothing is left below to, never for lack of an answer; fn's first error ends it too, as it is.
func (l *Log) Read(ctx context.Context, partition int32, from, to int64, fn func(*kgo.Record) error) error {
	var at place
	for attempt := 0; from < to; {
		records, next, err := l.fetch(ctx, &at, partition, from)
		if err != nil {
			if attempt++; attempt == maxAttempts || ctx.Err() != nil || !passes(err) {
				return fmt.Errorf("reading topic %s partition %d at offset %d: %w", l.topic, partition, from, err)
			}
			at = place{} // the leader may have moved
			continue
		}
		attempt = 0
		for _, r := range records {
			if r.Offset >= to {
				return nil
			}
			if err := fn(r); err != nil {
				return err
			}
		}
		from = next
	}
	return nil
}

// passes says whether a fetch may succeed if it is tried again.
func passes(err error) bool {
	return kerr.IsRetriable(err) || kgo.IsRetryableBrokerErr(err) || errors.Is(err, errNoAnswer)
}

var errNoAnswer = errors.New("the broker's answer does not hold the partition")

// place is where a partition is read: known is false until its leader was looked up.
type place struct {
	known  bool
	leader int32
	id     kadm.TopicID
}

func (l *Log) locate(ctx context.Context, partition int32) (place, error) {
	topics, err := l.admin.ListTopics(ctx, l.topic)
	if err != nil {
		return place{}, err
	}
	t := topics[l.topic]
	if t.Err != nil {
		return place{}, t.Err
	}
	p, ok := t.Partitions[partition]
	if !ok {
		return place{}, fmt.Errorf("topic %s has no partition %d", l.topic, partition)
	}
	return place{known: true, leader: p.Leader, id: t.ID}, p.Err
}

// fetch asks the leader for one stretch and says where the next begins. A stretch may hold no record at all: compaction leaves gaps.
func (l *Log) fetch(ctx context.Context, at *place, partition int32, from int64) ([]*kgo.Record, int64, error) {
	if !at.known {
		var err error
		if *at, err = l.locate(ctx, partition); err != nil {
			return nil, 0, err
		}
	}
	answer, err := l.client.Broker(int(at.leader)).RetriableRequest(ctx, l.request(*at, partition, from))
	if err != nil {
		return nil, 0, err
	}
	response := answer.(*kmsg.FetchResponse)
	if err := kerr.ErrorForCode(response.ErrorCode); err != nil {
		return nil, 0, err
	}
	if len(response.Topics) != 1 || len(response.Topics[0].Partitions) != 1 {
		return nil, 0, errNoAnswer
	}
	fetched, next := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{
		Offset: from, Topic: l.topic, Partition: partition, IsolationLevel: kgo.ReadCommitted(),
	}, &response.Topics[0].Partitions[0], kgo.DefaultDecompressor(), nil)
	return fetched.Records, next, fetched.Err
}

func (l *Log) request(at place, partition int32, from int64) *kmsg.FetchRequest {
	req := kmsg.NewPtrFetchRequest()
	req.MaxWaitMillis = 500
	req.MinBytes = 1
	req.MaxBytes = fetchBytes
	req.IsolationLevel = 1 // read_committed
	req.SessionEpoch = -1  // no fetch session
	p := kmsg.NewFetchRequestTopicPartition()
	p.Partition, p.FetchOffset, p.PartitionMaxBytes, p.CurrentLeaderEpoch = partition, from, fetchBytes, -1
	t := kmsg.NewFetchRequestTopic()
	t.Topic, t.TopicID, t.Partitions = l.topic, at.id, []kmsg.FetchRequestTopicPartition{p}
	req.Topics = []kmsg.FetchRequestTopic{t}
	return req
}

// ReadAll is Read over the whole log as it is now, partition by partition.
func (l *Log) ReadAll(ctx context.Context, fn func(*kgo.Record) error) error {
	bounds, err := l.Bounds(ctx)
	if err != nil {
		return err
	}
	for p, b := range bounds {
		if err := l.Read(ctx, int32(p), b.Start, b.End, fn); err != nil {
			return err
		}
	}
	return nil
}
