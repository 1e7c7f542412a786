package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"github.com/tooltape/tooltape/producer"
	"github.com/tooltape/tooltape/producer/importer"
	"github.com/tooltape/tooltape/producer/importer/claudecode"
	"github.com/tooltape/tooltape/producer/importer/openaichat"
)

// format is one kind of log that can be imported.
type format struct {
	name, short, long string
	flags             func(*cobra.Command, *importOptions)
	read              func(io.Reader, string, importOptions) (importer.Source, error)
}

type importOptions struct{ path, session string }

var formats = []format{
	{
		name: "openai-chat", short: "Import OpenAI chat messages, as a JSON array, an object with messages, or JSON lines of either",
		long: `Import OpenAI chat messages: a JSON array of messages, an object {"messages":[…],"tools"?:[…]}, or JSON lines of either.

--path reaches into a container: keys joined by dots, and [] for each element of an array. The sessions of a file
[{"traj":[{"role":"system",…}]},…] are at '[].traj'.`,
		flags: func(cmd *cobra.Command, o *importOptions) {
			cmd.Flags().StringVar(&o.path, "path", "", "where the sessions are in the file, such as '[].traj'")
		},
		read: func(r io.Reader, name string, o importOptions) (importer.Source, error) {
			return openaichat.Read(r, name, openaichat.Options{Path: o.path, SessionID: o.session})
		},
	},
	{
		name: "claude-code", short: "Import Claude Code transcripts (JSON lines)",
		read: func(r io.Reader, name string, o importOptions) (importer.Source, error) {
			return claudecode.Read(r, name, claudecode.Options{SessionID: o.session})
		},
	},
}

func (a *app) importCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "import",
		Short: "Append the sessions of other programs' logs",
		Long: `Append the sessions of other programs' logs. Importing a file again adds nothing; one that has grown appends what is new, as a further
run. What a source did not record is null, never made up.`,
	}
	for _, f := range formats {
		var o importOptions
		c := &cobra.Command{
			Use: f.name + " FILE...", Short: f.short, Long: f.long, Args: cobra.MinimumNArgs(1),
			RunE: func(cmd *cobra.Command, files []string) error {
				rows, err := a.importFiles(cmd.Context(), f, o, files)
				if printErr := a.printList(rows); printErr != nil {
					return printErr
				}
				return err
			},
		}
		c.Flags().StringVar(&o.session, "session", "", "the session's id; else it comes from the file or its name")
		if f.flags != nil {
			f.flags(c, &o)
		}
		cmd.AddCommand(c)
	}
	return cmd
}

// importedRow is a line of what import prints.
type importedRow struct {
	File     string         `json:"file"`
	Sessions int            `json:"sessions"`
	Events   int            `json:"events"`
	Skipped  map[string]int `json:"skipped"`
}

func (a *app) importFiles(ctx context.Context, f format, o importOptions, files []string) ([]importedRow, error) {
	find, done, err := a.finder(ctx, false)
	if err != nil {
		return nil, err
	}
	defer done()
	w, err := a.writer(ctx, nil)
	if err != nil {
		return nil, err
	}
	defer w.Close()
	var rows []importedRow
	for _, file := range files {
		row, err := importFile(ctx, w, find, f, o, file)
		rows = append(rows, row)
		if err != nil {
			return rows, eventCode(err)
		}
	}
	return rows, nil
}

// importFile appends what is new in a file. What is good before a bad place is kept, and the bad place is the error.
func importFile(ctx context.Context, w *producer.Writer, find func(context.Context, []string) (map[string]producer.Tail, error), f format, o importOptions, file string) (importedRow, error) {
	row := importedRow{File: file}
	in, err := os.Open(file)
	if err != nil {
		return row, err
	}
	defer in.Close()
	source, readErr := f.read(in, file, o)
	row.Skipped = source.Skipped
	var ids []string
	for _, s := range source.Sessions {
		ids = append(ids, s.ID)
	}
	if len(ids) == 0 {
		return row, readErr
	}
	tails, err := find(ctx, ids)
	if err != nil {
		return row, errors.Join(readErr, err)
	}
	for _, s := range source.Sessions {
		n, err := appendSession(ctx, w, s, tails[s.ID])
		row.Events += n
		if err != nil {
			return row, errors.Join(readErr, fmt.Errorf("%s: %w", file, err))
		}
		row.Sessions++
	}
	return row, readErr
}

// appendSession appends what of a session is not recorded yet, in parts that a broker takes at once.
func appendSession(ctx context.Context, w *producer.Writer, s importer.Session, tail producer.Tail) (int, error) {
	drafts, err := importer.Plan(s, importer.Tail{Seq: tail.Seq, EventID: tail.EventID, RunID: tail.RunID})
	if err != nil {
		return 0, err
	}
	w.Resume(s.ID, tail)
	n := 0
	for part := range slices.Chunk(drafts, appendAtOnce) {
		recorded, err := w.Append(ctx, s.ID, part...)
		n += len(recorded)
		if err != nil {
			return n, err
		}
	}
	return n, nil
}
