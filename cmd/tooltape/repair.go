package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/tooltape/tooltape/processors/eventlog"
	"github.com/tooltape/tooltape/processors/projection"
	"github.com/tooltape/tooltape/producer"
	"github.com/tooltape/tooltape/schemas"
	"github.com/tooltape/tooltape/schemas/event"
)

// erasedRow is a line of what purge and settle print: an event that went, or would go.
type erasedRow struct {
	SessionID string     `json:"session_id"`
	Seq       int64      `json:"seq"`
	EventID   string     `json:"event_id"`
	Type      event.Type `json:"type"`
	Partition int32      `json:"partition"`
	Offset    int64      `json:"offset"`
}

func erasedRows(found []eventlog.Found) []erasedRow {
	rows := make([]erasedRow, 0, len(found))
	for _, f := range found {
		rows = append(rows, erasedRow{f.Key.SessionID, f.Key.Seq, f.Key.EventID, f.Event.Type, f.Partition, f.Offset})
	}
	return rows
}

// readSession is all that the log holds of a session; nothing is an error.
func (a *app) readSession(ctx context.Context, session string) ([]eventlog.Found, error) {
	decoder, err := a.decoder()
	if err != nil {
		return nil, err
	}
	log, err := a.eventLog(ctx)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	found, err := log.Session(ctx, decoder, session)
	if err == nil && len(found) == 0 {
		err = withCode("not_found", fmt.Errorf("session %s is not in the log", session))
	}
	return found, err
}

// erase writes markers and what they announce, or only tells what would go.
func (a *app) erase(ctx context.Context, dryRun bool, reason string, markers []schemas.Key, found []eventlog.Found, instead func(event.Envelope) *event.Event) error {
	if dryRun {
		return a.printList(erasedRows(found))
	}
	w, err := a.writer(ctx, nil)
	if err != nil {
		return err
	}
	defer w.Close()
	erasures := make([]producer.Erasure, 0, len(found))
	for _, f := range found {
		erasures = append(erasures, producer.Erasure{Partition: f.Partition, Key: f.Key, Instead: instead(f.Event.Envelope)})
	}
	if err := w.Erase(ctx, reason, markers, erasures); err != nil {
		return err
	}
	return a.printList(erasedRows(found))
}

func tombstone(event.Envelope) *event.Event { return nil }

func (a *app) purgeCommand() *cobra.Command {
	var session, run, reason string
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "purge --session SESSION [--run RUN]",
		Short: "Erase the events of a session, or of one run of it, at a person's request",
		Long: `Erase the events of a session, or of one run of it, at a person's request. A marker is written first, then each event's value is
replaced: of a run by event.purged, which keeps its place, of a session by nothing. Every projection deletes what it derived; compaction
erases the values from the log. A run that is open is not purged.

What was forked from a purged session, and the runs that it started, are listed and not purged with it.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if session == "" {
				return usagef("purge needs --session; a run's id is unique within its session only")
			}
			if run != "" {
				return a.purgeRun(cmd.Context(), session, run, reason, dryRun)
			}
			return a.purgeSession(cmd.Context(), session, reason, dryRun)
		},
	}
	cmd.Flags().StringVar(&session, "session", "", "the session")
	cmd.Flags().StringVar(&run, "run", "", "only this run of it")
	cmd.Flags().StringVar(&reason, "reason", "erasure requested", "why, kept in the log")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "only list what would go")
	return cmd
}

func (a *app) purgeSession(ctx context.Context, session, reason string, dryRun bool) error {
	found, err := a.readSession(ctx, session)
	if err != nil {
		return err
	}
	if err := a.tellDescendants(ctx, session); err != nil {
		return err
	}
	return a.erase(ctx, dryRun, reason, []schemas.Key{{SessionID: session, Marker: schemas.ClosedMarker}}, found, tombstone)
}

func (a *app) purgeRun(ctx context.Context, session, run, reason string, dryRun bool) error {
	found, err := a.readSession(ctx, session)
	if err != nil {
		return err
	}
	ended := false
	found = slices.DeleteFunc(found, func(f eventlog.Found) bool { return f.Event.RunID.Or("") != run })
	for _, f := range found {
		switch f.Event.Payload.(type) {
		case event.RunCompleted, event.RunFailed, event.RunCancelled:
			ended = true
		}
	}
	switch {
	case len(found) == 0:
		return withCode("not_found", fmt.Errorf("session %s has no run %s in the log", session, run))
	case !ended:
		return withCode("open", fmt.Errorf("run %s of session %s is open: end it first, or purge the session", run, session))
	}
	marker := schemas.Key{SessionID: session, Marker: schemas.RunMarker, RunID: run}
	return a.erase(ctx, dryRun, reason, []schemas.Key{marker}, found, func(e event.Envelope) *event.Event {
		purged := event.Purged(e, reason)
		return &purged
	})
}

// tellDescendants says what hangs on a session and stays.
func (a *app) tellDescendants(ctx context.Context, session string) error {
	decoder, err := a.decoder()
	if err != nil {
		return err
	}
	log, err := a.eventLog(ctx)
	if err != nil {
		return err
	}
	defer log.Close()
	return log.ReadAll(ctx, func(r *kgo.Record) error {
		e, err := decoder.Decode(ctx, r.Value)
		if err != nil { // what cannot be read names no parent
			return ignoreFault(err)
		}
		switch p := e.Payload.(type) {
		case event.SessionCreated:
			if p.ForkedFrom.Value.SessionID == session {
				a.sayf("session %s was forked from it and stays\n", e.SessionID)
			}
		case event.RunStarted:
			if p.Parent.Value.SessionID == session {
				a.sayf("run %s of session %s was started by it and stays\n", e.RunID.Or(""), e.SessionID)
			}
		}
		return nil
	})
}

func ignoreFault(err error) error {
	if errors.As(err, new(*event.Error)) {
		return nil
	}
	return err
}

func (a *app) settleCommand() *cobra.Command {
	var keep, withdraw, reason string
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "settle SESSION --keep EVENT_ID | --withdraw EVENT_ID",
		Short: "Settle a conflict: say which of two events at one place stays, or withdraw a stray one",
		Long: `Settle a conflict. --keep says which of the events at one place stays: the others there, and every event that follows one of them, are
withdrawn. --withdraw takes back a single stray or unreadable record. For each a marker is written, then its tombstone; the projections
then project the session again, without them.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if (keep == "") == (withdraw == "") {
				return usagef("settle needs either --keep or --withdraw")
			}
			return a.settle(cmd.Context(), args[0], keep, withdraw, reason, dryRun)
		},
	}
	cmd.Flags().StringVar(&keep, "keep", "", "the event that stays")
	cmd.Flags().StringVar(&withdraw, "withdraw", "", "the one event that goes")
	cmd.Flags().StringVar(&reason, "reason", "conflict settled", "why, kept in the log")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "only list what would go")
	return cmd
}

func (a *app) settle(ctx context.Context, session, keep, withdraw, reason string, dryRun bool) error {
	found, err := a.readSession(ctx, session)
	if err != nil {
		return err
	}
	goes := map[string]bool{withdraw: true}
	if keep != "" {
		claims := make([]producer.Claim, 0, len(found))
		for _, f := range found {
			claims = append(claims, producer.Claim{Key: f.Key, PrevEventID: f.Event.PrevEventID.Or("")})
		}
		losers, err := producer.Losers(claims, keep)
		if err != nil {
			return fmt.Errorf("session %s: %w", session, err)
		}
		for _, l := range losers {
			goes[l.Key.EventID] = true
		}
	}
	found = slices.DeleteFunc(found, func(f eventlog.Found) bool { return !goes[f.Key.EventID] })
	if len(found) == 0 {
		return withCode("not_found", fmt.Errorf("session %s has no event %s in the log", session, withdraw))
	}
	markers := make([]schemas.Key, 0, len(found))
	for _, f := range found {
		markers = append(markers, schemas.Key{SessionID: session, Marker: schemas.WithdrawnMarker, EventID: f.Key.EventID})
	}
	return a.erase(ctx, dryRun, reason, markers, found, tombstone)
}

// closedRow is a line of what close prints: a call that was left without a result, and what is now recorded of it.
type closedRow struct {
	CallID  string     `json:"call_id"`
	Name    string     `json:"name"`
	Type    event.Type `json:"type"`
	Seq     int64      `json:"seq"`
	EventID string     `json:"event_id"`
}

func (a *app) closeCommand() *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use:   "close SESSION --reason WHY",
		Short: "Record what is known of calls that a crash left without a result",
		Long: `Record what is known of calls that a crash left without a result, as new facts by an operator: tool.call.uncertain for a call that had
started, tool.call.cancelled for one that had not, with the reason code runtime.lost and an item that says so. Then the session can go on.
Only the session's runtime may write to it, or this: never both.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if reason == "" {
				return usagef("close needs --reason: it is what the model is told")
			}
			return a.closeCalls(cmd.Context(), args[0], reason)
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why, in words that the model is shown")
	return cmd
}

func (a *app) closeCalls(ctx context.Context, session, reason string) error {
	found, err := a.readSession(ctx, session)
	if err != nil {
		return err
	}
	events := make([]event.Event, 0, len(found))
	for _, f := range found {
		if f.Fault != nil {
			return fmt.Errorf("session %s: seq %d cannot be read (%w): what is open is not known", session, f.Key.Seq, f.Fault)
		}
		events = append(events, f.Event)
	}
	drafts, err := lostResults(projection.OpenCalls(events), reason)
	if err != nil {
		return err
	}
	rows := make([]closedRow, 0, len(drafts))
	if len(drafts) > 0 {
		find, err := a.finder(ctx)
		if err != nil {
			return err
		}
		defer find.close()
		w, err := a.writer(ctx, find.find)
		if err != nil {
			return err
		}
		defer w.Close()
		for i := range drafts {
			drafts[i].PartitionKey = events[0].PartitionKey
		}
		recorded, err := w.Append(ctx, session, drafts...)
		if err != nil {
			return eventCode(err)
		}
		for _, e := range recorded {
			result, _ := event.ToolResultOf(e.Payload)
			rows = append(rows, closedRow{result.CallID, result.Name, e.Type, e.Seq, e.EventID})
		}
	}
	return a.printList(rows)
}

// lostResults says of each open call what is known.
func lostResults(open []projection.OpenCall, reason string) ([]event.Event, error) {
	drafts := make([]event.Event, 0, len(open))
	for _, call := range open {
		status := "cancelled"
		if call.Started {
			status = "uncertain"
		}
		text, err := marshal(struct {
			Status     string `json:"status"`
			Action     string `json:"action"`
			ReasonCode string `json:"reason_code"`
			Message    string `json:"message"`
		}{status, call.Name, lostRuntime, reason})
		if err != nil {
			return nil, err
		}
		result := event.ToolResult{CallID: call.CallID, Name: call.Name, ReasonCode: event.Some(lostRuntime), ResultItem: event.Recorded(event.ResultItem{
			CallID: call.CallID, Content: []event.Part{event.Text{Text: string(text)}}, IsError: event.Some(true), Trust: event.Platform,
		})}
		e := event.Event{Envelope: event.Envelope{RunID: call.RunID, ActorType: "operator"}, Payload: event.ToolCallCancelled{ToolResult: result}}
		if call.Started {
			e.Payload = event.ToolCallUncertain{ToolResult: result}
		}
		drafts = append(drafts, e)
	}
	return drafts, nil
}

// lostRuntime is the reason code of a result that nobody was left to record.
const lostRuntime = "runtime.lost"
