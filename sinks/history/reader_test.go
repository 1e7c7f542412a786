package history_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
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

// bench is a database with a writer on partition 0 and a reader.
type bench struct {
	*testing.T
	pool   *pgxpool.Pool
	sink   *postgres.Sink
	reader *history.Reader
	at     sinks.Position
}

func newBench(t *testing.T) *bench {
	pool := sinktest.Connect(t, sinktest.Database(t, history.View()))
	b := &bench{T: t, pool: pool, sink: postgres.New(pool, history.View()), reader: history.NewReader(pool)}
	at, err := b.sink.Acquire(t.Context(), 0, sinks.Topic{ID: uuid.NewString(), Partitions: 4})
	if err != nil {
		t.Fatal(err)
	}
	b.at = at
	return b
}

func (b *bench) write(events []sinks.Projected, parked ...sinks.Parked) {
	b.Helper()
	at, err := b.sink.Write(b.Context(), sinks.Batch{At: b.at, NextOffset: b.at.NextOffset + int64(len(events)), Events: events, Parked: parked})
	if err != nil {
		b.Fatal(err)
	}
	b.at = at
}

// says is an event in which the user says something, or nothing that gives an item.
func says(seq int64, text string) sinks.Projected {
	var p sinks.Projected
	p.Event.SessionID, p.Event.Seq, p.Event.EventID = "s", seq, uuid.NewString()
	if text != "" {
		p.Items = []projection.Item{projection.User{Content: []event.Part{event.Text{Text: text}}, Trust: event.User, SourceSeq: seq}}
	}
	return p
}

func waits() sinks.Parked {
	return sinks.Parked{SessionID: "s", FromOffset: 4, Offset: 7, Seq: 3, Code: event.BadEvent, Message: "the call has no id", Since: time.Now(),
		Builds: []string{"abc"}}
}

func TestReadGivesItemsInOrder(t *testing.T) {
	b := newBench(t)
	two := says(2, "two\x00")
	two.Items = append(two.Items, projection.ToolCall{CallID: "c", Name: "n", Arguments: `{"n":1e999}`, SourceSeq: 2})
	two.Event.RunID = event.Some("run")
	two.Event.OccurredAt = event.Some(time.Date(2026, 5, 6, 7, 8, 9, 1000, time.UTC))
	one, three := says(1, "one"), says(3, "")
	b.write([]sinks.Projected{one, two, three})

	got, err := b.reader.Read(t.Context(), "s", history.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if want := (sinks.Watermark{Seq: 3, EventID: three.Event.EventID}); got.Watermark != want {
		t.Errorf("the watermark is %+v, want %+v", got.Watermark, want)
	}
	if want := append(one.Items, two.Items...); !reflect.DeepEqual(got.Items(), want) {
		t.Errorf("the items are %+v, want %+v", got.Items(), want)
	}
	last := got.Rows[2]
	want := history.Row{Seq: 2, Index: 1, EventID: two.Event.EventID, RunID: two.Event.RunID, OccurredAt: two.Event.OccurredAt, Item: two.Items[1],
		JSON: projection.AppendJSON(nil, two.Items[1])}
	if !reflect.DeepEqual(last, want) {
		t.Errorf("the last row is %+v, want %+v", last, want)
	}
}

func TestReadOfWhatIsNotThereYet(t *testing.T) {
	b := newBench(t)
	if _, err := b.reader.Read(t.Context(), "s", history.Options{}); !errors.Is(err, history.ErrNotYet) {
		t.Errorf("an unknown session gives %v", err)
	}
	b.write([]sinks.Projected{says(1, "one")})
	if _, err := b.reader.Read(t.Context(), "s", history.Options{AtLeast: 2, Wait: 5 * time.Millisecond}); !errors.Is(err, history.ErrNotYet) {
		t.Errorf("an event to come gives %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := b.reader.Read(ctx, "s", history.Options{AtLeast: 2, Wait: time.Hour}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a context that ends gives %v", err)
	}
}

func TestReadWaitsForAnEvent(t *testing.T) {
	b := newBench(t)
	type result struct {
		history.History
		err error
	}
	results := make(chan result)
	go func() {
		h, err := b.reader.Read(t.Context(), "s", history.Options{AtLeast: 2, Wait: time.Minute})
		results <- result{h, err}
	}()
	b.write([]sinks.Projected{says(1, "one")})
	b.write([]sinks.Projected{says(2, "two")})
	if r := <-results; r.err != nil || len(r.Rows) != 2 || r.Watermark.Seq != 2 {
		t.Errorf("got %+v", r)
	}
}

func TestReadOfAParkedSession(t *testing.T) {
	b := newBench(t)
	b.write([]sinks.Projected{says(1, "one"), says(2, "two")}, waits())
	_, err := b.reader.Read(t.Context(), "s", history.Options{AtLeast: 9, Wait: time.Hour})
	var parked *history.ParkedError
	if !errors.As(err, &parked) || parked.Code != event.BadEvent || parked.Seq != 3 || parked.Offset != 7 || parked.Watermark.Seq != 2 {
		t.Fatalf("got %v", err)
	}
	for _, part := range []string{"session s", "event 3", "the call has no id", "bad_event", "partition 0", "offset 7"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q does not say %q", err, part)
		}
	}
}

func TestEachStopsWhereItsTakerDoes(t *testing.T) {
	b := newBench(t)
	var events []sinks.Projected
	for seq := range int64(1000) {
		events = append(events, says(seq+1, fmt.Sprint("text ", seq)))
	}
	b.write(events)
	enough := errors.New("enough")
	taken := 0
	_, err := b.reader.Each(t.Context(), "s", history.Options{}, func(history.Row) error {
		if taken++; taken == 10 {
			return enough
		}
		return nil
	})
	if !errors.Is(err, enough) || taken != 10 {
		t.Errorf("took %d: %v", taken, err)
	}
	if h, err := b.reader.Read(t.Context(), "s", history.Options{AtLeast: 1000}); err != nil || len(h.Rows) != 1000 {
		t.Errorf("afterwards it reads %d rows: %v", len(h.Rows), err)
	}
}

// A reader that took its rows and its watermark from different moments would see a watermark whose items are not there.
func TestReadSeesOneMoment(t *testing.T) {
	b := newBench(t)
	b.write([]sinks.Projected{says(1, "x")})
	done := make(chan error)
	go func() {
		for {
			h, err := b.reader.Read(t.Context(), "s", history.Options{})
			if err == nil && int64(len(h.Rows)) != h.Watermark.Seq {
				err = fmt.Errorf("%d rows at watermark %d", len(h.Rows), h.Watermark.Seq)
			}
			if err != nil || h.Watermark.Seq == 200 {
				done <- err
				return
			}
		}
	}()
	for seq := int64(2); seq <= 200; seq++ {
		b.write([]sinks.Projected{says(seq, "x")})
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestReadOfADatabaseThatWasNotMigrated(t *testing.T) {
	pool := sinktest.Connect(t, sinktest.EmptyDatabase(t))
	_, err := history.NewReader(pool).Read(t.Context(), "s", history.Options{})
	if !errors.Is(err, postgres.ErrNotMigrated) {
		t.Errorf("got %v", err)
	}
}
