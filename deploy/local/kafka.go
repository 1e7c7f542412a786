package local

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
)

// KafkaOptions says where an in-process Kafka keeps its records and where it listens.
type KafkaOptions struct {
	Dir    string           // the records are kept here, for the next start; empty: in memory
	Port   int              // 0: the one it had in Dir before if that is free, else any free one
	Topics map[string]int32 // topics to make where they are missing, with their numbers of partitions
	Sync   bool             // every record survives a loss of power, not only the end of the process
}

// Kafka is a broker inside this process. It makes no topic by itself.
type Kafka struct {
	Brokers []string // for kgo.SeedBrokers

	cluster *kfake.Cluster
	lock    *os.File
	stop    sync.Once
}

// StartKafka starts a broker. ctx bounds the start; the broker runs until Stop or the end of the process. Records,
// committed offsets and topic ids outlive both, a SIGKILL too, if Dir is given.
func StartKafka(ctx context.Context, o KafkaOptions) (_ *Kafka, err error) {
	k := &Kafka{}
	defer func() {
		if err != nil {
			k.Stop()
		}
	}()
	if o.Dir != "" {
		if err := os.MkdirAll(o.Dir, 0o755); err != nil {
			return nil, fmt.Errorf("cannot make the directory for Kafka's records: %w", err)
		}
		if k.lock, err = lock(o.Dir, "kafka"); err != nil {
			return nil, err
		}
	}
	if k.cluster, err = newCluster(o); err != nil {
		return nil, err
	}
	k.Brokers = k.cluster.ListenAddrs()
	if o.Dir != "" {
		if err := k.rememberPort(o.Dir); err != nil {
			return nil, err
		}
	}
	if err := k.createTopics(ctx, o.Topics); err != nil {
		return nil, err
	}
	return k, nil
}

// Stop ends the broker. Close consumers before it: a member that did not leave its group is waited for after a restart,
// for as long as its session timeout (45 s by default).
func (k *Kafka) Stop() {
	k.stop.Do(func() {
		if k.cluster != nil {
			k.cluster.Close()
		}
		if k.lock != nil {
			_ = k.lock.Close()
		}
	})
}

// newCluster starts kfake on the port that was asked for, else on the last one, else on any. It listens itself, so
// there is no moment in which another process could take a port that was found free.
func newCluster(o KafkaOptions) (*kfake.Cluster, error) {
	if o.Port != 0 {
		cluster, err := kfake.NewCluster(kafkaSettings(o, o.Port)...)
		if _, portErr := tryPort(o.Port); err != nil && portErr != nil {
			return nil, portTaken("Kafka", o.Port, portErr)
		}
		return cluster, startError(o, err)
	}
	if port := lastPort(o.Dir, "kafka"); o.Dir != "" && port != 0 {
		if cluster, err := kfake.NewCluster(kafkaSettings(o, port)...); err == nil {
			return cluster, nil
		}
	}
	cluster, err := kfake.NewCluster(kafkaSettings(o, 0)...)
	return cluster, startError(o, err)
}

func startError(o KafkaOptions, err error) error {
	if err == nil || o.Dir == "" {
		return err
	}
	return fmt.Errorf("the in-process Kafka cannot start on the records in %s: %w; delete that directory to begin anew",
		filepath.Join(o.Dir, "kafka"), err)
}

func kafkaSettings(o KafkaOptions, port int) []kfake.Opt {
	opts := []kfake.Opt{
		kfake.NumBrokers(1),
		// Tests ask for short sessions, to see a dead consumer's partitions move without a long wait.
		kfake.GroupMinSessionTimeout(0),
		kfake.BrokerConfigs(map[string]string{
			"message.max.bytes":                 "8388608", // as the topics of Tooltape have it
			"log.cleaner.backoff.ms":            "15000",   // Kafka's default; kfake's is an hour
			"group.consumer.session.timeout.ms": "6000",
		}),
	}
	if port != 0 {
		opts = append(opts, kfake.Ports(port))
	}
	if o.Dir != "" {
		opts = append(opts, kfake.DataDir(filepath.Join(o.Dir, "kafka")))
	}
	if o.Sync {
		opts = append(opts, kfake.SyncWrites())
	}
	return opts
}

func (k *Kafka) rememberPort(dir string) error {
	_, text, err := net.SplitHostPort(k.Brokers[0])
	if err != nil {
		return err
	}
	port, err := strconv.Atoi(text)
	if err != nil {
		return err
	}
	return rememberPort(dir, "kafka", port)
}

// createTopics goes through a client: kfake itself seeds topics only in an empty directory.
func (k *Kafka) createTopics(ctx context.Context, topics map[string]int32) error {
	if len(topics) == 0 {
		return nil
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(k.Brokers...))
	if err != nil {
		return err
	}
	defer client.Close()
	admin := kadm.NewClient(client)
	existing, err := admin.ListTopics(ctx)
	if err != nil {
		return fmt.Errorf("cannot list Kafka's topics: %w", err)
	}
	for topic, partitions := range topics {
		if existing.Has(topic) {
			continue
		}
		if _, err := admin.CreateTopic(ctx, partitions, 1, nil, topic); err != nil {
			return fmt.Errorf("cannot create the topic %s: %w", topic, err)
		}
	}
	return nil
}
