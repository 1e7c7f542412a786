package main

import (
	"context"
	"fmt"
	"math/bits"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/tooltape/tooltape/schemas"
	"github.com/tooltape/tooltape/schemas/event"
	"github.com/tooltape/tooltape/schemas/registry"
)

// schemaRow is a line of schemas list.
type schemaRow struct {
	Type           event.Type `json:"type"`
	PayloadVersion int        `json:"payload_version"`
	Current        bool       `json:"current"`
	Fingerprint    string     `json:"fingerprint"` // as its bytes stand in a value
	Subject        string     `json:"subject"`
}

func (a *app) schemasCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "schemas", Short: "List, show, register or check the Avro schemas"}
	cmd.AddCommand(
		&cobra.Command{
			Use: "list", Short: "List the released schemas", Args: cobra.NoArgs,
			RunE: func(*cobra.Command, []string) error { return a.printList(a.schemaRows()) },
		},
		&cobra.Command{
			Use: "show TYPE [VERSION]", Short: "Show the schema of a type's records, the current one unless said otherwise", Args: cobra.RangeArgs(1, 2),
			RunE: func(_ *cobra.Command, args []string) error { return a.showSchema(args) },
		},
		&cobra.Command{
			Use: "register", Short: "Register every released schema, a subject for each type and version", Args: cobra.NoArgs,
			RunE: func(cmd *cobra.Command, _ []string) error {
				r, err := a.needRegistry()
				if err != nil {
					return err
				}
				if _, err := r.Register(cmd.Context()); err != nil {
					return err
				}
				return a.printList(a.schemaRows())
			},
		},
		&cobra.Command{
			Use: "check", Short: "Compare the registry with the released schemas", Args: cobra.NoArgs,
			RunE: func(cmd *cobra.Command, _ []string) error {
				r, err := a.needRegistry()
				if err != nil {
					return err
				}
				return a.checkSchemas(cmd.Context(), r)
			},
		},
	)
	return cmd
}

// differenceRow is a line of schemas check.
type differenceRow struct {
	Difference string `json:"difference"`
}

func (a *app) checkSchemas(ctx context.Context, r *registry.Registry) error {
	differences, err := r.Check(ctx)
	if err != nil {
		return err
	}
	rows := make([]differenceRow, 0, len(differences))
	for _, d := range differences {
		rows = append(rows, differenceRow{d})
	}
	if err := a.printList(rows); err != nil {
		return err
	}
	if len(rows) > 0 {
		return errReported
	}
	return nil
}

func (a *app) needRegistry() (*registry.Registry, error) {
	r, err := a.registry()
	if err == nil && r == nil {
		return nil, usagef("no schema registry was named: set --registry-url or TOOLTAPE_REGISTRY_URL")
	}
	return r, err
}

func (a *app) schemaRows() []schemaRow {
	var rows []schemaRow
	for _, t := range schemas.Types() {
		for v := 1; v <= schemas.Latest(t); v++ {
			fingerprint, _ := schemas.Fingerprint(t, v)
			rows = append(rows, schemaRow{
				Type: t, PayloadVersion: v, Current: v == schemas.Latest(t), Fingerprint: fmt.Sprintf("%016x", bits.ReverseBytes64(fingerprint)),
				Subject: registry.New(nil, a.settings.topics().Events()).Subject(schemas.FullName(t, v)),
			})
		}
	}
	return rows
}

func (a *app) showSchema(args []string) error {
	t := event.Type(args[0])
	version := schemas.Latest(t)
	if len(args) == 2 {
		var err error
		if version, err = strconv.Atoi(args[1]); err != nil {
			return usagef("%q is no payload version", args[1])
		}
	}
	text, ok := schemas.Schema(t, version)
	if !ok {
		return fmt.Errorf("there is no schema of type %q, version %d; tooltape schemas list shows those that are", args[0], version)
	}
	_, err := fmt.Fprintln(a.out, text)
	return err
}
