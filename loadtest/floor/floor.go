// Package floor is what the product is measured against: the plainest consumer that turns the same log into the same rows. It decodes
// whole records with goavro, checks nothing, keeps no watermarks, parks nothing, and commits its position to Kafka after the rows.
//
// It imports goavro itself, the one package beside schemas that may: it stands for what somebody without Tooltape would write, and a
// door in schemas that leads past the walk which makes goavro safe would be there for the product, too.
package floor

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/errgroup"

	"github.com/tooltape/tooltape/processors"
)

// Config is what the floor shares with the product: broker, topic, database, fetches, batches and workers.
type Config struct {
	Brokers     []string
	Topic       string
	Group       string
	DatabaseURL string
	// Stored is told after each insert how many events were stored so far. It may be called by several goroutines.
	Stored func(total int64)
}

// Run consumes until ctx ends.
func Run(ctx context.Context, cfg Config) error {
	decoder, err := newDecoder()
	if err != nil {
		return err
	}
	pool, err := pgxpool.New(ctx, cfg.DatabaseURL)
	if err != nil {
		return err
	}
	defer pool.Close()
	client, err := kgo.NewClient(append(processors.Fetching(processors.DefaultFetchBytes),
		kgo.SeedBrokers(cfg.Brokers...),
		kgo.ConsumerGroup(cfg.Group), kgo.ConsumeTopics(cfg.Topic),
		kgo.ConsumeStartOffset(kgo.NewOffset().AtStart()),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.AutoCommitMarks(),
	)...)
	if err != nil {
		return err
	}
	defer client.Close()
	f := &floor{client: client, pool: pool, decoder: decoder, stored: cfg.Stored}
	for {
		fetches := client.PollFetches(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err := fetches.Err(); err != nil {
			return fmt.Errorf("reading topic %s: %w", cfg.Topic, err)
		}
		if err := f.storeAll(ctx, fetches); err != nil {
			return err
		}
	}
}

type floor struct {
	client  *kgo.Client
	pool    *pgxpool.Pool
	decoder *decoder
	total   atomic.Int64
	stored  func(int64)
}

// storeAll works on as many partitions at once as the product does.
func (f *floor) storeAll(ctx context.Context, fetches kgo.Fetches) error {
	var g errgroup.Group
	g.SetLimit(processors.DefaultWorkers)
	fetches.EachPartition(func(p kgo.FetchTopicPartition) {
		if len(p.Records) > 0 {
			g.Go(func() error { return f.store(ctx, p.Records) })
		}
	})
	return g.Wait()
}

func (f *floor) store(ctx context.Context, records []*kgo.Record) error {
	for len(records) > 0 {
		n := batch(records)
		rows, err := f.decoder.rows(records[:n])
		if err != nil {
			return err
		}
		if err := insert(ctx, f.pool, rows); err != nil {
			return err
		}
		f.client.MarkCommitRecords(records[:n]...)
		f.stored(f.total.Add(int64(n)))
		records = records[n:]
	}
	return nil
}

// batch is how many of the records make up one insert: as many as make up one transaction of the product.
func batch(records []*kgo.Record) int {
	size := 0
	for i, r := range records[:min(len(records), processors.DefaultBatchRecords)] {
		if size += len(r.Value); size > processors.DefaultBatchBytes && i > 0 {
			return i
		}
	}
	return min(len(records), processors.DefaultBatchRecords)
}
