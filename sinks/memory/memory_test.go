package memory_test

import (
	"strings"
	"testing"

	"github.com/tooltape/tooltape/processors/projection"
	"github.com/tooltape/tooltape/sinks"
	"github.com/tooltape/tooltape/sinks/memory"
	"github.com/tooltape/tooltape/sinks/sinktest"
)

func TestSink(t *testing.T) {
	sinktest.Run(t, func(*testing.T) sinktest.Store {
		s := memory.New()
		s.Refuse = func(e sinks.Projected) string {
			if strings.Contains(e.Event.RunID.Value, "\x00") {
				return "the run id holds U+0000"
			}
			return ""
		}
		return sinktest.Store{
			Sink:     s,
			Rows:     func(_ testing.TB, id string) []sinktest.Row { return rows(s.Rows(id)) },
			SetAside: func(_ testing.TB, partition int32) []sinks.SetAside { return s.SetAside(partition) },
		}
	})
}

func rows(stored []memory.Row) []sinktest.Row {
	var all []sinktest.Row
	for _, r := range stored {
		all = append(all, sinktest.Row{Seq: r.Seq, Index: r.Index, EventID: r.EventID, RunID: r.RunID, OccurredAt: r.OccurredAt,
			JSON: string(projection.AppendJSON(nil, r.Item))})
	}
	return all
}
