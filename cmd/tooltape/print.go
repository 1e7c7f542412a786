package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
)

// app is one invocation: its streams and its settings.
type app struct {
	in        io.Reader
	out, errs io.Writer
	settings  settings
	started   bool   // the command line was understood
	dataAt    string // where dev keeps its data
}

// errReported says that the command failed and has already said why, item by item.
var errReported = errors.New("reported")

// coded is an error with a name that a program can act on.
type coded struct {
	code string
	error
}

func (e *coded) Unwrap() error { return e.error }

func withCode(code string, err error) error { return &coded{code, err} }

// report tells an error the way the user asked for.
func (a *app) report(err error, usage bool) {
	code := "failed"
	if usage {
		code = "usage"
	}
	if c := (*coded)(nil); errors.As(err, &c) {
		code = c.code
	}
	message := printable(err.Error())
	if a.settings.output == outputJSON {
		type body struct {
			Code    string `json:"code"`
			Message string `json:"message"`
		}
		text, encodeErr := marshal(map[string]body{"error": {code, message}})
		if encodeErr == nil {
			fmt.Fprintln(a.errs, string(text))
			return
		}
	}
	fmt.Fprintf(a.errs, "tooltape: %s\n", message)
	if usage {
		fmt.Fprintln(a.errs, "tooltape COMMAND --help tells what a command takes.")
	}
}

// marshal writes JSON that a person can read: <, > and & stand as they are.
func marshal(v any) ([]byte, error) {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return []byte(strings.TrimSuffix(b.String(), "\n")), nil
}

// printOne prints a struct: an object, or a line a field.
func (a *app) printOne(v any) error {
	if a.settings.output == outputJSON {
		return a.printJSON(v)
	}
	w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	value := reflect.ValueOf(v)
	for _, c := range columns(value.Type()) {
		fmt.Fprintf(w, "%s\t%s\n", c.name, cell(value.Field(c.field)))
	}
	return w.Flush()
}

// printList prints a slice of structs whose JSON names are the columns: an array of objects, or a table.
func (a *app) printList(rows any) error {
	list := reflect.ValueOf(rows)
	if a.settings.output == outputJSON {
		if list.Len() == 0 {
			rows = []struct{}{}
		}
		return a.printJSON(rows)
	}
	w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	shown := columns(list.Type().Elem())
	cells := make([]string, len(shown))
	for i, c := range shown {
		cells[i] = strings.ToUpper(c.name)
	}
	fmt.Fprintln(w, strings.Join(cells, "\t"))
	for row := range list.Len() {
		for i, c := range shown {
			cells[i] = cell(list.Index(row).Field(c.field))
		}
		fmt.Fprintln(w, strings.Join(cells, "\t"))
	}
	return w.Flush()
}

func (a *app) printJSON(v any) error {
	text, err := marshal(v)
	if err != nil {
		return fmt.Errorf("printing JSON: %w", err)
	}
	_, err = fmt.Fprintln(a.out, string(text))
	return err
}

// column is a field that is printed, under its JSON name.
type column struct {
	name  string
	field int
}

func columns(t reflect.Type) []column {
	var shown []column
	for i := range t.NumField() {
		if name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ","); name != "" {
			shown = append(shown, column{name, i})
		}
	}
	return shown
}

// printable is a text that may be another program's, without what could move the cursor of the terminal, or turn around or hide what
// stands beside it. Its lines stay.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r != '\n' && unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp) {
			return unicode.ReplacementChar
		}
		return r
	}, s)
}

// cell is a value in a table: printable, and one line.
func cell(v reflect.Value) string {
	var s string
	switch x := v.Interface().(type) {
	case time.Time:
		s = x.UTC().Format(time.RFC3339)
	case []string:
		s = strings.Join(x, ",")
	case map[string]int:
		words := make([]string, 0, len(x))
		for _, what := range sortedKeys(x) {
			words = append(words, fmt.Sprintf("%d %s", x[what], what))
		}
		s = strings.Join(words, ", ")
	default:
		s = fmt.Sprint(x)
	}
	return strings.ReplaceAll(printable(s), "\n", string(unicode.ReplacementChar))
}

// sortedKeys are the keys of m in order.
func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }
