package simulation

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

const (
	childVariable = "TOOLTAPE_SIMULATE"
	beginLine     = "--- begin"
	endLine       = "--- end"

	// children run side by side, each on one core.
	children = 2
	// stretch is how many seeds a child is given at once.
	stretch = 20
	// tooLong is when a seed hangs: it takes a tenth of a second.
	tooLong = 30 * time.Second
)

// how a seed ends.
const (
	passes  = "passes"
	fails   = "fails"
	hangs   = "hangs"
	crashes = "crashes"
)

type verdict struct {
	seed uint64
	how  string
	text string
}

// program is the simulation, built with the locks that let the clock move (kgo's build tag synctests).
type program struct{ path string }

// build builds the simulation, with some files replaced.
func build(t *testing.T, replaced map[string]string) program {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "simulation.test")
	args := []string{"test", "-c", "-tags", "synctests", "-o", path}
	if len(replaced) > 0 {
		overlay := filepath.Join(dir, "overlay.json")
		text, err := json.Marshal(map[string]any{"Replace": replaced})
		if err == nil {
			err = os.WriteFile(overlay, text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		args = append(args, "-overlay", overlay)
	}
	if out, err := exec.CommandContext(t.Context(), "go", append(args, ".")...).CombinedOutput(); err != nil {
		t.Fatalf("building the simulation: %v\n%s", err, out)
	}
	return program{path}
}

// run gives the verdicts of n seeds as they come. Who stops listening ends the children.
func (b program) run(t *testing.T, first uint64, n int) iter.Seq[verdict] {
	return func(yield func(verdict) bool) {
		work := make(chan [2]uint64)
		verdicts := make(chan verdict)
		stop := make(chan struct{})
		var wg sync.WaitGroup
		for range children {
			wg.Go(func() {
				for w := range work {
					b.child(t, w[0], int(w[1]), 1, stop, verdicts)
				}
			})
		}
		go func() {
			defer close(work)
			for at, end := first, first+uint64(n); at < end; at += stretch {
				select {
				case work <- [2]uint64{at, min(stretch, end-at)}:
				case <-stop:
					return
				}
			}
		}()
		go func() { wg.Wait(); close(verdicts) }()
		stopped := false
		for v := range verdicts {
			if !stopped && !yield(v) {
				stopped = true
				close(stop)
			}
		}
	}
}

// once gives the verdict of one seed.
func (b program) once(t *testing.T, seed uint64) verdict {
	verdicts := make(chan verdict, 1)
	b.child(t, seed, 1, 1, nil, verdicts)
	return <-verdicts
}

// repeated says how often a seed fails.
func (b program) repeated(t *testing.T, seed uint64, times int) string {
	ends := map[string]int{}
	for done := 0; done < times; {
		verdicts := make(chan verdict, times)
		b.child(t, seed, 1, times-done, nil, verdicts)
		close(verdicts)
		for v := range verdicts {
			done++
			ends[v.how]++
		}
	}
	return fmt.Sprintf("of %d repetitions %d fail, %d hang, %d crash", times, ends[fails], ends[hangs], ends[crashes])
}

// child runs seeds in a process of their own. Where a seed ends the process, the next one goes on with those after it; a repetition ends.
func (b program) child(t *testing.T, first uint64, n, times int, stop <-chan struct{}, verdicts chan<- verdict) {
	for end := first + uint64(n); first < end; first++ {
		cmd := exec.CommandContext(t.Context(), b.path, "-test.run", "^TestInChild$", "-test.timeout", "0")
		cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d %d %d", childVariable, first, end-first, times), "GOMAXPROCS=1")
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Error(err)
			return
		}
		cmd.Stderr = cmd.Stdout
		if err := cmd.Start(); err != nil {
			t.Error(err)
			return
		}
		last, ended := watch(cmd.Process, out, stop, verdicts)
		_ = cmd.Wait() // what it said is the verdict
		if ended || times > 1 {
			return
		}
		first = last
	}
}

// watch hands on the verdicts that a child prints, and ends it when a seed takes too long. It says which seed was the last, and whether
// the child came to its end.
func watch(p *os.Process, out io.Reader, stop <-chan struct{}, verdicts chan<- verdict) (last uint64, ended bool) {
	lines := make(chan string)
	go func() {
		defer close(lines)
		for s := bufio.NewReader(out); ; {
			line, err := s.ReadString('\n')
			if err != nil {
				return
			}
			lines <- line
		}
	}()
	v := verdict{how: passes}
	var text strings.Builder
	overdue := time.NewTimer(tooLong)
	defer overdue.Stop()
	for {
		select {
		case <-stop:
			_ = p.Kill()
			stop, ended = nil, true
		case <-overdue.C:
			v.how = hangs
			_ = p.Signal(syscall.SIGQUIT) // it prints where everybody stands
		case line, more := <-lines:
			switch {
			case !more:
				if v.how != passes && !ended {
					v.text = text.String()
					verdicts <- v
					return v.seed, false
				}
				return v.seed, true
			case strings.HasPrefix(line, beginLine):
				text.Reset()
				v.how = crashes // unless it is heard of again
				_, _ = fmt.Sscan(strings.TrimPrefix(line, beginLine), &v.seed)
				overdue.Reset(tooLong)
			case strings.HasPrefix(line, endLine):
				_, _ = fmt.Sscan(strings.TrimPrefix(line, endLine), &v.seed, &v.how)
				v.text = text.String()
				if !ended {
					verdicts <- v
				}
				v.how = passes
			default:
				text.WriteString(line)
			}
		}
	}
}
