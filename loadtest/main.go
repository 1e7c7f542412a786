// Command loadtest measures Tooltape against the plainest program that does the same work (package floor), in one run on one machine:
// what counts is the ratio, not the rates.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/tooltape/tooltape/loadtest/floor"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	root := &cobra.Command{
		Use: "loadtest", Short: "Measure Tooltape against the plainest program that does the same work",
		SilenceUsage: true, SilenceErrors: true,
	}
	root.AddCommand(historyCommand(), floorCommand())
	if err := root.ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "loadtest:", err)
		stop()
		os.Exit(1)
	}
}

func historyCommand() *cobra.Command {
	o := options{rounds: 5, sizes: []int{300, 2 << 10, 32 << 10}, perSession: 50, open: 1000, partitions: 12}
	cmd := &cobra.Command{
		Use:   "history",
		Short: "Measure the history processor",
		Long: `Measure the history processor against its floor. Each fills tables of its own from one topic, as a process of its own, in turns.

Without --brokers and --database-url (or TOOLTAPE_BROKERS and TOOLTAPE_DATABASE_URL, or those of tests, TOOLTAPE_TEST_...) it starts
Apache Kafka by deploy/local/up, and a PostgreSQL that syncs its writes. On a server that is named it makes topics and databases
of its own, called loadtest_..., and removes them again.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runHistory(cmd.Context(), o, os.Stdout) },
	}
	f := cmd.Flags()
	f.IntVar(&o.rounds, "rounds", o.rounds, "how often each side runs; the medians count")
	f.IntSliceVar(&o.sizes, "size", o.sizes, "size of an encoded event in bytes; several with commas")
	f.IntVar(&o.events, "events", 0, "events of each size; 0: 160 MiB of them, 200,000 at most")
	f.IntVar(&o.sessions, "sessions", 0, "sessions that the events are spread over; 0: one for each 50 events")
	f.IntVar(&o.open, "open", o.open, "sessions that go on at the same time, taking turns")
	f.Int32Var(&o.partitions, "partitions", o.partitions, "partitions of the topic")
	f.StringSliceVar(&o.brokers, "brokers", nil, "Kafka's bootstrap addresses, host:port, several with commas")
	f.StringVar(&o.databaseURL, "database-url", "", "PostgreSQL, as a user who may create databases")
	f.StringVar(&o.product, "product", "", "the tooltape to measure; by default it is built from this module")
	f.StringVarP(&o.output, "output", "o", "text", "how to print: text or json")
	return cmd
}

// floorCommand is the floor as a process of its own. It says on standard output how many events it has stored.
func floorCommand() *cobra.Command {
	var cfg floor.Config
	cmd := &cobra.Command{Use: "floor", Hidden: true, Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		cfg.DatabaseURL = os.Getenv(databaseVariable)
		cfg.Stored = func(total int64) { fmt.Println(total) }
		return floor.Run(cmd.Context(), cfg)
	}}
	cmd.Flags().StringSliceVar(&cfg.Brokers, "brokers", nil, "")
	cmd.Flags().StringVar(&cfg.Topic, "topic", "", "")
	cmd.Flags().StringVar(&cfg.Group, "group", "", "")
	return cmd
}
