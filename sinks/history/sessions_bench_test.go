package history_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/tooltape/tooltape/schemas/event"
	"github.com/tooltape/tooltape/sinks"
	"github.com/tooltape/tooltape/sinks/history"
	"github.com/tooltape/tooltape/sinks/postgres"
	"github.com/tooltape/tooltape/sinks/sinktest"
)

// BenchmarkSessions looks up the sessions of a batch, half of which are known, among 20,000.
func BenchmarkSessions(b *testing.B) {
	pool := sinktest.Connect(b, sinktest.Database(b, history.View()))
	sink := postgres.New(pool, history.View())
	at, err := sink.Acquire(b.Context(), 0, sinks.Topic{ID: uuid.NewString(), Partitions: 1})
	if err != nil {
		b.Fatal(err)
	}
	if _, err := pool.Exec(b.Context(), `INSERT INTO tooltape.watermark
		SELECT 'history', 'session-' || n, 1, gen_random_uuid(), 0 FROM generate_series(1, 20000) n`); err != nil {
		b.Fatal(err)
	}
	for _, n := range []int{1, 100, 2000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			ids := make([]string, n)
			for i := range ids {
				ids[i] = fmt.Sprintf("session-%d", 20_000-n/2+i)
			}
			for b.Loop() {
				if known, err := sink.Sessions(b.Context(), at, ids); err != nil || len(known) != n/2+1 {
					b.Fatal(len(known), err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/float64(n), "µs/session")
		})
	}
}

// BenchmarkWriteBesideParked writes batches of 2,000 events while 10,000 sessions are parked: with none of them in the batch, with 500
// that hold another event each, and, for comparison, while nothing is parked. They take turns, so that what else the machine does slows
// all.
func BenchmarkWriteBesideParked(b *testing.B) {
	const parked, events = 10_000, 2000
	kinds := []struct {
		name            string
		parked, updated int
	}{{"none", 0, 0}, {"untouched", parked, 0}, {"updated", parked, 500}}
	watches, stores := make([]stopwatch, len(kinds)), make([]*postgres.Sink, len(kinds))
	at, waiting := make([]sinks.Position, len(kinds)), make([][]sinks.Parked, len(kinds))
	for i, k := range kinds {
		stores[i], at[i], waiting[i] = parkedStore(b, k.parked)
	}
	batch := benchmarkEvents(300, events)
	for round := 0; b.Loop(); round++ {
		renew(batch, round)
		for turn := range kinds {
			i := (round + turn) % len(kinds)
			k := kinds[i]
			write := sinks.Batch{At: at[i], NextOffset: at[i].NextOffset + events, Events: batch}
			for j := range k.updated {
				p := &waiting[i][(round*k.updated+j*7)%parked]
				p.Held++
				write.Parked = append(write.Parked, *p)
			}
			var err error
			watches[i].time(func() { at[i], err = stores[i].Write(b.Context(), write) })
			if err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ReportMetric(0, "ns/op")
	for i, k := range kinds {
		b.ReportMetric(watches[i].wall.Seconds()*1000/float64(b.N), k.name+"-ms")
	}
}

// parkedStore is a store with so many parked sessions.
func parkedStore(b *testing.B, n int) (*postgres.Sink, sinks.Position, []sinks.Parked) {
	pool := sinktest.Connect(b, sinktest.Database(b, history.View()))
	sink := postgres.New(pool, history.View())
	at, err := sink.Acquire(b.Context(), 0, sinks.Topic{ID: uuid.NewString(), Partitions: 1})
	if err != nil {
		b.Fatal(err)
	}
	var parked []sinks.Parked
	for i := range n {
		parked = append(parked, sinks.Parked{SessionID: fmt.Sprintf("parked-%d", i), FromOffset: int64(i), Code: event.UnknownType,
			Message: "this build does not know the type", Since: time.Now(), Builds: []string{"4c1f7a2b9d"}})
	}
	if at, err = sink.Write(b.Context(), sinks.Batch{At: at, Parked: parked}); err != nil {
		b.Fatal(err)
	}
	if _, err := pool.Exec(b.Context(), `ANALYZE tooltape.parked`); err != nil {
		b.Fatal(err)
	}
	return sink, at, parked
}
