// Package tools checks the checks.
package tools

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const (
	own     = "github.com/tooltape/tooltape/"
	goavro  = "github.com/linkedin/goavro/v2"
	kgo     = "github.com/twmb/franz-go/pkg/kgo"
	kfake   = "github.com/twmb/franz-go/pkg/kfake"
	pgx     = "github.com/jackc/pgx/v5"
	avro    = "github.com/twmb/avro"
	rapid   = "pgregory.net/rapid"
	ownPack = "github.com/fergusstrange/embedded-postgres"
)

// planted is a file that breaks a rule, or must not.
type planted struct {
	file string // its name, or a folder for one of its own
	code string // an import path, or code
	want string // what the linter says of it; empty: nothing
}

var imports = []planted{
	// The core has no I/O, clock or randomness, and its layers go down only.
	{"schemas/event/", "os", "not allowed from list 'core'"},
	{"schemas/event/", "os/exec", "not allowed from list 'core'"},
	{"schemas/event/", "io", "not allowed from list 'core'"},
	{"schemas/event/", "log/slog", "not allowed from list 'core'"},
	{"schemas/event/", "context", "not allowed from list 'core'"},
	{"schemas/event/", "github.com/google/uuid", "not allowed from list 'core'"},
	{"schemas/event/", own + "processors/projection", "lowest layer"},
	{"schemas/event/", own + "processors/decision", "lowest layer"},
	{"schemas/event/", "strings", ""},
	{"processors/projection/", "net/http", "not allowed from list 'core'"},
	{"processors/projection/", "math/rand", "not allowed from list 'core'"},
	{"processors/projection/", "math/rand/v2", "not allowed from list 'core'"},
	{"processors/projection/", own + "processors/decision", "the decision reads the projection"},
	{"processors/projection/", own + "schemas", "not allowed from list 'core'"},
	{"processors/projection/", own + "sinks", "not allowed from list 'core'"},
	{"processors/projection/", own + "schemas/event", ""},
	{"processors/projection/", "encoding/json", ""},
	{"processors/decision/", "crypto/rand", "not allowed from list 'core'"},
	{"processors/decision/", "database/sql", "not allowed from list 'core'"},
	{"processors/decision/", kgo, "not allowed from list 'core'"},
	{"processors/decision/", own + "processors", "not allowed from list 'core'"},
	{"processors/decision/", own + "processors/projection", ""},
	{"processors/decision/planted_test.go", "os", ""},

	// Only schemas knows the codec, and it knows nothing above the event.
	{"schemas/planted.go", goavro, ""},
	{"schemas/registry/", goavro, "only schemas imports the codec"},
	{"producer/", goavro, "only schemas imports the codec"},
	{"processors/", goavro, "only schemas imports the codec"},
	{"sinks/postgres/", goavro, "only schemas imports the codec"},
	{"cmd/tooltape/internal/", goavro, "only schemas imports the codec"},
	{"schemas/", own + "processors/projection", "imports go down only"},
	{"schemas/", own + "sinks", "imports go down only"},
	{"schemas/", own + "producer", "imports go down only"},
	{"schemas/", kgo, "does not know where bytes come from"},
	{"schemas/", pgx, "knows no store"},
	{"schemas/registry/", own + "schemas", ""},
	{"schemas/registry/", "github.com/twmb/franz-go/pkg/sr", ""},

	// The writer and the loop never see SQL, nor each other.
	{"producer/", pgx, "never sees SQL"},
	{"producer/", "database/sql", "never sees SQL"},
	{"producer/", own + "sinks/postgres", "the writer knows no store"},
	{"producer/", own + "processors", "does not know the loop"},
	{"producer/", own + "schemas", ""},
	{"producer/", own + "processors/projection", ""},
	{"producer/", kgo, ""},
	{"processors/", pgx + "/pgxpool", "never see SQL"},
	{"processors/", own + "sinks/postgres", "know what a store promises"},
	{"processors/", own + "sinks/history", "know what a store promises"},
	{"processors/", own + "sinks/memory", "know what a store promises"},
	{"processors/", own + "producer", "there is one writer"},
	{"processors/", own + "sinks", ""},
	{"processors/", own + "processors/decision", ""},
	{"processors/", kgo, ""},
	{"processors/planted_test.go", own + "sinks/postgres", ""},

	// Stores never see Kafka, Avro or the loop.
	{"sinks/history/", kgo, "sinks never see Kafka"},
	{"sinks/postgres/", "github.com/twmb/franz-go/pkg/kadm", "sinks never see Kafka"},
	{"sinks/postgres/", own + "processors", "does not know the loop"},
	{"sinks/memory/", own + "processors/eventlog", "does not know the loop"},
	{"sinks/history/", own + "producer", "appends no event"},
	{"sinks/history/", own + "processors/projection", ""},
	{"sinks/skillreview/", own + "processors/decision", ""},
	{"sinks/history/", own + "sinks/postgres", ""},
	{"sinks/postgres/", pgx, ""},
	{"sinks/planted.go", pgx, "holds for any store"},
	{"sinks/planted.go", own + "sinks/postgres", "does not know who keeps it"},
	{"sinks/planted.go", own + "schemas", "handed events and never bytes"},
	{"sinks/planted.go", own + "schemas/event", ""},

	// The wiring may import anything; nothing imports it.
	{"cmd/tooltape/internal/", own + "sinks/postgres", ""},
	{"cmd/tooltape/internal/", own + "deploy/local", ""},
	{"cmd/tooltape/internal/", pgx, ""},
	{"loadtest/", own + "cmd/tooltape/config", "nothing imports the wiring"},
	{"processors/", own + "cmd/tooltape/config", "nothing imports the wiring"},

	// Services are started by the wiring and by tests.
	{"processors/", own + "deploy/local", "only the wiring and tests start services"},
	{"sinks/postgres/", own + "deploy/local", "only the wiring and tests start services"},
	{"producer/", kfake, "for laptops and tests"},
	{"sinks/history/", ownPack, "for laptops and tests"},
	{"sinks/sinktest/planted.go", own + "deploy/local", ""},
	{"processors/topics/topicstest/planted.go", kfake, ""},
	{"processors/topics/topicstest/planted.go", "testing", ""},
	{"loadtest/", own + "deploy/local", ""},
	{"sinks/postgres/planted_test.go", own + "deploy/local", ""},
	{"schemas/planted_test.go", avro, ""},
	{"schemas/", avro, "independent opinion"},
	{"producer/", "testing", "test package"},
	{"cmd/tooltape/internal/", rapid, "test package"},
}

var statements = []planted{
	{"schemas/event/", `import "time"; var Now = time.Now()`, "the core has no clock"},
	{"processors/projection/", `import clock "time"; var now = clock.Now; var _ = now`, "the core has no clock"},
	{"processors/decision/", `import . "time"; func F(t Time) Duration { return Since(t) }`, "the core has no clock"},
	{"processors/decision/", `import "time"; func F(a, b time.Time) time.Duration { return a.Sub(b) }`, ""},
	{"processors/", `import "time"; var Now = time.Now()`, ""},
	{"sinks/history/", `import "fmt"; func F() { fmt.Println("here") }`, "standard output belongs to the command"},
	{"cmd/tooltape/internal/", `import "fmt"; func F() { fmt.Println("here") }`, ""},
	{"producer/", `import "net/http"; var Client = http.DefaultClient`, "waits for ever"},
	{"cmd/tooltape/internal/", `import "net/http"; var Client = http.DefaultClient`, "waits for ever"},
	{"processors/", `import "os"; func F() { os.Exit(1) }`, "only main ends the process"},
	{"processors/utils/planted.go", "const C = 1", "package-naming"},
	{"producer/", "// TODO: later\nconst C = 1", "godox"},
	{"producer/", "var C = 1 //nolint:unused", "nolintlint"},
}

// TestTheLinterReportsWhatItForbids plants each file in a copy of the layout whose packages are empty, so that no import
// makes a cycle, and reads what the project's own configuration says of it.
func TestTheLinterReportsWhatItForbids(t *testing.T) {
	root := layout(t)
	cases := make(map[string]planted)
	for i, p := range slices.Concat(imports, statements) {
		if strings.HasSuffix(p.file, "/") {
			p.file += fmt.Sprintf("planted%d/planted.go", i)
		} else if !strings.Contains(p.file, "utils") {
			p.file = strings.Replace(p.file, "planted", fmt.Sprintf("planted%d", i), 1)
		}
		if i < len(imports) {
			p.code = fmt.Sprintf("import _ %q", p.code)
		}
		write(t, root, p.file, p.code)
		cases[p.file] = p
	}
	said := lint(t, root)
	for _, file := range slices.Sorted(maps.Keys(cases)) {
		p := cases[file]
		switch {
		case p.want == "" && said[file] != "":
			t.Errorf("%s: %s\n\tis allowed, and the linter says %s", file, p.code, said[file])
		case !strings.Contains(said[file], p.want):
			t.Errorf("%s: %s\n\tthe linter should say %q, and says %q", file, p.code, p.want, said[file])
		}
	}
}

// layout makes a module with the project's name, dependencies, linter configuration and packages, these empty.
func layout(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	for _, name := range []string{"go.mod", "go.sum", ".golangci.yaml"} {
		text, err := os.ReadFile(filepath.Join("..", name))
		must(t, err)
		must(t, os.WriteFile(filepath.Join(root, name), text, 0o600))
	}
	for _, dir := range []string{
		"schemas", "schemas/event", "schemas/registry", "producer", "processors", "processors/projection",
		"processors/decision", "processors/eventlog", "sinks", "sinks/postgres", "sinks/history", "sinks/memory",
		"cmd/tooltape/config", "deploy/local",
	} {
		write(t, root, dir+"/empty.go", "")
	}
	return root
}

// write writes a file of the package that its folder names.
func write(t *testing.T, root, file, code string) {
	t.Helper()
	name := filepath.Join(root, filepath.FromSlash(file))
	must(t, os.MkdirAll(filepath.Dir(name), 0o755))
	must(t, os.WriteFile(name, fmt.Appendf(nil, "package %s\n\n%s\n", path.Base(path.Dir(file)), code), 0o600))
}

// lint returns what the linter says, by file.
func lint(t *testing.T, root string) map[string]string {
	t.Helper()
	program, err := exec.Command("go", "tool", "-n", "golangci-lint").Output()
	must(t, err)
	cmd := exec.Command(strings.TrimSpace(string(program)), "run", "--allow-parallel-runners", "--enable-only", "depguard,forbidigo,godox,nolintlint,revive",
		"--output.text.path", "stdout", "--output.text.print-issued-lines=false", "--output.text.colors=false",
		"--show-stats=false", "./...")
	cmd.Dir = root
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if exit, ok := err.(*exec.ExitError); err != nil && (!ok || exit.ExitCode() != 1) {
		t.Fatalf("the linter failed: %v\n%s", err, stderr.String())
	}
	if strings.Contains(string(out), "(typecheck)") {
		t.Fatalf("a planted file does not compile:\n%s", out)
	}
	said := make(map[string]string)
	for line := range strings.Lines(string(out)) {
		file, message, _ := strings.Cut(line, ":")
		said[file] += message
	}
	return said
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
