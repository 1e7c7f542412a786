package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/tooltape/tooltape/processors/topics/topicstest"
	"github.com/tooltape/tooltape/schemas"
	"github.com/tooltape/tooltape/sinks/history"
	"github.com/tooltape/tooltape/sinks/sinktest"
)

func TestMain(m *testing.M) {
	for _, setting := range os.Environ() { // what the tests say is all that the commands hear
		if name, _, _ := strings.Cut(setting, "="); strings.HasPrefix(name, "TOOLTAPE_") && !strings.HasPrefix(name, "TOOLTAPE_TEST_") {
			if err := os.Unsetenv(name); err != nil {
				panic(err)
			}
		}
	}
	os.Exit(sinktest.Main(m))
}

// cli runs command lines with some flags in common.
type cli struct {
	*testing.T
	flags []string
}

// bare is a command line without any settings.
func bare(t *testing.T) *cli { return &cli{T: t} }

// withKafka has topics of its own; their prefix is the last flag.
func withKafka(t *testing.T) *cli {
	t.Helper()
	return &cli{t, []string{"--brokers", strings.Join(topicstest.Brokers(t), ","), "--topic-prefix", topicstest.New(t, 4).Prefix}}
}

// copied is the same with other topics.
func (c *cli) copied() *cli {
	c.Helper()
	return withKafka(c.T)
}

// withDatabase has tables too.
func (c *cli) withDatabase() *cli {
	c.Helper()
	return &cli{c.T, append([]string{"--database-url", sinktest.Database(c, history.View())}, c.flags...)}
}

func (c *cli) prefix() string { return c.flags[len(c.flags)-1] }

// result is what a command line did.
type result struct {
	code      int
	out, errs string
}

// run runs a command line.
func (c *cli) run(args ...string) result {
	c.Helper()
	return c.runOn("", args...)
}

// runOn runs it with standard input.
func (c *cli) runOn(in string, args ...string) result {
	c.Helper()
	var out, errs strings.Builder
	code := run(c.Context(), append(args, c.flags...), strings.NewReader(in), &out, &errs)
	return result{code, out.String(), errs.String()}
}

// done demands exit code 0 of a command line, and is what it printed.
func (c *cli) done(args ...string) string {
	c.Helper()
	return c.doneOn("", args...)
}

func (c *cli) doneOn(in string, args ...string) string {
	c.Helper()
	r := c.runOn(in, args...)
	if r.code != exitDone {
		c.Fatalf("tooltape %s: exit code %d: %s", strings.Join(args, " "), r.code, r.errs)
	}
	return r.out
}

// failed demands an exit code and an error that says all this.
func (c *cli) failed(r result, code int, says ...string) {
	c.Helper()
	if r.code != code {
		c.Errorf("the exit code is %d, want %d: %s%s", r.code, code, r.out, r.errs)
	}
	for _, s := range says {
		if !strings.Contains(r.errs, s) {
			c.Errorf("the error is %q, want one that says %q", r.errs, s)
		}
	}
}

// file writes a file of lines.
func (c *cli) file(name string, lines ...string) string {
	c.Helper()
	path := filepath.Join(c.TempDir(), name)
	if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")), 0o600); err != nil {
		c.Fatal(err)
	}
	return path
}

// put writes a record that no writer would write, where a session with that partition key lies.
func (c *cli) put(key, partitionKey string, value []byte) {
	c.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(topicstest.Brokers(c)...), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		c.Fatal(err)
	}
	defer client.Close()
	r := &kgo.Record{Topic: schemas.Topics{Prefix: c.prefix()}.Events(), Partition: schemas.Partition(partitionKey, 4), Key: []byte(key), Value: value}
	if err := client.ProduceSync(c.Context(), r).FirstErr(); err != nil {
		c.Fatal(err)
	}
}

// decoded is JSON output.
func decoded[T any](t testing.TB, text string) T {
	t.Helper()
	var v T
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%q is no JSON of %T: %s", text, v, err)
	}
	return v
}

// count is the number of lines.
func count(text string) int { return strings.Count(text, "\n") }

// until waits for a condition; the processor must not end before.
func (c *cli) until(ended <-chan error, done func() (bool, error)) {
	c.Helper()
	deadline := time.After(time.Minute)
	for tick := time.NewTicker(10 * time.Millisecond); ; {
		ok, err := done()
		if err != nil {
			c.Fatal(err)
		}
		if ok {
			return
		}
		select {
		case err := <-ended:
			c.Fatalf("the processor ended before what was waited for came: %v", err)
		case <-deadline:
			c.Fatal("what was waited for did not come in a minute")
		case <-tick.C:
		}
	}
}
