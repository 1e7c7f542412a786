//go:build unix

package local

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

func startKafka(t *testing.T, o KafkaOptions) *Kafka {
	t.Helper()
	k, err := StartKafka(t.Context(), o)
	must(t, err)
	t.Cleanup(k.Stop)
	return k
}

func kafkaClient(t *testing.T, broker string, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	client, err := kgo.NewClient(append(opts, kgo.SeedBrokers(broker))...)
	must(t, err)
	t.Cleanup(client.Close)
	return client
}

func produce(t *testing.T, broker, value string) {
	t.Helper()
	record := &kgo.Record{Topic: "t", Value: []byte(value)}
	must(t, kafkaClient(t, broker).ProduceSync(t.Context(), record).FirstErr())
}

// consume reads the first record of the topic t.
func consume(t *testing.T, broker string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	client := kafkaClient(t, broker, kgo.ConsumeTopics("t"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	fetches := client.PollRecords(ctx, 1)
	must(t, fetches.Err())
	return string(fetches.Records()[0].Value)
}

func TestKafkaKeepsItsRecordsAndPort(t *testing.T) {
	dir := t.TempDir()
	first := startKafka(t, KafkaOptions{Dir: dir, Topics: map[string]int32{"t": 1}})
	produce(t, first.Brokers[0], "kept")
	first.Stop()

	second := startKafka(t, KafkaOptions{Dir: dir, Topics: map[string]int32{"t": 1, "later": 3}})
	if second.Brokers[0] != first.Brokers[0] {
		t.Errorf("the broker moved from %s to %s", first.Brokers[0], second.Brokers[0])
	}
	if got := consume(t, second.Brokers[0]); got != "kept" {
		t.Errorf("read %q", got)
	}
}

func TestKafkaSurvivesAKill(t *testing.T) {
	dir := t.TempDir()
	parent, s := startHelper(t, "kafka", dir)
	produce(t, s.Address, "kept")

	_, err := StartKafka(t.Context(), KafkaOptions{Dir: dir})
	refused(t, err, dir, "in use by another tooltape")

	kill(t, parent)
	again := startKafka(t, KafkaOptions{Dir: dir})
	if got := consume(t, again.Brokers[0]); got != "kept" {
		t.Errorf("read %q", got)
	}
}

func TestKafkaPortTaken(t *testing.T) {
	taken := occupy(t, 0)
	_, err := StartKafka(t.Context(), KafkaOptions{Port: taken})
	refused(t, err, "Kafka cannot have port", "choose another port")

	dir := t.TempDir()
	must(t, rememberPort(dir, "kafka", taken))
	k := startKafka(t, KafkaOptions{Dir: dir})
	if lastPort(dir, "kafka") == taken {
		t.Errorf("it says it listens on the taken port; brokers %v", k.Brokers)
	}
}

func TestKafkaMakesNoTopicByItself(t *testing.T) {
	k := startKafka(t, KafkaOptions{})
	client := kafkaClient(t, k.Brokers[0], kgo.AllowAutoTopicCreation(), kgo.UnknownTopicRetries(0))
	err := client.ProduceSync(t.Context(), &kgo.Record{Topic: "misspelt", Value: []byte("x")}).FirstErr()
	if !errors.Is(err, kerr.UnknownTopicOrPartition) {
		t.Errorf("producing to a topic that is not there: %v", err)
	}
}
