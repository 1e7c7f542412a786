package history_test

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tooltape/tooltape/processors/projection"
	"github.com/tooltape/tooltape/schemas/event"
	"github.com/tooltape/tooltape/sinks"
	"github.com/tooltape/tooltape/sinks/history"
	"github.com/tooltape/tooltape/sinks/postgres"
	"github.com/tooltape/tooltape/sinks/sinktest"
)

// BenchmarkWrite compares Write with its floor: the plainest insert of the same rows that may be repeated, without watermark, position
// or check. The two take turns, so that what else the machine does slows both.
func BenchmarkWrite(b *testing.B) {
	for _, size := range []struct{ bytes, rows int }{{300, 2000}, {2 << 10, 500}, {32 << 10, 100}} {
		b.Run(fmt.Sprintf("%dB", size.bytes), func(b *testing.B) {
			pool := sinktest.Connect(b, sinktest.Database(b, history.View()))
			sink := postgres.New(pool, history.View())
			at, err := sink.Acquire(b.Context(), 0, sinks.Topic{ID: uuid.NewString(), Partitions: 1})
			if err != nil {
				b.Fatal(err)
			}
			if _, err := pool.Exec(b.Context(), `CREATE TABLE floor (LIKE tooltape.history_item INCLUDING ALL)`); err != nil {
				b.Fatal(err)
			}
			events := benchmarkEvents(size.bytes, size.rows)
			var write, floor stopwatch
			for round := 0; b.Loop(); round++ {
				renew(events, round)
				batch := sinks.Batch{At: at, NextOffset: at.NextOffset + int64(len(events)), Events: events}
				write.time(func() { at, err = sink.Write(b.Context(), batch) })
				if err != nil {
					b.Fatal(err)
				}
				floor.time(func() { err = insertPlainly(b, pool, events) })
				if err != nil {
					b.Fatal(err)
				}
			}
			rows := float64(b.N * size.rows)
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(rows/write.wall.Seconds(), "rows/s")
			b.ReportMetric(rows/floor.wall.Seconds(), "floor-rows/s")
			b.ReportMetric(floor.wall.Seconds()/write.wall.Seconds(), "of-floor")
			b.ReportMetric(float64(write.cpu.Microseconds())/rows, "client-µs/row")
			b.ReportMetric(float64(floor.cpu.Microseconds())/rows, "floor-client-µs/row")
		})
	}
}

// stopwatch sums up what runs under it: the time, and this process's processor time.
type stopwatch struct{ wall, cpu time.Duration }

func (s *stopwatch) time(run func()) {
	wall, cpu := time.Now(), processorTime()
	run()
	s.wall += time.Since(wall)
	s.cpu += processorTime() - cpu
}

func processorTime() time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		panic(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// insertPlainly is the floor.
func insertPlainly(b *testing.B, pool *pgxpool.Pool, events []sinks.Projected) error {
	n := len(events)
	seqs, indexes, times, ids := make([]int64, n), make([]int32, n), make([]time.Time, n), make([]uuid.UUID, n)
	runs, sessions, items := make([]string, n), make([]string, n), make([]string, n)
	for i, e := range events {
		seqs[i], times[i] = e.Event.Seq, e.Event.OccurredAt.Value
		ids[i] = uuid.MustParse(e.Event.EventID)
		runs[i], sessions[i] = e.Event.RunID.Value, e.Event.SessionID
		items[i] = string(projection.AppendJSON(nil, e.Items[0]))
	}
	_, err := pool.Exec(b.Context(), `
		INSERT INTO floor (builder_version, seq, item_index, occurred_at, event_id, run_id, session_id, item)
		SELECT 1, * FROM unnest($1::bigint[], $2::integer[], $3::timestamptz[], $4::uuid[], $5::text[], $6::text[], $7::json[])
		ON CONFLICT DO NOTHING`, seqs, indexes, times, ids, runs, sessions, items)
	return err
}

// benchmarkEvents are tool results of sessions of 20 events each, in the order of a partition.
func benchmarkEvents(bytes, rows int) []sinks.Projected {
	text := strings.Repeat(`{"id":17,"name":"A picture of a lighthouse","found":true,"score":0.731} `, bytes/72+1)[:bytes]
	events := make([]sinks.Projected, rows)
	for i := range events {
		item := projection.ToolResult{CallID: "call_1", Content: []event.Part{event.Text{Text: text}}, Trust: event.ExternalUntrusted}
		events[i] = sinks.Projected{Items: []projection.Item{item}}
		events[i].Event.OccurredAt = event.Some(time.Now())
	}
	return events
}

// renew makes new events of the old ones.
func renew(events []sinks.Projected, round int) {
	sessions := max(len(events)/20, 1)
	for i := range events {
		e := &events[i].Event
		e.SessionID = uuid.NewSHA1(uuid.NameSpaceOID, fmt.Append(nil, round, i%sessions)).String()
		e.Seq = int64(i/sessions) + 1
		e.EventID = uuid.NewString()
		e.RunID = event.Some(e.SessionID[:8])
	}
}
