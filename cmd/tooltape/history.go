package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/tooltape/tooltape/processors/projection"
	"github.com/tooltape/tooltape/sinks/history"
)

// rendering is one way to show a session to a model.
type rendering func(projection.Conversation) ([]byte, error)

var renderings = map[string]rendering{
	"anthropic": projection.RenderAnthropic,
	"openai-chat": func(c projection.Conversation) ([]byte, error) {
		return projection.RenderOpenAIChat(c, nil)
	},
	"openai-responses": projection.RenderOpenAIResponses,
}

// formatItems is the array of items as stored, not assembled.
const formatItems = "items"

func (a *app) historyCommand() *cobra.Command {
	var format string
	var o history.Options
	cmd := &cobra.Command{
		Use:   "history SESSION",
		Short: "Show a session as a model must be shown it again",
		Long: `Show a session as a model must be shown it again, on standard output as one JSON document. Formats:

  items             the array of items as stored, not assembled
  anthropic         {"system"?,"messages":[…]}
  openai-chat       {"messages":[…]}
  openai-responses  {"instructions"?,"input":[…]}

A session that is not there yet is the error not_yet, one that waits at an event that could not be projected is parked.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			render, known := renderings[format]
			if format != formatItems && !known {
				return usagef("--format is items, anthropic, openai-chat or openai-responses, not %q", format)
			}
			return historyCode(a.history(cmd.Context(), args[0], render, o))
		},
	}
	cmd.Flags().StringVar(&format, "format", formatItems, "items, anthropic, openai-chat or openai-responses")
	cmd.Flags().Int64Var(&o.AtLeast, "at-least", 0, "the seq that must be projected")
	cmd.Flags().DurationVar(&o.Wait, "wait", 0, "how long to wait for it, such as 10s")
	atLeast(cmd.Flags(), "at-least", &o.AtLeast, 0)
	atLeast(cmd.Flags(), "wait", &o.Wait, 0)
	return cmd
}

// historyCode names what a caller acts on.
func historyCode(err error) error {
	switch {
	case errors.Is(err, history.ErrNotYet):
		return withCode("not_yet", err)
	case errors.As(err, new(*history.ParkedError)):
		return withCode("parked", err)
	case errors.As(err, new(*projection.OrphansError)):
		return withCode("orphans", err)
	}
	return err
}

func (a *app) history(ctx context.Context, session string, render rendering, o history.Options) error {
	pool, err := a.migrated(ctx)
	if err != nil {
		return err
	}
	defer pool.Close()
	reader := history.NewReader(pool)
	if render == nil {
		return a.printItems(ctx, reader, session, o)
	}
	conversation, err := reader.Conversation(ctx, session, o)
	if errors.As(err, new(*projection.OrphansError)) {
		return fmt.Errorf("session %s: %w", session, err)
	}
	if err != nil {
		return err
	}
	text, err := render(conversation)
	if err != nil {
		return fmt.Errorf("session %s: %w", session, err)
	}
	_, err = fmt.Fprintf(a.out, "%s\n", text)
	return err
}

// printItems prints the array item by item: a session of any length takes no more memory than its longest item. Nothing is printed of a
// session that is not there.
func (a *app) printItems(ctx context.Context, reader *history.Reader, session string, o history.Options) error {
	separator := "["
	_, err := reader.Each(ctx, session, o, func(r history.Row) error {
		_, err := fmt.Fprintf(a.out, "%s%s", separator, r.JSON)
		separator = ",\n"
		return err
	})
	if err != nil {
		return err
	}
	if separator == "[" { // a session without items
		_, err = fmt.Fprint(a.out, "[")
	}
	if err == nil {
		_, err = fmt.Fprintln(a.out, "]")
	}
	return err
}
