package eventlog_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tooltape/tooltape/processors/eventlog"
	"github.com/tooltape/tooltape/processors/topics"
	"github.com/tooltape/tooltape/processors/topics/topicstest"
	"github.com/tooltape/tooltape/schemas"
)

// stage is a topic of one test, written and read as it comes.
type stage struct {
	*testing.T
	kafka  []kgo.Opt
	topic  string
	client *kgo.Client
	log    *eventlog.Log
}

func newStage(t *testing.T) *stage {
	t.Helper()
	return onStage(t, topicstest.Brokers(t), topicstest.New(t, 1).Events())
}

// newOwnStage is on a cluster of its own, which the test may treat as it likes.
func newOwnStage(t *testing.T, brokers int) (*stage, *kfake.Cluster) {
	t.Helper()
	cluster := must(kfake.NewCluster(kfake.NumBrokers(brokers)))(t)
	t.Cleanup(cluster.Close)
	client := must(kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...)))(t)
	t.Cleanup(client.Close)
	must(topics.Apply(t.Context(), kadm.NewClient(client), topics.Spec{Partitions: 1, ReplicationFactor: 1}))(t)
	return onStage(t, cluster.ListenAddrs(), schemas.Topics{}.Events()), cluster
}

func onStage(t *testing.T, brokers []string, topic string) *stage {
	t.Helper()
	s := &stage{T: t, kafka: []kgo.Opt{kgo.SeedBrokers(brokers...)}, topic: topic}
	s.client = s.connect()
	s.log = must(eventlog.Open(s.kafka, topic))(t)
	t.Cleanup(s.log.Close)
	return s
}

func (s *stage) connect(opts ...kgo.Opt) *kgo.Client {
	s.Helper()
	c := must(kgo.NewClient(slices.Concat(s.kafka, []kgo.Opt{kgo.RecordPartitioner(kgo.ManualPartitioner())}, opts)...))(s)
	s.Cleanup(c.Close)
	return c
}

// put writes records, each in a batch of its own; the key is the value.
func (s *stage) put(keys ...string) {
	s.Helper()
	for _, key := range keys {
		must(s.client.ProduceSync(s.Context(), &kgo.Record{Topic: s.topic, Key: []byte(key), Value: []byte(key)}).First())(s)
	}
}

// transact writes records in a transaction and ends it; keep it open with nil.
func (s *stage) transact(end *kgo.TransactionEndTry, keys ...string) {
	s.Helper()
	c := s.connect(kgo.TransactionalID(s.topic + fmt.Sprint(keys)))
	check(s, c.BeginTransaction())
	for _, key := range keys {
		must(c.ProduceSync(s.Context(), &kgo.Record{Topic: s.topic, Key: []byte(key), Value: []byte(key)}).First())(s)
	}
	if end != nil {
		check(s, c.EndTransaction(s.Context(), *end))
	}
}

func (s *stage) bounds() eventlog.Bounds {
	s.Helper()
	return must(s.log.Bounds(s.Context()))(s)[0]
}

// reads is what a read of the whole log hands on. It must end.
func (s *stage) reads() []string {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), time.Minute)
	defer cancel()
	keys := []string{}
	check(s, s.log.ReadAll(ctx, func(r *kgo.Record) error {
		keys = append(keys, string(r.Key))
		return nil
	}))
	return keys
}

func (s *stage) want(want ...string) {
	s.Helper()
	if got := s.reads(); !slices.Equal(got, want) {
		s.Errorf("read are %q, want %q", got, want)
	}
}

func must[T any](v T, err error) func(t testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		check(t, err)
		return v
	}
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

var (
	commit = kgo.TryCommit
	abort  = kgo.TryAbort
)

func TestAReadHandsOnEveryRecordInTheOrderOfTheLog(t *testing.T) {
	s := newStage(t)
	s.want()
	var keys []string
	for i := range 100 {
		keys = append(keys, fmt.Sprint(i))
	}
	s.put(keys...)
	s.want(keys...)
	big := strings.Repeat("x", 700<<10) // so that one fetch cannot hold two
	var records []*kgo.Record
	for i := range 4 {
		records = append(records, &kgo.Record{Topic: s.topic, Key: fmt.Append(nil, "big", i), Value: []byte(big)})
	}
	check(t, s.connect(kgo.ProducerBatchCompression(kgo.NoCompression())).ProduceSync(t.Context(), records...).FirstErr())
	s.want(append(keys, "big0", "big1", "big2", "big3")...)
}

func TestAReadIsOfItsStretchAndEndsWithTheFirstErrorOfItsReader(t *testing.T) {
	s := newStage(t)
	s.put("a", "b", "c", "d")
	read := func(from, to int64, until string) (string, error) {
		var keys string
		stop := errors.New("enough")
		err := s.log.Read(t.Context(), 0, from, to, func(r *kgo.Record) error {
			if keys += string(r.Key); string(r.Key) == until {
				return stop
			}
			return nil
		})
		if err == stop { //nolint:errorlint // it must come as it is
			return keys + "!", nil
		}
		return keys, err
	}
	for _, c := range []struct {
		from, to int64
		until    string
		want     string
	}{{0, 4, "", "abcd"}, {1, 3, "", "bc"}, {2, 2, "", ""}, {0, 4, "b", "ab!"}} {
		if got := must(read(c.from, c.to, c.until))(t); got != c.want {
			t.Errorf("from %d to %d until %q are %q, want %q", c.from, c.to, c.until, got, c.want)
		}
	}
}

func TestTransactionsAreReadAsFarAsTheyAreCommitted(t *testing.T) {
	s := newStage(t)
	s.put("a")
	s.transact(&commit, "b", "c")
	s.transact(&abort, "lost", "gone")
	s.want("a", "b", "c") // the stretch ends with what is not handed on
	s.put("d")
	s.want("a", "b", "c", "d")
	s.transact(nil, "open")
	s.put("after the open one")
	s.want("a", "b", "c", "d")
}

func TestALogOfNothingButAbortedTransactionsIsRead(t *testing.T) {
	s := newStage(t)
	s.transact(&abort, "lost")
	s.want()
}

func TestACompactedLogIsReadToItsEnd(t *testing.T) {
	s, cluster := newOwnStage(t, 1)
	s.put("a", "b", "a", "c", "b", "b", "last")
	cluster.Compact()
	s.want("a", "c", "b", "last")
	// A start in a gap that compaction left.
	var keys []string
	check(t, s.log.Read(t.Context(), 0, 4, s.bounds().End, func(r *kgo.Record) error {
		keys = append(keys, string(r.Key))
		return nil
	}))
	if !slices.Equal(keys, []string{"b", "last"}) {
		t.Errorf("from the gap on are %q", keys)
	}
}

func TestAReadEndsWhereTheBrokersSayThatNothingIsLeft(t *testing.T) {
	s, cluster := newOwnStage(t, 1)
	s.put("a", "b", "c")
	end := s.bounds().End
	// As a broker answers whose compaction has emptied the last segment: no error, no records, and an end beyond them.
	cluster.ControlKey(int16(kmsg.Fetch), func(request kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		req := request.(*kmsg.FetchRequest)
		if req.Topics[0].Partitions[0].FetchOffset == 0 {
			return nil, nil, false
		}
		response := req.ResponseKind().(*kmsg.FetchResponse)
		p := kmsg.NewFetchResponseTopicPartition()
		p.HighWatermark, p.LastStableOffset = end+5, end+5
		topic := kmsg.NewFetchResponseTopic()
		topic.Topic, topic.TopicID, topic.Partitions = req.Topics[0].Topic, req.Topics[0].TopicID, []kmsg.FetchResponseTopicPartition{p}
		response.Topics = append(response.Topics, topic)
		return response, nil, true
	})
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	n := 0
	if err := s.log.Read(ctx, 0, 0, end+5, func(*kgo.Record) error { n++; return nil }); err != nil || n != 3 {
		t.Errorf("%d records and the error %v, want 3 and none", n, err)
	}
}

func TestAReadFollowsThePartitionToItsNewLeader(t *testing.T) {
	s, cluster := newOwnStage(t, 3)
	var keys []string
	for i := range 9 {
		keys = append(keys, fmt.Sprint(i))
	}
	s.put(keys...)
	cluster.ControlKey(int16(kmsg.Fetch), oneBatchAtATime(cluster))
	var got []string
	check(t, s.log.Read(t.Context(), 0, 0, 9, func(r *kgo.Record) error {
		got = append(got, string(r.Key))
		if r.Offset%3 == 0 {
			return cluster.MoveTopicPartition(s.topic, 0, (cluster.LeaderFor(s.topic, 0)+1)%3)
		}
		return nil
	}))
	if !slices.Equal(got, keys) {
		t.Errorf("read are %q, want %q", got, keys)
	}
}

// oneBatchAtATime makes every fetch so small that a moved leader is met.
func oneBatchAtATime(cluster *kfake.Cluster) func(kmsg.Request) (kmsg.Response, error, bool) {
	return func(request kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		request.(*kmsg.FetchRequest).Topics[0].Partitions[0].PartitionMaxBytes = 1
		return nil, nil, false
	}
}

func TestWhatCannotBeReadIsSaidAtOnce(t *testing.T) {
	s, cluster := newOwnStage(t, 1)
	s.put("a", "b", "c")
	nothing := func(*kgo.Record) error { return nil }
	missing := must(eventlog.Open(s.kafka, "no.such.topic"))(t)
	t.Cleanup(missing.Close)
	check(t, cluster.DeleteRecords(s.topic, 0, 2))
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for name, c := range map[string]struct {
		read func() error
		want string
	}{
		"a topic that is not there":               {func() error { return missing.Read(t.Context(), 0, 0, 1, nothing) }, "no such topic"},
		"a topic that is not there, as a whole":   {func() error { return missing.ReadAll(t.Context(), nothing) }, "no.such.topic"},
		"a partition that is not there":           {func() error { return s.log.Read(t.Context(), 7, 0, 1, nothing) }, "no such partition"},
		"an offset before the start of the log":   {func() error { return s.log.Read(t.Context(), 0, 0, 3, nothing) }, kerr.OffsetOutOfRange.Message},
		"an offset after its end":                 {func() error { return s.log.Read(t.Context(), 0, 9, 10, nothing) }, kerr.OffsetOutOfRange.Message},
		"anything once the caller has had enough": {func() error { return s.log.Read(over, 0, 2, 3, nothing) }, context.Canceled.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			began := time.Now()
			err := c.read()
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("the error is %v, want one that says %q", err, c.want)
			}
			if took := time.Since(began); took > 10*time.Second {
				t.Errorf("it took %s to say so", took)
			}
		})
	}
}

func TestATopicThatIsMadeAgainIsAnotherLog(t *testing.T) {
	s, cluster := newOwnStage(t, 1)
	s.put("a", "b", "c")
	cluster.ControlKey(int16(kmsg.Fetch), oneBatchAtATime(cluster))
	err := s.log.Read(t.Context(), 0, 0, 3, func(r *kgo.Record) error {
		if r.Offset > 0 {
			return nil
		}
		check(t, cluster.DeleteTopic(s.topic))
		check(t, cluster.CreateTopic(s.topic, 1, nil))
		check(t, s.connect().ProduceSync(t.Context(), &kgo.Record{Topic: s.topic}, &kgo.Record{Topic: s.topic}, &kgo.Record{Topic: s.topic}).FirstErr())
		return nil
	})
	if err == nil || !strings.Contains(err.Error(), "made again") {
		t.Errorf("the error is %v, want one that says that the topic was made again", err)
	}
}

func TestABatchThatUnpacksToGigabytesIsAnErrorAndTakesNoMemory(t *testing.T) {
	s := newStage(t)
	s.put("before")
	bomb := s.connect(kgo.WithCompressor(bomber{}))
	value := make([]byte, 512<<10) // the client sends what is compressed only where it is smaller
	if err := bomb.ProduceSync(t.Context(), &kgo.Record{Topic: s.topic, Key: []byte("bomb"), Value: value}).FirstErr(); err != nil {
		t.Skipf("the broker takes no such batch: %s", err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	err := s.log.ReadAll(t.Context(), func(*kgo.Record) error { return nil })
	runtime.ReadMemStats(&after)
	if !errors.As(err, new(*kgo.ErrDecompressTooLarge)) {
		t.Errorf("the error is %v, want that the batch is too large", err)
	}
	if took := (after.TotalAlloc - before.TotalAlloc) >> 20; took > 300 {
		t.Errorf("the read took %d MiB of memory", took)
	}
}

// bomber compresses every batch to the same few kilobytes: a gigabyte of zeros.
type bomber struct{}

func (bomber) Compress(*bytes.Buffer, []byte, ...kgo.CompressFlag) ([]byte, kgo.CompressionCodecType) {
	return theBomb, kgo.CodecZstd
}

var theBomb = func() []byte {
	encoder, err := zstd.NewWriter(nil)
	if err != nil {
		panic(err)
	}
	return encoder.EncodeAll(make([]byte, 1<<30), nil)
}()
