package main

import (
	"context"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/tooltape/tooltape/schemas/event"
	"github.com/tooltape/tooltape/sinks/postgres"
)

func (a *app) resumeCommand() *cobra.Command {
	var session, code string
	var all, dryRun bool
	var rate int
	cmd := &cobra.Command{
		Use:   "resume --session SESSION | --code CODE | --all",
		Short: "Let parked sessions be tried again by the build that runs",
		Long: `Let parked sessions be tried again by the build that runs. A new build tries by itself; this is for what else has changed, such as a
database that took a value that it refused before. A conflict is never tried again: settle it.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if session == "" && code == "" && !all {
				return usagef("resume needs --session, --code or --all")
			}
			if code != "" && !slices.Contains(event.ParkingCodes, event.Code(code)) {
				return usagef("there is no code %q; they are %v", code, event.ParkingCodes)
			}
			return a.resume(cmd.Context(), postgres.ResumeFilter{SessionID: session, Code: event.Code(code), Limit: rate}, dryRun)
		},
	}
	cmd.Flags().StringVar(&session, "session", "", "this session")
	cmd.Flags().StringVar(&code, "code", "", "those parked for this code")
	cmd.Flags().BoolVar(&all, "all", false, "all of them")
	cmd.Flags().IntVar(&rate, "rate", 1000, "sessions a second at most")
	atLeast(cmd.Flags(), "rate", &rate, 1)
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "only list them")
	return cmd
}

// resume marks sessions second by second, so that a processor is not handed all of them at once.
func (a *app) resume(ctx context.Context, filter postgres.ResumeFilter, dryRun bool) error {
	if dryRun {
		filter.Limit = 0
	}
	pool, err := a.migrated(ctx)
	if err != nil {
		return err
	}
	defer pool.Close()
	var rows []parkedRow
	for tick := time.NewTicker(time.Second); ; {
		parked, err := postgres.Resume(ctx, pool, filter, dryRun)
		if err != nil {
			return err
		}
		for _, p := range parked {
			rows = append(rows, newParkedRow(p))
		}
		if dryRun || len(parked) < filter.Limit {
			return a.printList(rows)
		}
		filter.After = &parked[len(parked)-1] // what was tried and stays parked is not marked again
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
