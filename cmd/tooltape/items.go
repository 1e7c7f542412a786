package main

import (
	"fmt"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/tooltape/tooltape/processors/projection"
	"github.com/tooltape/tooltape/schemas"
	"github.com/tooltape/tooltape/schemas/event"
)

func (a *app) itemsCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "items FILE|-",
		Short: "Show what events in JSON form would be projected to, without a broker",
		Long: `Read events in JSON form, one a line, as stored in any known version; upcast and project each; print one item a JSON line. What a line
leaves out and the writer would fill may be left out here too.
The first event that cannot be projected ends it with exit code 1 and the code and sentence with which its session would be parked.`,
		Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			in, name, err := a.open(args[0])
			if err != nil {
				return err
			}
			defer in.Close()
			last := map[string]event.Envelope{}
			return eventCode(eachLine(in, name, func(_ int, line []byte) error {
				items, err := project(line, last)
				if err != nil {
					return err
				}
				for _, item := range items {
					if _, err := fmt.Fprintf(a.out, "%s\n", projection.AppendJSON(nil, item)); err != nil {
						return err
					}
				}
				return nil
			}))
		},
	}
}

// project is what the line's event would be projected to. last holds the event before it of each session.
func project(line []byte, last map[string]event.Envelope) ([]projection.Item, error) {
	stored, err := schemas.ParseJSON(line)
	if err != nil {
		return nil, err
	}
	complete(&stored.Envelope, last[stored.SessionID])
	e, err := stored.Event()
	if err != nil {
		return nil, err
	}
	last[e.SessionID] = e.Envelope
	return projection.Items(e)
}

// complete gives an envelope what the writer would give it, where the line leaves it out.
func complete(e *event.Envelope, last event.Envelope) {
	if e.EnvelopeVersion == 0 {
		e.EnvelopeVersion = event.EnvelopeVersion
	}
	if e.TenantID == "" {
		e.TenantID = event.DefaultTenant
	}
	if e.Seq == 0 {
		e.Seq = last.Seq + 1
	}
	if e.EventID == "" {
		e.EventID = uuid.NewSHA1(uuid.NameSpaceOID, fmt.Appendf(nil, "%s/%d", e.SessionID, e.Seq)).String()
	}
	if !e.PrevEventID.OK && e.Seq == last.Seq+1 && last.Seq > 0 {
		e.PrevEventID = event.Some(last.EventID)
	}
	if e.PartitionKey == "" {
		e.PartitionKey = e.SessionID
	}
}
