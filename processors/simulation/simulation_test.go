// Package simulation runs the real processor against Kafka and tables that live in the process and on a clock of their own, does to them
// whatever a seed chooses, and compares the tables with a model that reads the log as a whole. It holds tests only.
//
// A seed fixes what is written and what goes wrong, not every interleaving of goroutines: one that fails is repeated, and the report says
// how often it failed.
//
//	go test ./processors/simulation                      200 seeds
//	go test ./processors/simulation -seeds 2000 -from 1  more of them
//	go test ./processors/simulation -planted             whether bugs that are planted are found
package simulation

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

var (
	seeds   = flag.Int("seeds", 200, "how many seeds to simulate")
	from    = flag.Uint64("from", 1, "the first seed")
	again   = flag.Int("again", 100, "how often a seed that fails is repeated")
	planted = flag.Bool("planted", false, "plant bugs, and see whether they are found")
)

func TestSeeds(t *testing.T) {
	bin := build(t, nil)
	begun := time.Now()
	var bad []verdict
	hung := 0
	for v := range bin.run(t, *from, *seeds) {
		if v.how == hangs { // kgo can wait for itself; what hangs twice is ours
			hung++
			t.Logf("seed %d hung", v.seed)
			v = bin.once(t, v.seed)
		}
		if v.how != passes {
			bad = append(bad, v)
		}
	}
	t.Logf("%d seeds from %d in %s, %d of them hung once", *seeds, *from, time.Since(begun).Round(time.Millisecond), hung)
	slices.SortFunc(bad, func(a, b verdict) int { return int(a.seed) - int(b.seed) })
	for i, v := range bad {
		often := "not repeated"
		if i < 3 {
			often = bin.repeated(t, v.seed, *again)
		}
		t.Errorf("seed %d %s; %s\nagain: go test ./processors/simulation -run TestSeeds -from %d -seeds 1\n%s", v.seed, v.how, often, v.seed, v.text)
	}
}

func TestABuildThatWouldParkTheWorldStopsAndTheNextOneGoesOn(t *testing.T) {
	bin := build(t, nil)
	if v := bin.once(t, badBuildSeed); v.how != passes {
		t.Errorf("it %s\n%s", v.how, v.text)
	}
}

// badBuildSeed stands for the one simulation that no seed chooses.
const badBuildSeed = 0

// TestInChild is what the others start: in a process of its own, so that what hangs can be ended, and with kgo's locks as its tests have
// them, which the clock does not wait for.
func TestInChild(t *testing.T) {
	var first uint64
	var n, times int
	if _, err := fmt.Sscan(os.Getenv(childVariable), &first, &n, &times); err != nil {
		t.Skip("only as a child of the other tests")
	}
	for seed := first; seed < first+uint64(n); seed++ {
		for range times {
			fmt.Fprintln(os.Stdout, beginLine, seed)
			failures, schedule := simulate(t, seed)
			verdict := passes
			if len(failures) > 0 {
				verdict = fails
				fmt.Fprintf(os.Stdout, "%s\nwhat happened to it:\n%s\n", strings.Join(failures, "\n"), strings.Join(schedule, "\n"))
			}
			fmt.Fprintln(os.Stdout, endLine, seed, verdict)
		}
	}
}
