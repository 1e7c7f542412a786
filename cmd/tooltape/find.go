package main

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tooltape/tooltape/processors/eventlog"
	"github.com/tooltape/tooltape/producer"
	"github.com/tooltape/tooltape/schemas"
	"github.com/tooltape/tooltape/schemas/event"
	"github.com/tooltape/tooltape/sinks"
	"github.com/tooltape/tooltape/sinks/history"
	"github.com/tooltape/tooltape/sinks/postgres"
)

// finder looks up where sessions end that this process has not written itself: by the history's watermarks where there is a database, and
// in the log beyond them. No stretch of the log is read twice, however many sessions are asked for.
type finder struct {
	log     *eventlog.Log
	decoder *schemas.Decoder
	pool    *pgxpool.Pool // nil: there is no database

	beyond *eventlog.Index           // all partitions, from the history's positions
	whole  map[int32]*eventlog.Index // single partitions, from their beginning
}

func (a *app) finder(ctx context.Context) (*finder, error) {
	decoder, err := a.decoder()
	if err != nil {
		return nil, err
	}
	log, err := a.eventLog(ctx)
	if err != nil {
		return nil, err
	}
	f := &finder{log: log, decoder: decoder, whole: map[int32]*eventlog.Index{}}
	if a.settings.databaseURL != "" {
		if f.pool, err = a.migrated(ctx); err != nil {
			log.Close()
			return nil, err
		}
	}
	return f, nil
}

// close lets the connections go.
func (f *finder) close() {
	f.log.Close()
	if f.pool != nil {
		f.pool.Close()
	}
}

// find is for producer.Config: what is appended again is to be recognised, and a partition key that is not stated to be the session's.
func (f *finder) find(ctx context.Context, sessions []string) (map[string]producer.Tail, error) {
	tails := map[string]producer.Tail{}
	for _, id := range sessions {
		var err error
		if tails[id], err = f.tail(ctx, id, true); err != nil {
			return nil, err
		}
	}
	return tails, nil
}

// tail is where a session ends. With wholly, the whole partition of a session that has events is read: then each of them is known by its
// seq, and the last one's run and partition key in any case.
func (f *finder) tail(ctx context.Context, session string, wholly bool) (producer.Tail, error) {
	if err := f.readBeyond(ctx); err != nil {
		return producer.Tail{}, err
	}
	var known sinks.Session
	if f.pool != nil {
		var err error
		if known, err = postgres.ReadSession(ctx, f.pool, history.Name, session); err != nil {
			return producer.Tail{}, err
		}
	}
	partition, index := event.Opt[int32]{}, f.beyond
	if known.Watermark.Seq > 0 {
		partition = event.Some(known.Watermark.Partition)
	}
	if known.Parked != nil { // its next events lie before the position
		partition = event.Some(known.Parked.Partition)
	}
	if partition.OK && (wholly || known.Parked != nil) {
		var err error
		if index, err = f.readWhole(ctx, partition.Value); err != nil {
			return producer.Tail{}, err
		}
	}
	end, err := index.End(session, eventlog.Known{Seq: known.Watermark.Seq, EventID: known.Watermark.EventID})
	if err != nil {
		return producer.Tail{}, err
	}
	t := producer.Tail{Seq: end.Seq, EventID: end.EventID, Recorded: end.Recorded, Partition: partition}
	if last := end.Last; last.OK {
		t.RunID, t.PartitionKey = last.Value.RunID, last.Value.PartitionKey
	}
	return t, nil
}

// readBeyond reads what the history has not, once. The positions come first: what is projected in between is then read twice, and
// nothing is missed.
func (f *finder) readBeyond(ctx context.Context) error {
	if f.beyond != nil {
		return nil
	}
	bounds, err := f.log.Bounds(ctx)
	if err != nil {
		return err
	}
	from := map[int32]int64{}
	for p := range bounds {
		from[int32(p)] = 0
	}
	if f.pool != nil {
		positions, err := postgres.Positions(ctx, f.pool, history.Name)
		if err != nil {
			return err
		}
		for _, p := range positions {
			from[p.Partition] = p.NextOffset
		}
	}
	f.beyond, err = f.log.Index(ctx, f.decoder, from)
	return err
}

func (f *finder) readWhole(ctx context.Context, partition int32) (*eventlog.Index, error) {
	if f.whole[partition] == nil {
		index, err := f.log.Index(ctx, f.decoder, map[int32]int64{partition: 0})
		if err != nil {
			return nil, err
		}
		f.whole[partition] = index
	}
	return f.whole[partition], nil
}
