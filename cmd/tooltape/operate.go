package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/tooltape/tooltape/processors/topics"
	"github.com/tooltape/tooltape/schemas/event"
	"github.com/tooltape/tooltape/sinks"
	"github.com/tooltape/tooltape/sinks/history"
	"github.com/tooltape/tooltape/sinks/postgres"
)

func (a *app) migrateCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "migrate",
		Short: "Make or bring up to date the tables in PostgreSQL",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			pool, err := a.database(cmd.Context())
			if err != nil {
				return err
			}
			defer pool.Close()
			return postgres.Migrate(cmd.Context(), pool, history.View())
		},
	}
}

func (a *app) topicsCommand() *cobra.Command {
	var partitions int32
	var replication int16
	cmd := &cobra.Command{Use: "topics", Short: "Plan or make the topics"}
	cmd.PersistentFlags().Int32Var(&partitions, "partitions", topics.DefaultPartitions, "partitions of each topic; they can never be changed")
	cmd.PersistentFlags().Int16Var(&replication, "replication-factor", -1, "copies of each partition; -1 is the cluster's default")
	atLeast(cmd.PersistentFlags(), "partitions", &partitions, 1)
	demand(cmd.PersistentFlags(), "replication-factor", func() error {
		if replication < 1 && replication != -1 {
			return errors.New("must be at least 1, or -1")
		}
		return nil
	})
	act := func(do func(cmd *cobra.Command, spec topics.Spec) ([]topics.Change, error)) func(*cobra.Command, []string) error {
		return func(cmd *cobra.Command, _ []string) error {
			changes, err := do(cmd, topics.Spec{Topics: a.settings.topics(), Partitions: partitions, ReplicationFactor: replication})
			if len(changes) > 0 {
				if printErr := a.printList(changes); printErr != nil {
					return printErr
				}
			}
			if errors.As(err, new(*topics.RefusedError)) {
				return withCode("refused", err)
			}
			return err
		}
	}
	cmd.AddCommand(
		&cobra.Command{
			Use: "plan", Short: "Say what apply would do", Args: cobra.NoArgs,
			RunE: act(func(cmd *cobra.Command, spec topics.Spec) ([]topics.Change, error) {
				admin, err := a.admin(cmd.Context())
				if err != nil {
					return nil, err
				}
				defer admin.Close()
				if spec.Recorded, err = a.recordedTopic(cmd); err != nil {
					return nil, err
				}
				return topics.Plan(cmd.Context(), admin, spec)
			}),
		},
		&cobra.Command{
			Use: "apply", Short: "Make the topics, or refuse one whose settings would lose data", Args: cobra.NoArgs,
			RunE: act(func(cmd *cobra.Command, spec topics.Spec) ([]topics.Change, error) {
				admin, err := a.admin(cmd.Context())
				if err != nil {
					return nil, err
				}
				defer admin.Close()
				if spec.Recorded, err = a.recordedTopic(cmd); err != nil {
					return nil, err
				}
				return topics.Apply(cmd.Context(), admin, spec)
			}),
		},
	)
	return cmd
}

// recordedTopic is what the positions in the store count in; nil without a database, or before anything was projected.
func (a *app) recordedTopic(cmd *cobra.Command) (*sinks.Topic, error) {
	if a.settings.databaseURL == "" {
		return nil, nil
	}
	pool, err := a.migrated(cmd.Context())
	if errors.Is(err, postgres.ErrNotMigrated) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer pool.Close()
	positions, err := postgres.Positions(cmd.Context(), pool, history.Name)
	if err != nil || len(positions) == 0 {
		return nil, err
	}
	return &positions[0].Topic, nil
}

// parkedRow is a line of parked. Its names are those of the table.
type parkedRow struct {
	Projection     string     `json:"projection"`
	SessionID      string     `json:"session_id"`
	Seq            int64      `json:"seq"`
	Type           event.Type `json:"type"`
	PayloadVersion int        `json:"payload_version"`
	Code           event.Code `json:"code"`
	Message        string     `json:"message"`
	Partition      int32      `json:"partition"`
	Offset         int64      `json:"offset"`
	Since          time.Time  `json:"since"`
	Held           int64      `json:"held"`
	Builds         []string   `json:"builds"`
}

func newParkedRow(p postgres.ParkedSession) parkedRow {
	return parkedRow{
		Projection: p.Projection, SessionID: p.SessionID, Seq: p.Seq, Type: p.Type, PayloadVersion: p.PayloadVersion, Code: p.Code,
		Message: p.Message, Partition: p.Partition, Offset: p.Offset, Since: p.Since, Held: p.Held, Builds: p.Builds,
	}
}

func (a *app) parkedCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "parked",
		Short: "List the sessions whose next event could not be projected, and why",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			pool, err := a.migrated(cmd.Context())
			if err != nil {
				return err
			}
			defer pool.Close()
			parked, err := postgres.ParkedSessions(cmd.Context(), pool, postgres.ParkedFilter{})
			if err != nil {
				return err
			}
			rows := make([]parkedRow, 0, len(parked))
			for _, p := range parked {
				rows = append(rows, newParkedRow(p))
			}
			return a.printList(rows)
		},
	}
}

// setAsideRow is a line of set-aside. Key and value are the raw bytes, in base64 where JSON is printed.
type setAsideRow struct {
	Projection string     `json:"projection"`
	Partition  int32      `json:"partition"`
	Offset     int64      `json:"offset"`
	Code       event.Code `json:"code"`
	Message    string     `json:"message"`
	Since      time.Time  `json:"since"`
	Key        rawBytes   `json:"key"`
	Value      rawBytes   `json:"value"`
}

// rawBytes are shown in a table by their beginning.
type rawBytes []byte

func (b rawBytes) String() string {
	const shown = 40
	if len(b) > shown {
		return fmt.Sprintf("%q… (%d bytes)", []byte(b[:shown]), len(b))
	}
	return fmt.Sprintf("%q", []byte(b))
}

func (a *app) setAsideCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "set-aside",
		Short: "List the records that belong to no session, with their raw bytes",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			pool, err := a.migrated(cmd.Context())
			if err != nil {
				return err
			}
			defer pool.Close()
			records, err := postgres.SetAside(cmd.Context(), pool, postgres.SetAsideFilter{})
			if err != nil {
				return err
			}
			rows := make([]setAsideRow, 0, len(records))
			for _, r := range records {
				rows = append(rows, setAsideRow{
					Projection: r.Projection, Partition: r.Partition, Offset: r.Offset, Code: r.Code, Message: r.Message, Since: r.Since,
					Key: r.Key, Value: r.Value,
				})
			}
			return a.printList(rows)
		},
	}
}
