// Command badevent does what a careless writer does: it appends JSON where every reader expects Avro. The tour in README.md uses it
// to show what becomes of the session, and of its neighbours. It needs TOOLTAPE_BROKERS.
//
//	go run ./docs/examples/badevent SESSION SEQ
package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/tooltape/tooltape/schemas"
)

func main() {
	if err := run(context.Background(), os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "badevent:", err)
		os.Exit(1) //nolint:forbidigo // this is a main
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) != 2 {
		return fmt.Errorf("it takes a session and a seq")
	}
	session := args[0]
	seq, err := strconv.ParseInt(args[1], 10, 64)
	if err != nil {
		return err
	}
	client, err := kgo.NewClient(
		kgo.SeedBrokers(strings.Split(os.Getenv("TOOLTAPE_BROKERS"), ",")...),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
	)
	if err != nil {
		return err
	}
	defer client.Close()
	topic := schemas.Topics{Prefix: os.Getenv("TOOLTAPE_TOPIC_PREFIX")}.Events()
	topics, err := kadm.NewClient(client).ListTopics(ctx, topic)
	if err != nil {
		return err
	}
	// Key and partition are right, so that the record reaches its session. The value is not.
	return client.ProduceSync(ctx, &kgo.Record{
		Topic:     topic,
		Partition: schemas.Partition(session, int32(len(topics[topic].Partitions))),
		Key:       []byte(schemas.EventKey(session, seq, uuid.NewString())),
		Value:     []byte(`{"type":"user.message.created","payload":{"content":[{"type":"text","text":"Hello."}],"trust":"user"}}`),
	}).FirstErr()
}
