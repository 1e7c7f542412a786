package faults_test

import (
	"context"
	"flag"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/tooltape/tooltape/loadtest/faults"
	"github.com/tooltape/tooltape/loadtest/tooltapetest"
	"github.com/tooltape/tooltape/processors/topics/topicstest"
	"github.com/tooltape/tooltape/producer"
	"github.com/tooltape/tooltape/schemas"
	"github.com/tooltape/tooltape/sinks/history"
	"github.com/tooltape/tooltape/sinks/sinktest"
)

var (
	kills = flag.Int("kills", 10, "how often the processor is killed")
	seed  = flag.Uint64("seed", 1, "decides the load and the moments")
)

func TestMain(m *testing.M) { flag.Parse(); os.Exit(tooltapetest.Main(m)) }

// writer appends to the installation's topics; every session is new.
func writer(t *testing.T, in tooltapetest.Install) *producer.Writer {
	t.Helper()
	w, err := producer.New(t.Context(), producer.Config{
		Kafka: []kgo.Opt{kgo.SeedBrokers(topicstest.Brokers(t)...)}, Topics: in.Topics, Encoder: schemas.NewEncoder(),
		Find: func(context.Context, []string) (map[string]producer.Tail, error) { return nil, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	return w
}

// sound waits until the tables are what the ledger says; what is wrong at the end of the wait is the failure.
func sound(t *testing.T, l *faults.Ledger, pool *pgxpool.Pool) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); ; {
		wrong, err := l.Check(t.Context(), pool)
		if err != nil {
			t.Fatal(err)
		}
		if len(wrong) == 0 {
			return
		}
		if time.Now().After(deadline) {
			for _, w := range wrong {
				t.Error(w)
			}
			return
		}
		<-time.After(50 * time.Millisecond)
	}
}

func TestAKilledProcessorLosesNothingAndDoublesNothing(t *testing.T) {
	in := tooltapetest.NewInstall(t, 8)
	pool := sinktest.Connect(t, in.Database)
	ledger := faults.NewLedger()
	loaded, enough := make(chan error, 1), make(chan struct{})
	w := writer(t, in)
	go func() { loaded <- ledger.Load(t.Context(), w, *seed, 300, 5*time.Millisecond, enough) }()

	random := rand.New(rand.NewPCG(*seed, 1))
	for range *kills {
		p := tooltapetest.Start(t, in.Env, "run", "history", "--instance-id", "one", "--batch-records", "100")
		select {
		case <-time.After(time.Duration(50+random.IntN(1500)) * time.Millisecond):
		case <-p.Ended():
			t.Fatalf("the processor ended by itself: %s", p.Said())
		}
		p.Kill()
	}
	close(enough)
	if err := <-loaded; err != nil {
		t.Fatal(err)
	}
	last := tooltapetest.Start(t, in.Env, "run", "history", "--instance-id", "one")
	sound(t, ledger, pool)
	if err := last.Stop(); err != nil { // it shares its group with the next
		t.Error(err)
	}
	t.Logf("%d events of %d sessions, %d kills", ledger.Events(), ledger.Sessions(), *kills)

	// An undisturbed run over the same log gives the same tables.
	undisturbed := sinktest.Database(t, history.View())
	other := sinktest.Connect(t, undisturbed)
	env := tooltapetest.Env(in.Env[0][len("TOOLTAPE_BROKERS="):], undisturbed, in.Topics.Prefix)
	tooltapetest.Start(t, env, "run", "history", "--instance-id", "one")
	sound(t, ledger, other)
	if got, want := digest(t, pool), digest(t, other); got != want {
		t.Errorf("the tables of the disturbed run have the digest %s, those of the undisturbed one %s", got, want)
	}
}

// digest sums up what a projection stores: rows and watermarks, not epochs and batch numbers.
func digest(t *testing.T, pool *pgxpool.Pool) (sum string) {
	t.Helper()
	const query = `
SELECT md5((SELECT string_agg(h::text, chr(10) ORDER BY session_id, seq, item_index) FROM tooltape.history_item h) ||
           (SELECT string_agg(w::text, chr(10) ORDER BY session_id) FROM tooltape.watermark w))`
	if err := pool.QueryRow(t.Context(), query).Scan(&sum); err != nil {
		t.Fatal(err)
	}
	return sum
}
