package main

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
	"go.yaml.in/yaml/v3"

	"github.com/tooltape/tooltape/schemas"
)

// settings reach every command. Each has one name: the flag --topic-prefix is TOOLTAPE_TOPIC_PREFIX in the environment and
// topic_prefix in the file.
type settings struct {
	config string

	brokers      []string
	databaseURL  string
	registryURL  string
	topicPrefix  string
	output       string
	logLevel     string
	tls          bool
	tlsCA        string
	tlsCert      string
	tlsKey       string
	sasl         string
	saslUser     string
	saslPassword string
}

// The kinds of output.
const (
	outputText = "text"
	outputJSON = "json"
)

// secrets are the settings that may instead name a file that holds them, under their name and -file.
var secrets = []string{"database-url", "sasl-password"}

func (s *settings) register(f *pflag.FlagSet) {
	f.StringVar(&s.config, "config", "", "YAML file with settings")
	f.StringSliceVar(&s.brokers, "brokers", nil, "Kafka's bootstrap addresses, host:port, several with commas")
	f.StringVar(&s.databaseURL, "database-url", "", "PostgreSQL, postgres://user:password@host:port/database")
	f.StringVar(&s.registryURL, "registry-url", "", "schema registry with Confluent's API; none: Avro single-object encoding")
	f.StringVar(&s.topicPrefix, "topic-prefix", schemas.DefaultPrefix, "what the names of topics and consumer groups begin with")
	f.StringVarP(&s.output, "output", "o", outputText, "how to print: text or json")
	f.StringVar(&s.logLevel, "log-level", "", "what to log on standard error: debug, info, warn, error; info unless said, in dev warn")
	f.BoolVar(&s.tls, "tls", false, "reach Kafka over TLS")
	f.StringVar(&s.tlsCA, "tls-ca-file", "", "PEM file with the authority that signed the brokers' certificates")
	f.StringVar(&s.tlsCert, "tls-cert-file", "", "PEM file with this client's certificate")
	f.StringVar(&s.tlsKey, "tls-key-file", "", "PEM file with its key")
	f.StringVar(&s.sasl, "sasl", "", "SASL mechanism: plain, scram-sha-256 or scram-sha-512")
	f.StringVar(&s.saslUser, "sasl-user", "", "SASL user")
	f.StringVar(&s.saslPassword, "sasl-password", "", "SASL password; better from a file or the environment")
	for _, name := range secrets {
		f.String(name+"-file", "", "file that holds what --"+name+" would")
	}
}

// load fills what no flag said from the environment, then from the file.
func (s *settings) load(f *pflag.FlagSet) error {
	file, err := s.file(f)
	if err != nil {
		return err
	}
	said := map[string]source{}
	var failed error
	f.VisitAll(func(flag *pflag.Flag) {
		if flag.Changed {
			said[flag.Name] = commandLine
			return
		}
		name := strings.ReplaceAll(flag.Name, "-", "_")
		variable := "TOOLTAPE_" + strings.ToUpper(name)
		value, ok := os.LookupEnv(variable)
		where, from := variable, environment
		if !ok {
			value, ok = file[name]
			where, from = s.config+": "+name, configuration
		}
		if !ok || failed != nil {
			return
		}
		if err := f.Set(flag.Name, value); err != nil {
			failed = usagef("%s: %s", where, err)
		}
		said[flag.Name] = from
	})
	if failed != nil {
		return failed
	}
	if err := s.readSecrets(f, said); err != nil {
		return err
	}
	if s.output != outputText && s.output != outputJSON {
		return usagef("--output is text or json, not %q", s.output)
	}
	return nil
}

// file reads the YAML file: names and plain values, lists joined with commas.
func (s *settings) file(f *pflag.FlagSet) (map[string]string, error) {
	if s.config == "" {
		s.config = os.Getenv("TOOLTAPE_CONFIG")
	}
	if s.config == "" {
		return nil, nil
	}
	text, err := os.ReadFile(s.config)
	if err != nil {
		return nil, usagef("reading the configuration: %s", err)
	}
	raw := map[string]any{}
	if err := yaml.Unmarshal(text, &raw); err != nil {
		return nil, usagef("%s is not a YAML mapping: %s", s.config, err)
	}
	values := map[string]string{}
	for name, v := range raw {
		// A setting of another command is known too: one file serves them all.
		if flag := f.Lookup(strings.ReplaceAll(name, "_", "-")); flag == nil && !slices.Contains(commandSettings, name) {
			return nil, usagef("%s: there is no setting %s", s.config, name)
		}
		switch v := v.(type) {
		case []any:
			words := make([]string, 0, len(v))
			for _, w := range v {
				words = append(words, fmt.Sprint(w))
			}
			values[name] = strings.Join(words, ",")
		case map[string]any:
			return nil, usagef("%s: %s is a mapping, a setting is a plain value or a list", s.config, name)
		default:
			values[name] = fmt.Sprint(v)
		}
	}
	return values, nil
}

// source is where a setting comes from, the weaker ones first.
type source int

const (
	nowhere source = iota
	configuration
	environment
	commandLine
)

// readSecrets reads what is named by its file. Where both forms are set, the one from the stronger source counts.
func (s *settings) readSecrets(f *pflag.FlagSet, said map[string]source) error {
	for _, name := range secrets {
		path, err := f.GetString(name + "-file")
		if err != nil || path == "" || said[name+"-file"] < said[name] {
			continue
		}
		if said[name+"-file"] == said[name] {
			return usagef("--%s and --%s-file are both set: one of them is enough", name, name)
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return usagef("reading --%s-file: %s", name, err)
		}
		if err := f.Set(name, strings.TrimSpace(string(text))); err != nil {
			return usagef("--%s-file: %s", name, err)
		}
	}
	return nil
}

func (s *settings) topics() schemas.Topics { return schemas.Topics{Prefix: s.topicPrefix} }

// kafka is how to reach the brokers.
func (s *settings) kafka() ([]kgo.Opt, error) {
	if len(s.brokers) == 0 {
		return nil, usagef("no Kafka was named: set --brokers or TOOLTAPE_BROKERS (tooltape dev writes it into .tooltape/env)")
	}
	opts := []kgo.Opt{kgo.SeedBrokers(s.brokers...), kgo.ClientID("tooltape")}
	if s.tls || s.tlsCA != "" || s.tlsCert != "" {
		cfg, err := s.tlsConfig()
		if err != nil {
			return nil, err
		}
		opts = append(opts, kgo.DialTLSConfig(cfg))
	}
	switch s.sasl {
	case "":
	case "plain":
		opts = append(opts, kgo.SASL(plain.Auth{User: s.saslUser, Pass: s.saslPassword}.AsMechanism()))
	case "scram-sha-256":
		opts = append(opts, kgo.SASL(scram.Auth{User: s.saslUser, Pass: s.saslPassword}.AsSha256Mechanism()))
	case "scram-sha-512":
		opts = append(opts, kgo.SASL(scram.Auth{User: s.saslUser, Pass: s.saslPassword}.AsSha512Mechanism()))
	default:
		return nil, usagef("--sasl is plain, scram-sha-256 or scram-sha-512, not %q", s.sasl)
	}
	return opts, nil
}

func (s *settings) tlsConfig() (*tls.Config, error) {
	cfg := &tls.Config{MinVersion: tls.VersionTLS12}
	if s.tlsCA != "" {
		pem, err := os.ReadFile(s.tlsCA)
		if err != nil {
			return nil, usagef("reading --tls-ca-file: %s", err)
		}
		cfg.RootCAs = x509.NewCertPool()
		if !cfg.RootCAs.AppendCertsFromPEM(pem) {
			return nil, usagef("--tls-ca-file %s holds no PEM certificate", s.tlsCA)
		}
	}
	if s.tlsCert != "" || s.tlsKey != "" {
		pair, err := tls.LoadX509KeyPair(s.tlsCert, s.tlsKey)
		if err != nil {
			return nil, usagef("reading --tls-cert-file and --tls-key-file: %s", err)
		}
		cfg.Certificates = []tls.Certificate{pair}
	}
	return cfg, nil
}

func (s *settings) logger(a *app, unlessSaid string) (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(cmp.Or(s.logLevel, unlessSaid))); err != nil {
		return nil, usagef("--log-level is debug, info, warn or error, not %q", s.logLevel)
	}
	o := &slog.HandlerOptions{Level: level}
	if s.output == outputJSON {
		return slog.New(slog.NewJSONHandler(a.errs, o)), nil
	}
	return slog.New(slog.NewTextHandler(a.errs, o)), nil
}
