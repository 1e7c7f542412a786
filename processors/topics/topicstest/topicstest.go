// Package topicstest gives a test topics of its own, on the Kafka that TOOLTAPE_TEST_BROKERS names, else on one in this process. It
// ships in no binary.
package topicstest

import (
	"context"
	"crypto/rand"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/tooltape/tooltape/deploy/local"
	"github.com/tooltape/tooltape/processors/topics"
	"github.com/tooltape/tooltape/schemas"
)

// BrokersVariable names the environment variable that holds the bootstrap addresses of a real Kafka, with commas.
const BrokersVariable = "TOOLTAPE_TEST_BROKERS"

// inProcess is one Kafka for all tests of a process; it ends with it.
var inProcess = sync.OnceValues(func() (*local.Kafka, error) {
	return local.StartKafka(context.Background(), local.KafkaOptions{})
})

// Brokers are the bootstrap addresses of the tests' Kafka.
func Brokers(t testing.TB) []string {
	t.Helper()
	if named := os.Getenv(BrokersVariable); named != "" {
		return strings.Split(named, ",")
	}
	kafka, err := inProcess()
	if err != nil {
		t.Fatal(err)
	}
	return kafka.Brokers
}

// Real says whether the tests' Kafka is a real one.
func Real() bool { return os.Getenv(BrokersVariable) != "" }

// New makes topics under a prefix that no other test has.
func New(t testing.TB, partitions int32) schemas.Topics {
	t.Helper()
	names := schemas.Topics{Prefix: "t" + strings.ToLower(rand.Text()[:12])}
	admin := Admin(t)
	if _, err := topics.Apply(t.Context(), admin, topics.Spec{Topics: names, Partitions: partitions, ReplicationFactor: 1}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_, err := admin.DeleteTopics(context.Background(), names.Events(), names.Runs(), names.Decisions(), names.Retries())
		if err != nil {
			t.Errorf("deleting the test's topics: %s", err)
		}
		admin.Close()
	})
	return names
}

// Admin is a client of the tests' Kafka; New's is closed after its topics are deleted, so close this one yourself.
func Admin(t testing.TB) *kadm.Client {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(Brokers(t)...), kgo.MetadataMinAge(100*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	return kadm.NewClient(client)
}
