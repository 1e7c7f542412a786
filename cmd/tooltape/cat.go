package main

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/tooltape/tooltape/processors/eventlog"
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
	superseded, err := log.Superseded(ctx)
	if err != nil {
		return err
	}
	c := catting{app: a, options: o, superseded: superseded, printed: map[string][]eventHash{}, early: map[string]map[int64]catLine{}}
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
	// superseded keeps what was purged or withdrawn from being printed while it still lies in the log.
	superseded *eventlog.Superseded
	printed    map[string][]eventHash       // of each session: what stands at seq 1, 2, 3…
	early      map[string]map[int64]catLine // lines that came before their place
	unread     int
}

// catLine is an event's line; nil where it was not asked for.
type catLine struct {
	event eventHash
	line  []byte
}

// eventHash stands for an event's id: a log has many.
type eventHash uint64

func hashOf(eventID string) eventHash {
	h := fnv.New64a()
	_, _ = h.Write([]byte(eventID)) // a hash takes everything
	return eventHash(h.Sum64())
}

func (c *catting) record(ctx context.Context, decoder *schemas.Decoder, r *kgo.Record) error {
	key, err := schemas.ParseKey(r.Key)
	switch {
	case err == nil && (key.Marker != schemas.NoMarker || r.Value == nil):
		return nil // markers and tombstones are no events
	case err == nil && !c.superseded.Counts(key, r):
		return nil
	case c.options.session != "" && key.SessionID != c.options.session: // as is what has no readable key: it belongs to no session
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
	if key.SessionID != stored.SessionID || key.Seq != stored.Seq || key.EventID != stored.EventID {
		return c.tell(r, &event.Error{Code: event.KeyMismatch, Message: "the record's key names another event than its value"})
	}
	line, err := c.line(stored)
	if err != nil {
		return c.tell(r, err)
	}
	return c.place(r, stored, line)
}

// line is the event as it is printed.
func (c *catting) line(e schemas.Stored) ([]byte, error) {
	if c.options.run != "" && e.RunID.Or("") != c.options.run || c.options.eventType != "" && string(e.Type) != c.options.eventType {
		return nil, nil
	}
	return e.AppendJSON(nil)
}

// place prints the line when its turn has come. A second event at its place is told, and not printed.
func (c *catting) place(r *kgo.Record, e schemas.Stored, line []byte) error {
	id, printed := hashOf(e.EventID), c.printed[e.SessionID]
	there, taken := c.early[e.SessionID][e.Seq]
	if e.Seq <= int64(len(printed)) {
		there, taken = catLine{event: printed[e.Seq-1]}, true
	}
	if taken && there.event != id {
		return c.tell(r, &event.Error{Code: event.Conflict, Message: fmt.Sprintf(
			"event %s claims seq %d of session %s, where another event stands", e.EventID, e.Seq, e.SessionID)})
	}
	if taken { // sent again
		return nil
	}
	if c.early[e.SessionID] == nil {
		c.early[e.SessionID] = map[int64]catLine{}
	}
	c.early[e.SessionID][e.Seq] = catLine{id, line}
	return c.inTurn(e.SessionID)
}

// inTurn prints what follows the last line without a hole.
func (c *catting) inTurn(session string) error {
	for {
		seq := int64(len(c.printed[session])) + 1
		next, ok := c.early[session][seq]
		if !ok {
			return nil
		}
		delete(c.early[session], seq)
		c.printed[session] = append(c.printed[session], next.event)
		if err := c.print(next.line); err != nil {
			return err
		}
	}
}

// leftOver prints what stands behind holes.
func (c *catting) leftOver() error {
	for _, id := range sortedKeys(c.early) {
		if len(c.early[id]) == 0 {
			continue
		}
		if _, err := fmt.Fprintf(c.errs, "session %s: seq %d is not in the log; what follows it is printed all the same\n", printable(id), len(c.printed[id])+1); err != nil {
			return err
		}
		c.unread++
		for _, seq := range sortedKeys(c.early[id]) {
			if err := c.print(c.early[id][seq].line); err != nil {
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
	_, writeErr := fmt.Fprintf(c.errs, "partition %d offset %d: %s\n", r.Partition, r.Offset, printable(err.Error()))
	return writeErr
}
