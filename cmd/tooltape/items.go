package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/tooltape/tooltape/processors/projection"
	"github.com/tooltape/tooltape/schemas"
)

func (a *app) itemsCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "items FILE|-",
		Short: "Show what events in JSON form would be projected to, without a broker",
		Long: `Read events in JSON form, one a line, as stored in any known version; upcast and project each; print one item a JSON line.
The first event that cannot be projected ends it with exit code 1 and the code and sentence with which its session would be parked.`,
		Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			in, name, err := a.open(args[0])
			if err != nil {
				return err
			}
			defer in.Close()
			return eventCode(eachLine(in, func(n int, line []byte) error {
				items, err := project(line)
				if err != nil {
					return fmt.Errorf("%s line %d: %w", name, n, err)
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

func project(line []byte) ([]projection.Item, error) {
	stored, err := schemas.ParseJSON(line)
	if err != nil {
		return nil, err
	}
	e, err := stored.Event()
	if err != nil {
		return nil, err
	}
	return projection.Items(e)
}
