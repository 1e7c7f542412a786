package main

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/tooltape/tooltape/sinks/history"
	"github.com/tooltape/tooltape/sinks/sinktest"
)

// prefixOf is the topic prefix that a command line ends up with: schemas list shows it.
func prefixOf(c *cli, args ...string) string {
	c.Helper()
	rows := decoded[[]schemaRow](c, c.done(append([]string{"schemas", "list", "-o", "json"}, args...)...))
	prefix, _, _ := strings.Cut(rows[0].Subject, ".events-")
	return prefix
}

func TestAFlagWinsOverTheEnvironmentAndThatOverTheFile(t *testing.T) {
	c := bare(t)
	file := c.file("tooltape.yaml", "topic_prefix: from-file", "brokers: [a:1, b:2]", "partitions: 12", "listen: 127.0.0.1:0")
	if got := prefixOf(c); got != "tooltape" {
		t.Errorf("with nothing said the prefix is %s", got)
	}
	if got := prefixOf(c, "--config", file); got != "from-file" {
		t.Errorf("with a file the prefix is %s", got)
	}
	t.Setenv("TOOLTAPE_CONFIG", file)
	if got := prefixOf(c); got != "from-file" {
		t.Errorf("with a file that the environment names the prefix is %s", got)
	}
	t.Setenv("TOOLTAPE_TOPIC_PREFIX", "from-environment")
	if got := prefixOf(c); got != "from-environment" {
		t.Errorf("with both the prefix is %s", got)
	}
	if got := prefixOf(c, "--topic-prefix", "from-flag"); got != "from-flag" {
		t.Errorf("with all the prefix is %s", got)
	}
	t.Setenv("TOOLTAPE_OUTPUT", "json")
	if out := c.done("schemas", "list"); !json.Valid([]byte(out)) {
		t.Error("the output that the environment asks for is not given")
	}
}

func TestASettingThatCannotBeIsAWrongUse(t *testing.T) {
	c := bare(t)
	for name, l := range map[string]struct{ line, says string }{
		"a key that is none":      {"topics_prefix: x", "there is no setting topics_prefix"},
		"a key in another case":   {"Topic_Prefix: x", "there is no setting Topic_Prefix"},
		"a key with a dash":       {"topic-prefix: x", "there is no setting topic-prefix"},
		"another command's flag":  {"dry_run: true", "there is no setting dry_run"},
		"help":                    {"help: true", "there is no setting help"},
		"another file":            {"config: other.yaml", "there is no setting config"},
		"a key twice":             {"tls: true\ntls: true", "tls is set twice"},
		"a merge":                 {"<<: {tls: true}", "there is no setting <<"},
		"a mapping":               {"brokers: {a: 1}", "brokers is a mapping"},
		"an alias":                {"topic_prefix: &p x\noutput: *p", "output is a mapping or an alias"},
		"nothing":                 {"topic_prefix:", "topic_prefix has no value"},
		"null":                    {"topic_prefix: null", "topic_prefix has no value"},
		"null in a list":          {"brokers: [a:1, ~]", "brokers holds an item that has no value"},
		"a list in a list":        {"brokers: [[a:1]]", "brokers holds an item that is a list"},
		"a list for a plain one":  {"topic_prefix: [a, b]", "topic_prefix is a list"},
		"another command's list":  {"workers: [1]", "workers is a list"},
		"no mapping at all":       {"- a", "not a YAML mapping"},
		"two documents":           {"tls: true\n---\ntls: false", "more than one YAML document"},
		"a broken second one":     {"tls: true\n---\n}", "more than one YAML document"},
		"a value of another kind": {"tls: perhaps", "tls: "},
	} {
		t.Run(name, func(t *testing.T) {
			c.T = t
			c.failed(c.run("version", "--config", c.file("tooltape.yaml", l.line)), exitUsage, l.says)
		})
	}
	c.T = t
	c.failed(c.run("version", "--config", "no-such-file.yaml"), exitUsage, "no-such-file.yaml")
	c.failed(c.run("version", "-o", "xml"), exitUsage, "--output is text or json")
	t.Setenv("TOOLTAPE_TLS", "perhaps")
	c.failed(c.run("version"), exitUsage, "TOOLTAPE_TLS")
}

func TestAValueIsTakenAsItIsWritten(t *testing.T) {
	c := bare(t)
	for written, want := range map[string]string{"007": "007", "1e3": "1e3", "0x10": "0x10", "yes": "yes", "2026-03-01": "2026-03-01", `"null"`: "null", "'a b'": "a b"} {
		if got := prefixOf(c, "--config", c.file("tooltape.yaml", "topic_prefix: "+written)); got != want {
			t.Errorf("topic_prefix: %s is the prefix %q, want %q", written, got, want)
		}
	}
	for _, nothing := range []string{"", "# a comment\n", "---\n"} {
		c.done("version", "--config", c.file("tooltape.yaml", nothing))
	}
}

func TestANumberOutOfBoundsIsAWrongUseWhereverItComesFrom(t *testing.T) {
	for line, says := range map[string]string{
		"run history --workers -3":            "at least 0",
		"run history --batch-records -1":      "at least 0",
		"run history --max-unpacked-bytes -1": "at least 0",
		"run history --session-timeout 0":     "at least 1s",
		"run history --session-timeout 999ms": "at least 1s",
		"history s --at-least -1":             "at least 0",
		"history s --wait -1s":                "at least 0s",
		"topics plan --partitions 0":          "at least 1",
		"topics apply --replication-factor 0": "at least 1, or -1",
		"topics plan --replication-factor -2": "at least 1, or -1",
		"resume --all --rate 0":               "at least 1",
		"cat --sasl-user me --brokers a:1":    "need --sasl",
		"cat --sasl-password x --brokers a:1": "need --sasl",
		"cat --sasl plain --brokers a:1":      "--sasl needs --sasl-user",
		"version --registry-url registry:81":  "--registry-url is not http",
		"version --registry-url ftp://r":      "--registry-url is not http",
		"version --registry-url http://:8081": "--registry-url is not http",
		"version --registry-url https:///x":   "--registry-url is not http",
	} {
		t.Run(line, func(t *testing.T) {
			c := bare(t)
			c.failed(c.run(strings.Fields(line)...), exitUsage, says)
		})
	}
	c := bare(t)
	file := c.file("tooltape.yaml", "workers: -1")
	c.failed(c.run("run", "history", "--config", file), exitUsage, file+": workers: ", "must be at least 0")
	t.Setenv("TOOLTAPE_WORKERS", "-2")
	c.failed(c.run("run", "history"), exitUsage, "TOOLTAPE_WORKERS: ", "must be at least 0")
}

const secret = "hunter2-hunter2"

func TestASecretIsReadFromAFileAndNeverPrinted(t *testing.T) {
	c := bare(t)
	url := c.file("url", sinktest.Database(t, history.View()), "")
	if out := c.done("parked", "--database-url-file", url, "-o", "json"); out != "[]\n" {
		t.Errorf("with the URL from a file, parked prints %s", out)
	}
	t.Setenv("TOOLTAPE_DATABASE_URL_FILE", url)
	c.done("parked")
	// The stronger source counts, whichever of the two forms it uses.
	t.Setenv("TOOLTAPE_CONFIG", c.file("tooltape.yaml", "database_url: postgres://nobody@127.0.0.1:1/nothing"))
	c.done("parked")
	t.Setenv("TOOLTAPE_CONFIG", "")
	c.failed(c.run("parked", "--database-url", "postgres://x", "--database-url-file", url), exitUsage, "one of them is enough")
	c.failed(c.run("parked", "--database-url-file", "no-such-file"), exitUsage, "no-such-file")
	t.Setenv("TOOLTAPE_DATABASE_URL_FILE", "")

	t.Setenv("TOOLTAPE_SASL_PASSWORD", secret)
	for _, args := range [][]string{
		{"migrate", "--database-url", "postgres://me:" + secret + "@127.0.0.1:1/db"},
		{"migrate", "--database-url", "postgres://me:" + secret + "@127.0.0.1:no/db"},
		{"migrate", "--database-url", "postgres://me:" + secret + "@[::1/db"},
		{"migrate", "--database-url", "host=127.0.0.1 port=1 user=me password=" + secret},
		{"cat", "--brokers", "127.0.0.1:no", "--sasl", "plain", "--sasl-user", "me"},
		{"cat", "--sasl", "plain", "--help"},
		{"cat", "--registry-url", "ftp://me:" + secret + "@registry"},
		{"schemas", "check", "--registry-url", "http://me:" + secret + "@127.0.0.1:1"},
		{"cat", "--sasl", "nonsense", "--brokers", "127.0.0.1:1"},
	} {
		for _, output := range []string{"text", "json"} {
			r := c.run(append(args, "--log-level", "debug", "-o", output)...)
			if strings.Contains(r.out+r.errs, secret) {
				t.Errorf("%v prints the password: %s%s", args, r.out, r.errs)
			}
			if r.code == exitDone && args[len(args)-1] != "--help" {
				t.Errorf("%v succeeds", args)
			}
		}
	}
}

func TestAWrongCommandLineIsExitCode2AndSaysWhatIsWrong(t *testing.T) {
	c := bare(t)
	for line, says := range map[string]string{
		"nosuch":                        "unknown command",
		"topics aply":                   "unknown command",
		"import whatsapp f":             "unknown command",
		"cat --nosuch":                  "unknown flag: --nosuch",
		"cat extra":                     "unknown command",
		"produce":                       "accepts 1 arg",
		"produce a b":                   "accepts 1 arg",
		"items":                         "accepts 1 arg",
		"history":                       "accepts 1 arg",
		"history s --format xml":        "--format is items",
		"history s --at-least many":     "invalid argument",
		"topics plan --partitions many": "invalid argument",
		"schemas show":                  "accepts between 1 and 2 arg",
		"cat --type run.dreamt":         "no event type",
		"cat":                           "TOOLTAPE_BROKERS",
		"produce -":                     "TOOLTAPE_BROKERS",
		"import openai-chat f":          "TOOLTAPE_BROKERS",
		"topics plan":                   "TOOLTAPE_BROKERS",
		"parked":                        "TOOLTAPE_DATABASE_URL",
		"migrate":                       "TOOLTAPE_DATABASE_URL",
		"dev --import what":             "FORMAT=FILE",
	} {
		t.Run(line, func(t *testing.T) {
			c := bare(t)
			args := strings.Fields(line)
			c.failed(c.run(args...), exitUsage, says)
			r := c.run(append(args, "--output", "json")...)
			c.failed(r, exitUsage)
			said := decoded[map[string]map[string]string](t, r.errs)
			if got := slices.Sorted(maps.Keys(said["error"])); !slices.Equal(got, []string{"code", "message"}) || said["error"]["code"] != "usage" || !strings.Contains(said["error"]["message"], says) || r.out != "" {
				t.Errorf("as JSON the error is %s, and printed is %q", r.errs, r.out)
			}
		})
	}
	c.failed(c.run("items", "no-such-file"), exitFailed, "no-such-file")
}

func TestAServiceThatIsNotThereIsExitCode1AndSaysWhatToLookAt(t *testing.T) {
	c := bare(t)
	c.failed(c.run("migrate", "--database-url", "postgres://127.0.0.1:1/db"), exitFailed, "is --database-url right?")
	c.failed(c.run("cat", "--brokers", "127.0.0.1:1"), exitFailed, "127.0.0.1:1", "is --brokers right?")
	empty := sinktest.EmptyDatabase(t)
	c.failed(c.run("parked", "--database-url", empty), exitFailed, "migrate")
	c.done("migrate", "--database-url", empty)
	c.done("migrate", "--database-url", empty)
	c.done("parked", "--database-url", empty)
	k := withKafka(t)
	k.flags[len(k.flags)-1] += ".none"
	for _, line := range []string{"cat", "produce -", "import openai-chat " + parking} {
		k.failed(k.runOn(said("a", "x"), strings.Fields(line)...), exitFailed, ".none.events")
	}
}

func TestHelpAndCompletion(t *testing.T) {
	c := bare(t)
	for _, line := range []string{"", "help", "topics", "import", "help produce", "produce --help"} {
		if out := c.done(strings.Fields(line)...); !strings.Contains(out, "Usage:") {
			t.Errorf("%q prints %q", line, out)
		}
	}
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		if out := c.done("completion", shell); !strings.Contains(out, "tooltape") {
			t.Errorf("the completion of %s is %d bytes", shell, len(out))
		}
	}
	if out := c.done("__complete", "top"); !strings.Contains(out, "topics\t") {
		t.Errorf("top is completed to %s", out)
	}
	if out := c.done("version", "-o", "json"); decoded[map[string]string](t, out)["build"] == "" {
		t.Errorf("the version is %s", out)
	}
	if text := c.done("version"); !strings.HasPrefix(text, "tooltape ") {
		t.Errorf("the version is %s", text)
	}
}
