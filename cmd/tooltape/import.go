package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tooltape/tooltape/producer"
	"github.com/tooltape/tooltape/producer/importer"
	"github.com/tooltape/tooltape/producer/importer/claudecode"
	"github.com/tooltape/tooltape/producer/importer/openaichat"
	"github.com/tooltape/tooltape/schemas/event"
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
				if rows == nil {
					return err
				}
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
	// SessionIDs are the sessions of the file that were met, also those that it adds nothing to.
	SessionIDs sessionIDs `json:"session_ids"`
}

// sessionIDs are shown in a table by the first of them, and how many there are.
type sessionIDs []string

func (ids sessionIDs) String() string {
	const shown = 3
	if len(ids) > shown {
		return fmt.Sprintf("%s … (%d)", strings.Join(ids[:shown], ","), len(ids))
	}
	return strings.Join(ids, ",")
}

func (a *app) importFiles(ctx context.Context, f format, o importOptions, files []string) ([]importedRow, error) {
	find, err := a.finder(ctx)
	if err != nil {
		return nil, err
	}
	defer find.close()
	w, err := a.writer(ctx, nil)
	if err != nil {
		return nil, err
	}
	defer w.Close()
	in := importing{writer: w, finder: find, ends: map[string]importer.Tail{}}
	var rows []importedRow
	for _, file := range files {
		row, err := in.file(ctx, f, o, file)
		rows = append(rows, row)
		if err != nil {
			return rows, eventCode(err)
		}
	}
	return rows, nil
}

// importing appends what is new in one file after the other.
type importing struct {
	writer *producer.Writer
	finder *finder
	ends   map[string]importer.Tail // of the sessions that were met: one may stand in several files
}

// file appends what is new in a file. What is good before a bad place is kept, and the bad place is the error.
func (im *importing) file(ctx context.Context, f format, o importOptions, file string) (importedRow, error) {
	row := importedRow{File: file, Skipped: map[string]int{}, SessionIDs: sessionIDs{}}
	in, err := os.Open(file)
	if err != nil {
		return row, err
	}
	defer in.Close()
	source, readErr := f.read(in, file, o)
	maps.Copy(row.Skipped, source.Skipped)
	for _, s := range source.Sessions {
		n, err := im.session(ctx, s)
		row.Events += n
		if n > 0 || err == nil {
			row.SessionIDs = append(row.SessionIDs, s.ID)
		}
		if err != nil {
			return row, errors.Join(readErr, fmt.Errorf("%s: %w", file, err))
		}
		row.Sessions++
	}
	return row, readErr
}

// session appends what of a session is not recorded yet, in parts that a broker takes at once.
func (im *importing) session(ctx context.Context, s importer.Session) (int, error) {
	drafts, err := im.plan(ctx, s)
	if err != nil {
		return 0, err
	}
	n := 0
	for part := range slices.Chunk(drafts, appendAtOnce) {
		recorded, err := im.writer.Append(ctx, s.ID, part...)
		if err != nil {
			return n, err
		}
		n += len(recorded)
		last := recorded[len(recorded)-1]
		im.ends[s.ID] = importer.Tail{Seq: last.Seq, EventID: last.EventID, RunID: last.RunID}
	}
	return n, nil
}

// plan is what of a session is not recorded yet.
func (im *importing) plan(ctx context.Context, s importer.Session) ([]event.Event, error) {
	if end, met := im.ends[s.ID]; met {
		return importer.Plan(s, end)
	}
	drafts, err := im.planAfter(ctx, s, false)
	if errors.As(err, new(*importer.TailError)) {
		// Amidst a run the plan needs the last event's run, which the history's watermark does not say.
		drafts, err = im.planAfter(ctx, s, true)
	}
	return drafts, err
}

func (im *importing) planAfter(ctx context.Context, s importer.Session, wholly bool) ([]event.Event, error) {
	tail, err := im.finder.tail(ctx, s.ID, wholly)
	if err != nil {
		return nil, err
	}
	im.writer.Resume(s.ID, tail)
	end := importer.Tail{Seq: tail.Seq, EventID: tail.EventID, RunID: tail.RunID}
	im.ends[s.ID] = end
	return importer.Plan(s, end)
}
