package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime/debug"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/tooltape/tooltape/processors"
	"github.com/tooltape/tooltape/sinks/history"
	"github.com/tooltape/tooltape/sinks/postgres"
)

// runOptions are the settings of a running processor beyond those of every command.
type runOptions struct {
	listen          string
	instanceID      string
	serverSideGroup bool
	sessionTimeout  time.Duration
	batchRecords    int
	maxUnpacked     int
	workers         int
}

// commandSettings are the settings of single commands, as the configuration file names them.
var commandSettings = []string{"listen", "instance_id", "server_side_group", "session_timeout", "batch_records", "max_unpacked_bytes", "workers", "partitions", "replication_factor"}

func (a *app) runCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "run", Short: "Run a processor"}
	var o runOptions
	h := &cobra.Command{
		Use:   "history",
		Short: "Project the events into the session history, and keep it up to date",
		Long: `Project the events into the session history, and keep it up to date. Start more of them to share the work, up to the number of
partitions. A bad event parks its session (tooltape parked); a broker, registry or database that is away is waited for.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return untilStopped(cmd.Context(), a.runHistory(cmd.Context(), o))
		},
	}
	h.Flags().StringVar(&o.listen, "listen", "127.0.0.1:0", "where to answer /livez, /readyz and /metrics; port 0 is any free one")
	h.Flags().StringVar(&o.instanceID, "instance-id", "", "a name that stays over restarts: the instance then gets its partitions back")
	h.Flags().BoolVar(&o.serverSideGroup, "server-side-group", false, "join by the group protocol of KIP-848 (Kafka 4.3 or later)")
	h.Flags().DurationVar(&o.sessionTimeout, "session-timeout", 6*time.Second, "how long a silent instance keeps its partitions")
	h.Flags().IntVar(&o.batchRecords, "batch-records", 0, "events in one transaction at most; 0 is the default, 2000")
	h.Flags().IntVar(&o.maxUnpacked, "max-unpacked-bytes", 0, "what one batch of the log may unpack to; 0 is the default, 64 MiB")
	h.Flags().IntVar(&o.workers, "workers", 0, "partitions worked on at once; 0 is the default, 2")
	atLeast(h.Flags(), "session-timeout", &o.sessionTimeout, time.Second)
	atLeast(h.Flags(), "batch-records", &o.batchRecords, 0)
	atLeast(h.Flags(), "max-unpacked-bytes", &o.maxUnpacked, 0)
	atLeast(h.Flags(), "workers", &o.workers, 0)
	cmd.AddCommand(h)
	return cmd
}

// untilStopped is the end of a command that runs until it is told to stop: being told so, at whatever moment, is no failure.
func untilStopped(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

func (a *app) runHistory(ctx context.Context, o runOptions) error {
	log, err := a.settings.logger(a, "info")
	if err != nil {
		return err
	}
	tel, err := newTelemetry(ctx)
	if err != nil {
		return err
	}
	p, closeStore, err := a.historyProcessor(ctx, o, log, tel)
	if err != nil {
		return err
	}
	defer closeStore()
	addr, err := tel.serve(ctx, o.listen, p.Ready)
	if err != nil {
		return err
	}
	log.Info("projecting the history", "build", build(), "listen", addr.String())
	err = p.Run(ctx)
	if telErr := tel.close(); telErr != nil {
		log.Warn("the last telemetry was not sent", "error", telErr)
	}
	return err
}

// historyProcessor wires the history's processor; the function that it returns lets the store go.
func (a *app) historyProcessor(ctx context.Context, o runOptions, log *slog.Logger, tel *telemetry) (*processors.Processor, func(), error) {
	kafka, err := a.brokers(ctx)
	if err != nil {
		return nil, nil, err
	}
	decoder, err := a.decoder()
	if err != nil {
		return nil, nil, err
	}
	encoder, err := a.encoder(ctx)
	if err != nil {
		return nil, nil, err
	}
	instruments, err := processors.NewTelemetry(tel.tracers, tel.meters)
	if err != nil {
		return nil, nil, err
	}
	pool, err := a.migrated(ctx)
	if err != nil {
		return nil, nil, err
	}
	if err := tel.watchParked(pool); err != nil {
		pool.Close()
		return nil, nil, err
	}
	p, err := processors.New(processors.Config{
		Projection: history.Name, Topics: a.settings.topics(), Sink: postgres.New(pool, history.View()), Decoder: decoder, Encoder: encoder, Build: build(),
		Kafka: kafka, InstanceID: o.instanceID, ServerSideGroup: o.serverSideGroup, SessionTimeout: o.sessionTimeout,
		BatchRecords: o.batchRecords, MaxUnpackedBytes: o.maxUnpacked, Workers: o.workers, Logger: log, Telemetry: instruments,
	})
	if err != nil {
		pool.Close()
		return nil, nil, err
	}
	return p, pool.Close, nil
}

// build names this program: the commit that it was built from, else the hash of the binary. It says which builds have tried a session.
var build = sync.OnceValue(func() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		revision, modified := "", ""
		for _, s := range info.Settings {
			switch s.Key {
			case "vcs.revision":
				revision = s.Value
			case "vcs.modified":
				modified = s.Value
			}
		}
		if revision != "" && modified == "false" {
			return revision
		}
	}
	return binaryHash()
})

func binaryHash() string {
	path, err := os.Executable()
	if err != nil {
		return "unknown"
	}
	f, err := os.Open(path)
	if err != nil {
		return "unknown"
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "unknown"
	}
	return "sha256:" + hex.EncodeToString(h.Sum(nil)[:16])
}

// version is the module's version where the binary was installed by one, else the build.
func version() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	return build()
}

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Say which build this is", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			type row struct {
				Version string `json:"version"`
				Build   string `json:"build"`
			}
			if a.settings.output == outputJSON {
				return a.printJSON(row{version(), build()})
			}
			_, err := fmt.Fprintf(a.out, "tooltape %s (build %s)\n", version(), build())
			return err
		},
	}
}
