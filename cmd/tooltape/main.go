// Command tooltape records what an agent's tools did on Kafka and projects it into PostgreSQL. It holds configuration and wiring, no
// rule of its own.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// The exit codes.
const (
	exitDone   = 0
	exitFailed = 1
	exitUsage  = 2
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// run is main without the process: one command line, its exit code.
func run(ctx context.Context, args []string, in io.Reader, out, errs io.Writer) int {
	app := &app{in: in, out: out, errs: errs}
	root := app.root()
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	switch {
	case err == nil:
		return exitDone
	case errors.Is(err, errReported):
		return exitFailed
	}
	usage := !app.started || errors.As(err, new(*usageError))
	if !app.started {
		app.settings.output = outputOf(args)
	}
	app.report(err, usage)
	if usage {
		return exitUsage
	}
	return exitFailed
}

// outputOf is the output that a command line asks for which was not understood.
func outputOf(args []string) (output string) {
	f := pflag.NewFlagSet("", pflag.ContinueOnError)
	f.ParseErrorsWhitelist.UnknownFlags = true
	f.SetOutput(io.Discard)
	f.StringVarP(&output, "output", "o", os.Getenv("TOOLTAPE_OUTPUT"), "")
	_ = f.Parse(args) // what it does not understand is being reported already
	return output
}

// root is the whole command tree.
func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "tooltape",
		Short: "The exact, versioned record of what an agent's tools did, kept on Kafka",
		Long: `Tooltape keeps the exact, versioned record of what an agent's tools did on Kafka, and projects it into PostgreSQL:
the session history that a model must be shown again.

Settings come from flags, from the environment (TOOLTAPE_BROKERS for --brokers, and so on) and from a YAML file (--config;
brokers: for --brokers), in this order.`,
		SilenceUsage: true, SilenceErrors: true,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			if err := a.settings.load(cmd.Flags()); err != nil {
				return err
			}
			a.started = true
			return nil
		},
	}
	a.settings.register(root.PersistentFlags())
	root.SetOut(a.out)
	root.SetErr(a.errs)
	root.AddGroup(
		&cobra.Group{ID: "try", Title: "Try it:"},
		&cobra.Group{ID: "record", Title: "Record:"},
		&cobra.Group{ID: "read", Title: "Read:"},
		&cobra.Group{ID: "operate", Title: "Operate:"},
		&cobra.Group{ID: "repair", Title: "See what is wrong, and repair it:"},
	)
	for group, commands := range map[string][]*cobra.Command{
		"try":     {a.devCommand(), a.itemsCommand()},
		"record":  {a.produceCommand(), a.importCommand()},
		"read":    {a.historyCommand(), a.catCommand()},
		"operate": {a.runCommand(), a.topicsCommand(), a.migrateCommand(), a.schemasCommand()},
		"repair":  {a.parkedCommand(), a.setAsideCommand(), a.resumeCommand(), a.settleCommand(), a.closeCommand(), a.purgeCommand()},
	} {
		for _, c := range commands {
			c.GroupID = group
			if c.HasSubCommands() { // else a subcommand that is not there would be answered with help, and exit code 0
				c.Args, c.RunE = cobra.NoArgs, func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
			}
			root.AddCommand(c)
		}
	}
	root.AddCommand(a.versionCommand())
	return root
}

// usageError is a command line that asks for something that cannot be.
type usageError struct{ message string }

func (e *usageError) Error() string { return e.message }

func usagef(format string, args ...any) error { return &usageError{fmt.Sprintf(format, args...)} }
