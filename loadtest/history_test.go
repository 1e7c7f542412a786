package main

import (
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/tooltape/tooltape/deploy/local"
	"github.com/tooltape/tooltape/schemas"
	"github.com/tooltape/tooltape/schemas/event"
	"github.com/tooltape/tooltape/sinks/sinktest"
)

// TestMain lets this binary be the floor, as loadtest itself is when it starts it.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "floor" {
		main()
		return
	}
	os.Exit(sinktest.Main(m))
}

// Measuring fails where the sides store other rows than each other, in any round. No time is demanded: other tests run, too.
func TestHistoryMeasuresBothSides(t *testing.T) {
	brokers := firstOf("TOOLTAPE_TEST_BROKERS")
	if brokers == "" {
		kafka, err := local.StartKafka(t.Context(), local.KafkaOptions{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(kafka.Stop)
		brokers = strings.Join(kafka.Brokers, ",")
	}
	var out bytes.Buffer
	err := runHistory(t.Context(), options{
		rounds: 1, sizes: []int{300, 2 << 10}, events: 3000, sessions: 100, open: 30, partitions: 4,
		brokers: strings.Split(brokers, ","), databaseURL: sinktest.EmptyDatabase(t), output: "json",
	}, &out)
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Ratio300 float64 `json:"ratio_300b"`
		Ratio2K  float64 `json:"ratio_2k"`
		Sizes    []sized `json:"sizes"`
	}
	if err := json.Unmarshal(out.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if got.Ratio300 <= 0 || got.Ratio2K <= 0 || len(got.Sizes) != 2 || got.Sizes[0].Events != 3000 || got.Sizes[0].Rounds != 1 {
		t.Errorf("the report says %s", out.String())
	}
}

func TestTheLoadIsWhatWasAskedFor(t *testing.T) {
	for _, l := range []load{
		{size: 300, events: 1000, sessions: 20, open: 7},
		{size: 2048, events: 100, sessions: 1, open: 1000},
		{size: 32 << 10, events: 10, sessions: 10, open: 3},
	} {
		decoder, last, events, bytes := schemas.NewDecoder(nil), map[string]event.Event{}, 0, 0
		err := newFiller(l).each(func(e event.Event, value []byte) error {
			read, err := decoder.Decode(t.Context(), value)
			if err != nil {
				return err
			}
			before := last[e.SessionID]
			if read.Seq != before.Seq+1 || read.PrevEventID.Value != before.EventID {
				t.Errorf("seq %d of a session follows %d", read.Seq, before.Seq)
			}
			last[e.SessionID] = read
			events++
			bytes += len(value)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if mean := bytes / events; events != l.events || len(last) != l.sessions || mean < l.size-20 || mean > l.size+20 {
			t.Errorf("asked for %+v, got %d events of %d sessions, of %d bytes", l, events, len(last), mean)
		}
	}
}

func TestSidesThatDifferAreNoResult(t *testing.T) {
	_, err := summarize(load{}, 0, map[string][]sample{floorName: {{checksum: "3 rows, 1"}}, productName: {{checksum: "2 rows, 1"}}})
	if err == nil || !strings.Contains(err.Error(), "did not store the same") {
		t.Errorf("got %v", err)
	}
}
