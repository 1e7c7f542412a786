package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/tooltape/tooltape/schemas"
	"github.com/tooltape/tooltape/schemas/event"
)

type catOptions struct {
	session, run, eventType string
	upcast                  bool
}

func (a *app) catCommand() *cobra.Command {
	var o catOptions
	cmd := &cobra.Command{
		Use:   "cat",
		Short: "Print the events topic as events in JSON form, one a line",
		Long: `Print the events topic up to its end as events in JSON form, one a line: each session's in the order of their seq, as stored, or
as current with --upcast. So "tooltape cat | tooltape produce --backfill -" copies a log.

Records that hold no readable event are told on standard error, and the exit code is then 1.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.cat(cmd.Context(), o) },
	}
	cmd.Flags().StringVar(&o.session, "session", "", "only this session")
	cmd.Flags().StringVar(&o.run, "run", "", "only this run")
	cmd.Flags().StringVar(&o.eventType, "type", "", "only events of this type")
	cmd.Flags().BoolVar(&o.upcast, "upcast", false, "payloads in their current version; such events cannot be appended again")
	return cmd
}

func (a *app) cat(ctx context.Context, o catOptions) error {
	if o.eventType != "" && schemas.Latest(event.Type(o.eventType)) == 0 {
		return usagef("there is no event type %q; tooltape schemas list shows those that are", o.eventType)
	}
	decoder, err := a.decoder()
	if err != nil {
		return err
	}
	log, err := a.eventLog(ctx)
	if err != nil {
		return err
	}
	defer log.Close()
	c := catting{app: a, options: o, ends: map[string]int64{}, early: map[string]map[int64][]byte{}}
	if err := log.ReadAll(ctx, func(r *kgo.Record) error { return c.record(ctx, decoder, r) }); err != nil {
		return err
	}
	if err := c.leftOver(); err != nil {
		return err
	}
	if c.unread > 0 {
		return errReported
	}
	return nil
}

// catting prints each session's events in order and once, however compaction and re-sending have left them in the log.
type catting struct {
	*app
	options catOptions
	ends    map[string]int64            // the last seq printed of each session
	early   map[string]map[int64][]byte // lines that came before their place
	unread  int
}

func (c *catting) record(ctx context.Context, decoder *schemas.Decoder, r *kgo.Record) error {
	key, err := schemas.ParseKey(r.Key)
	switch {
	case err == nil && (key.Marker != schemas.NoMarker || r.Value == nil):
		return nil // markers and tombstones are no events
	case err == nil && c.options.session != "" && key.SessionID != c.options.session:
		return nil
	case err != nil:
		return c.tell(r, err)
	}
	stored, err := decoder.DecodeStored(ctx, r.Value)
	if err == nil && c.options.upcast {
		stored, err = stored.Upcast()
	}
	if fault := (*event.Error)(nil); errors.As(err, &fault) {
		return c.tell(r, err)
	}
	if err != nil {
		return err
	}
	line, err := c.line(stored)
	if err != nil {
		return c.tell(r, err)
	}
	return c.place(stored, line)
}

// line is the event's line; nil where it was not asked for.
func (c *catting) line(e schemas.Stored) ([]byte, error) {
	if c.options.run != "" && e.RunID.Or("") != c.options.run || c.options.eventType != "" && string(e.Type) != c.options.eventType {
		return nil, nil
	}
	return e.AppendJSON(nil)
}

func (c *catting) place(e schemas.Stored, line []byte) error {
	switch end := c.ends[e.SessionID]; {
	case e.Seq <= end: // sent again
		return nil
	case e.Seq > end+1:
		if c.early[e.SessionID] == nil {
			c.early[e.SessionID] = map[int64][]byte{}
		}
		c.early[e.SessionID][e.Seq] = line
		return nil
	}
	for ok := true; ok; line, ok = c.early[e.SessionID][c.ends[e.SessionID]+1] {
		c.ends[e.SessionID]++
		delete(c.early[e.SessionID], c.ends[e.SessionID])
		if err := c.print(line); err != nil {
			return err
		}
	}
	return nil
}

// leftOver prints what stands behind holes.
func (c *catting) leftOver() error {
	for _, id := range sortedKeys(c.early) {
		if len(c.early[id]) == 0 {
			continue
		}
		if _, err := fmt.Fprintf(c.errs, "session %s: seq %d is not in the log; what follows it is printed all the same\n", id, c.ends[id]+1); err != nil {
			return err
		}
		c.unread++
		for _, seq := range sortedKeys(c.early[id]) {
			if err := c.print(c.early[id][seq]); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *catting) print(line []byte) error {
	if line == nil {
		return nil
	}
	_, err := fmt.Fprintf(c.out, "%s\n", line)
	return err
}

func (c *catting) tell(r *kgo.Record, err error) error {
	c.unread++
	_, writeErr := fmt.Fprintf(c.errs, "partition %d offset %d: %s\n", r.Partition, r.Offset, err)
	return writeErr
}
