// Package eventlog reads stretches of the events topic outside any consumer group: from an offset to the end that the log had then,
// and not a record less. It is what cat, a resuming writer and a second reader stand on.
package eventlog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Bounds of one read.
const (
	fetchBytes = 1 << 20
	// maxAttempts and retryAfter give a partition some seconds to find another leader.
	maxAttempts = 10
	retryAfter  = 500 * time.Millisecond
	// maxDecompressedBytes bounds what one batch of a few kilobytes may unpack to, here as in the loop.
	maxDecompressedBytes = 64 << 20
)

// Log is one topic, read by partition and offset.
type Log struct {
	topic        string
	client       *kgo.Client
	admin        *kadm.Client
	decompressor kgo.Decompressor
}

// Open makes a reader of a topic. Nothing is asked of the brokers yet.
func Open(kafka []kgo.Opt, topic string) (*Log, error) {
	client, err := kgo.NewClient(append(slices.Clip(kafka), kgo.MaxDecompressBatchBytes(maxDecompressedBytes))...)
	if err != nil {
		return nil, fmt.Errorf("configuring the Kafka client: %w", err)
	}
	// Of the default decompressors only a client's own is bounded.
	decompressor, ok := client.OptValue(kgo.WithDecompressor).(kgo.Decompressor)
	if !ok {
		client.Close()
		return nil, errors.New("the Kafka client has no decompressor")
	}
	return &Log{topic: topic, client: client, admin: kadm.NewClient(client), decompressor: decompressor}, nil
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
	for failed := 0; from < to; {
		s, err := l.fetch(ctx, &at, partition, from)
		if err != nil {
			if failed++; failed == maxAttempts || !passes(err) || !pause(ctx, retryAfter) {
				return fmt.Errorf("reading topic %s partition %d at offset %d: %w", l.topic, partition, from, err)
			}
			at.known = false // the leader may have moved
			continue
		}
		failed = 0
		for _, r := range s.records {
			if r.Offset >= to {
				return nil
			}
			if err := fn(r); err != nil {
				return err
			}
		}
		if s.empty && s.stable >= to {
			return nil // compaction left nothing up to the end
		}
		from = s.next
	}
	return nil
}

// passes says whether a fetch may succeed if it is tried again.
func passes(err error) bool {
	return kerr.IsRetriable(err) || kgo.IsRetryableBrokerErr(err) || errors.Is(err, errNoAnswer)
}

var errNoAnswer = errors.New("the broker's answer does not hold the partition")

// pause waits, and says whether the context lets it go on.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// place is where a partition is read: known is false until its leader was looked up, and again when that one is in doubt. The topic's
// id stays: a topic that is made again is not the same log.
type place struct {
	known  bool
	leader int32
	id     kadm.TopicID
}

// locate asks the brokers, not the client's memory of them, which may be five seconds old.
func (l *Log) locate(ctx context.Context, at place, partition int32) (place, error) {
	req := kmsg.NewPtrMetadataRequest()
	topic := kmsg.NewMetadataRequestTopic()
	topic.Topic = kmsg.StringPtr(l.topic)
	req.Topics = append(req.Topics, topic)
	answer, err := req.RequestWith(ctx, l.client)
	if err != nil {
		return at, err
	}
	if len(answer.Topics) != 1 {
		return at, errNoAnswer
	}
	t := answer.Topics[0]
	switch err := kerr.ErrorForCode(t.ErrorCode); {
	case errors.Is(err, kerr.UnknownTopicOrPartition):
		return at, errors.New("there is no such topic") // Kafka calls it retriable, as it may come into being
	case err != nil:
		return at, err
	case at.id != (kadm.TopicID{}) && at.id != t.TopicID:
		return at, errors.New("the topic was deleted and made again while it was read")
	}
	for _, p := range t.Partitions {
		if p.Partition == partition {
			return place{known: true, leader: p.Leader, id: t.TopicID}, kerr.ErrorForCode(p.ErrorCode)
		}
	}
	return at, errors.New("the topic has no such partition")
}

// stretch is what one fetch brought. It may hold no record at all: compaction leaves gaps, and transactions their marks.
type stretch struct {
	records []*kgo.Record
	next    int64
	empty   bool  // there was nothing, not even what is not handed on
	stable  int64 // the last stable offset
}

// fetch asks the leader for one stretch.
func (l *Log) fetch(ctx context.Context, at *place, partition int32, from int64) (stretch, error) {
	if !at.known {
		var err error
		if *at, err = l.locate(ctx, *at, partition); err != nil {
			return stretch{}, err
		}
	}
	answer, err := l.client.Broker(int(at.leader)).RetriableRequest(ctx, l.request(*at, partition, from))
	if err != nil {
		return stretch{}, err
	}
	response := answer.(*kmsg.FetchResponse)
	if err := kerr.ErrorForCode(response.ErrorCode); err != nil {
		return stretch{}, err
	}
	if len(response.Topics) != 1 || len(response.Topics[0].Partitions) != 1 {
		return stretch{}, errNoAnswer
	}
	raw := &response.Topics[0].Partitions[0]
	fetched, next := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{
		Offset: from, Topic: l.topic, Partition: partition, IsolationLevel: kgo.ReadCommitted(),
	}, raw, l.decompressor, nil)
	s := stretch{records: fetched.Records, next: next, empty: len(raw.RecordBatches) == 0, stable: raw.LastStableOffset}
	if fetched.Err == nil && next == from && !s.empty {
		return stretch{}, errors.New("the batch there cannot be read")
	}
	return s, fetched.Err
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
