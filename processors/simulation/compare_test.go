package simulation

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/tooltape/tooltape/schemas"
	"github.com/tooltape/tooltape/schemas/event"
	"github.com/tooltape/tooltape/sinks/memory"
)

const conflict = event.Conflict

// compare holds the tables against the model.
func (w *world) compare(what string, tables *memory.Sink, want expected) {
	for _, id := range slices.Sorted(maps.Keys(want.sessions)) {
		var wrong []string
		for _, o := range want.sessions[id] {
			if d := differs(tables, id, o); d != "" {
				wrong = append(wrong, d)
			}
		}
		if len(wrong) == len(want.sessions[id]) {
			w.fail("%s: %s: %s\n    its records: %s", what, id, strings.Join(wrong, "; or else "), w.recordsOf(id))
		}
	}
	got := map[coordinates]event.Code{}
	for p := range w.partitions {
		for _, a := range tables.SetAside(p) {
			got[coordinates{p, a.Offset}] = a.Code
		}
	}
	for at, code := range want.setAside {
		if got[at] != code {
			w.fail("%s: the record at %+v is set aside as %q, want %q", what, at, got[at], code)
		}
	}
	for at, code := range got {
		if _, ok := want.setAside[at]; !ok {
			w.fail("%s: the record at %+v is set aside as %q, and should not be", what, at, code)
		}
	}
}

// differs says what is wrong with a session, or nothing.
func differs(tables *memory.Sink, id string, want outcome) string {
	is := tables.Session(id)
	var rows []row
	for _, r := range tables.Rows(id) {
		rows = append(rows, row{r.Seq, r.Index, r.EventID, r.RunID.Or(""), textOf(r.Item)})
	}
	switch {
	case is.Watermark.Seq != want.seq || is.Watermark.EventID != want.last:
		return fmt.Sprintf("its watermark is %d (%s), want %d (%s); parked %+v", is.Watermark.Seq, is.Watermark.EventID, want.seq, want.last, is.Parked)
	case !slices.Equal(rows, want.rows):
		return fmt.Sprintf("its rows are %v, want %v", rows, want.rows)
	case is.Parked == nil && want.parked != nil:
		return fmt.Sprintf("it is not parked, want %v", want.parked)
	case is.Parked != nil && !slices.Contains(want.parked, reason{is.Parked.Code, is.Parked.Seq}):
		return fmt.Sprintf("it is parked as %+v, want %+v", *is.Parked, want.parked)
	}
	return ""
}

// erased: content that came behind the marker of its purge is no longer what the log holds under its key.
func (w *world) erased() {
	held := w.readLog()
	for _, marker := range w.wholeLog() {
		if marker.kind != closed && marker.kind != runPurged {
			continue
		}
		for _, e := range w.log[marker.partition] {
			if e.session != marker.session || e.offset < marker.offset || e.kind != good && e.kind != poison || marker.kind == runPurged && (e.run != marker.run || e.unreadable) {
				continue
			}
			value := held[e.partition][e.key]
			if marker.kind == closed && value != nil || marker.kind == runPurged && value != nil && !isPurgedCopy(value) {
				w.fail("the content at offset %d of partition %d came behind %s and is still there%s", e.offset, e.partition, marker.key, w.recordsOf(e.session))
			}
		}
	}
}

func isPurgedCopy(value []byte) bool {
	e, err := schemas.NewDecoder(nil).Decode(context.Background(), value)
	return err == nil && e.Type == event.EventPurgedType
}

// readLog is the last value of each key, by partition.
func (w *world) readLog() map[int32]map[string][]byte {
	held, offsets, left := map[int32]map[string][]byte{}, map[int32]kgo.Offset{}, 0
	for _, p := range w.cluster.PartitionInfos(w.topics.Events()) {
		held[p.Partition], offsets[p.Partition] = map[string][]byte{}, kgo.NewOffset().AtStart()
		left++
	}
	client := must(kgo.NewClient(kgo.SeedBrokers(w.cluster.ListenAddrs()...), kgo.Dialer(w.virtual.DialContext),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{w.topics.Events(): offsets})))
	defer client.Close()
	for left > 0 {
		client.PollFetches(w.t.Context()).EachPartition(func(f kgo.FetchTopicPartition) {
			for _, r := range f.Records {
				held[r.Partition][string(r.Key)] = r.Value
				if r.Offset+1 == f.HighWatermark {
					left--
				}
			}
		})
	}
	return held
}

// recordsOf are the session's records, for whoever reads of a failure.
func (w *world) recordsOf(id string) string {
	out := ""
	for _, e := range w.wholeLog() {
		if e.session == id {
			out += fmt.Sprintf("\n      %d:%d %s %d %s prev %s run %q new %t %s", e.partition, e.offset, e.kind, e.seq, short(e.id), short(e.prev), e.run, e.newBuild, e.code)
		}
	}
	return out
}

func short(id string) string {
	if len(id) < 4 {
		return "-"
	}
	return id[len(id)-4:]
}
