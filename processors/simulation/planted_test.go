package simulation

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// within is how many seeds may pass before a planted bug is found.
const within = 50

// change replaces text in a file of this module.
type change struct{ file, old, new string }

// bugs are planted one at a time. The last ones were there, until the simulation found them.
var bugs = map[string][]change{
	"forget the epoch": {
		{"sinks/memory/memory.go", "case now.Epoch != at.Epoch:", "case false:"},
		{"sinks/memory/memory.go", "if p.Epoch != at.Epoch {", "if false {"},
	},
	"read uncommitted":        {{"processors/processors.go", "kgo.FetchIsolationLevel(kgo.ReadCommitted())", "kgo.FetchIsolationLevel(kgo.ReadUncommitted())"}},
	"forget the batch number": {{"sinks/memory/memory.go", "case now.Batch != at.Batch:", "case false:"}},
	"commit the position early": {{"processors/simulation/store_test.go", "	if err := s.before(ctx); err != nil { // a write that fails\n",
		"	if err := s.before(ctx); err != nil {\n_, _ = s.inner.Write(ctx, sinks.Batch{At: b.At, NextOffset: b.NextOffset})\n"}},
	"skip the prev_event_id check":                 {{"processors/decide.go", `case e.PrevEventID.Or("") != w.EventID:`, "case false:"}},
	"let a parked session's second event overtake": {{"processors/decide.go", "	case e.Seq > w.Seq+1:\n", "	case e.Seq == w.Seq+2:\n	case e.Seq > w.Seq+1:\n"}},
	"drop a row": {{"processors/decide.go", "	s.Watermark = sinks.Watermark{Seq: r.event.Seq",
		"	if r.event.Seq%7 == 0 {\n		items = nil\n	}\n	s.Watermark = sinks.Watermark{Seq: r.event.Seq"}},
	"double a row": {{"processors/decide.go", "	s.Watermark = sinks.Watermark{Seq: r.event.Seq",
		"	if r.event.Seq%7 == 0 && len(items) > 0 {\n		items = append(items, items[0])\n	}\n	s.Watermark = sinks.Watermark{Seq: r.event.Seq"}},
	"never set due": {{"processors/decide.go", "		p.Due = true\n", ""}},
	"unpark without scanning to the position": {
		{"processors/heal.go", "	sessions map[string]*patient\n", "	sessions map[string]*patient\n	to       int64\n"},
		{"processors/heal.go", "		to := h.position()\n", "		to := h.position()\n		h.to = to\n"},
		{"processors/heal.go", "h.read(ctx, at, h.at.NextOffset, h.take)", "h.read(ctx, at, h.to, h.take)"},
	},
	"raise from_offset": {
		{"sinks/memory/memory.go", "p.FromOffset = min(p.FromOffset, old.FromOffset)", "_ = old"},
		{"processors/decide.go", "	p.Code, p.Message = fault.Code", "	p.FromOffset = r.offset\n	p.Code, p.Message = fault.Code"},
	},
	"do not read again from the first event that was not taken": {{"processors/heal.go", "patient.pass.left > 0 && patient.pass.failed == nil {", "false {"}},
	"ignore that a session is closed and an event withdrawn":    {{"processors/marks.go", "return m.Closed || slices.Contains", "return slices.Contains([]string(nil), \"\") && slices.Contains"}},
	"ignore that a run is purged":                               {{"processors/marks.go", "return r.event.RunID.OK && slices", "return false && slices"}},
	"do not erase again what came behind its marker":            {{"processors/partition.go", "	if len(erasures) == 0 {", "	if true {"}},
	"treat stale as success":                                    {{"processors/partition.go", "case errors.Is(err, sinks.ErrStale): // only", "case errors.Is(err, sinks.ErrStale):\n			return nil // only"}},

	"a bad copy stands in the way of a good one":                         {{"processors/heal.go", "pass.failed != nil && r.place != pass.failed.place ||", "pass.failed != nil ||"}},
	"a scan ends the try of a session that was withdrawn from meanwhile": {{"processors/partition.go", "		p.erased[id] = true\n", "		_ = id\n"}},
	"what is withdrawn of a purged run is not erased again":              {{"processors/marks.go", "	case !m.Closed && len(m.Runs) > 0", "	case false"}},
	"a record on a wrong partition touches the parked row":               {{"processors/decide.go", "	case s.Parked != nil:\n		return s.Parked.Partition\n", ""}},
}

func TestPlantedBugsAreFound(t *testing.T) {
	if !*planted {
		t.Skip("takes minutes: -planted")
	}
	for v := range build(t, nil).run(t, 1, within) {
		if v.how == fails || v.how == crashes {
			t.Fatalf("seed %d %s with no bug planted", v.seed, v.how)
		}
	}
	for name, changes := range bugs {
		t.Run(name, func(t *testing.T) {
			bin := build(t, plant(t, changes))
			tried := 0
			for v := range bin.run(t, 1, within) {
				tried++
				if v.how == fails || v.how == crashes {
					first, _, _ := strings.Cut(v.text, "\n")
					t.Logf("found by seed %d, the %dth that was tried: %s", v.seed, tried, first)
					return
				}
			}
			t.Errorf("%d seeds have not found it", within)
		})
	}
}

// plant makes the changed files; each change must fit exactly once.
func plant(t *testing.T, changes []change) map[string]string {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	dir, texts := t.TempDir(), map[string]string{}
	for _, c := range changes {
		path := filepath.Join(root, c.file)
		if texts[path] == "" {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			texts[path] = string(text)
		}
		if n := strings.Count(texts[path], c.old); n != 1 {
			t.Fatalf("%s holds %d times what is to be replaced, %q: plant the bug anew", c.file, n, c.old)
		}
		texts[path] = strings.Replace(texts[path], c.old, c.new, 1)
	}
	replaced := map[string]string{}
	for path, text := range texts {
		replaced[path] = filepath.Join(dir, filepath.Base(path))
		if err := os.WriteFile(replaced[path], []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return replaced
}
