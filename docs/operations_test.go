package docs_test

import (
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tooltape/tooltape/schemas/event"
)

const operationsPage = "docs/OPERATIONS.md"

// operations holds the lists of docs/OPERATIONS.md to the program: tables, codes, metrics and settings, each by its name.
func (s *session) operations(t *testing.T) {
	page := read(t, operationsPage)
	need := func(what, name string) {
		t.Helper()
		if !strings.Contains(page, "`"+name+"`") {
			t.Errorf("%s does not name the %s %s", operationsPage, what, name)
		}
	}
	for _, code := range append(append([]event.Code{}, event.ParkingCodes...), event.SetAsideCodes...) {
		need("code", string(code))
	}
	for _, name := range s.metrics(t) {
		need("metric", name)
	}
	for _, name := range s.flags(t) {
		need("setting", name)
	}
	for table, columns := range s.tables(t) {
		_, section, ok := strings.Cut(page, "\n### tooltape."+table+"\n")
		section, _, _ = strings.Cut(section, "\n#")
		if !ok {
			t.Errorf("%s has no section about the table %s", operationsPage, table)
			continue
		}
		for _, column := range columns {
			if !strings.Contains(section, "| `"+column+"` |") {
				t.Errorf("%s does not name the column %s of %s", operationsPage, column, table)
			}
		}
	}
}

// setting is a value of dev's env.
func (s *session) setting(t *testing.T, name string) string {
	t.Helper()
	return strings.TrimSpace(s.script(t, fmt.Sprintf("echo $TOOLTAPE_%s", name)))
}

// tables are the columns of the tables that are there.
func (s *session) tables(t *testing.T) map[string][]string {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), s.setting(t, "DATABASE_URL"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	rows, err := conn.Query(t.Context(), `SELECT table_name::text, column_name::text FROM information_schema.columns WHERE table_schema = 'tooltape'`)
	if err != nil {
		t.Fatal(err)
	}
	tables := map[string][]string{}
	var table, column string
	if _, err := pgx.ForEachRow(rows, []any{&table, &column}, func() error {
		tables[table] = append(tables[table], column)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return tables
}

var (
	listening  = regexp.MustCompile(`metrics and health on (http://[^;]+);`)
	metricType = regexp.MustCompile(`(?m)^# TYPE ((?:tooltape|messaging)_\w+) `)
	flagName   = regexp.MustCompile(`(?m)^ +(?:-\w, )?--([\w-]+)`)
)

// metrics are the names that dev exports by now.
func (s *session) metrics(t *testing.T) []string {
	t.Helper()
	m := listening.FindStringSubmatch(s.said())
	if m == nil {
		t.Fatal("dev did not say where its metrics are")
	}
	client := http.Client{Timeout: 10 * time.Second}
	answer, err := client.Get(m[1] + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return firsts(metricType, string(text))
}

// flags are those of every command, and of run history.
func (s *session) flags(t *testing.T) []string {
	t.Helper()
	names := map[string]bool{"help": true}
	var flags []string
	for _, name := range firsts(flagName, s.script(t, "tooltape run history --help")) {
		if !names[name] {
			names[name] = true
			flags = append(flags, "--"+name)
		}
	}
	return flags
}

func firsts(pattern *regexp.Regexp, text string) []string {
	var found []string
	for _, m := range pattern.FindAllStringSubmatch(text, -1) {
		found = append(found, m[1])
	}
	return found
}
