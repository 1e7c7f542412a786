package main

import (
	"bytes"
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"os"
	"strings"

	"github.com/spf13/pflag"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
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
	file, err := s.file()
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
	_, err = s.registryAddress()
	return err
}

// registryAddress is the registry's URL; nil where none is configured. What is wrong with it does not quote it: it may hold a password.
func (s *settings) registryAddress() (*url.URL, error) {
	if s.registryURL == "" {
		return nil, nil
	}
	u, err := url.Parse(s.registryURL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" {
		return nil, usagef("--registry-url is not http://host:port or https://host:port")
	}
	return u, nil
}

// demand makes a flag's value stand a check beyond that of its kind, wherever the value comes from.
func demand(f *pflag.FlagSet, name string, check func() error) {
	flag := f.Lookup(name)
	flag.Value = demanding{flag.Value, check}
}

type demanding struct {
	pflag.Value
	check func() error
}

func (d demanding) Set(text string) error {
	if err := d.Value.Set(text); err != nil {
		return err
	}
	return d.check()
}

// atLeast bounds a flag's value from below.
func atLeast[T cmp.Ordered](f *pflag.FlagSet, name string, value *T, least T) {
	demand(f, name, func() error {
		if *value < least {
			return fmt.Errorf("must be at least %v", least)
		}
		return nil
	})
}

// file reads the YAML file: names and plain values as they are written, lists joined with commas.
func (s *settings) file() (map[string]string, error) {
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
	members, err := yamlMembers(text)
	if err != nil {
		return nil, usagef("%s %s", s.config, err)
	}
	lists := namesInFiles()
	values := map[string]string{}
	for i := 0; i < len(members); i += 2 {
		name := members[i].Value
		list, known := lists[name]
		if !known {
			return nil, usagef("%s: there is no setting %s", s.config, name)
		}
		if _, twice := values[name]; twice {
			return nil, usagef("%s: %s is set twice", s.config, name)
		}
		if values[name], err = yamlValue(members[i+1], list); err != nil {
			return nil, usagef("%s: %s %s", s.config, name, err)
		}
	}
	return values, nil
}

// namesInFiles are the names that a file may set, and which of them take a list. One file serves all commands, so the settings of single
// ones are always known.
func namesInFiles() map[string]bool {
	f := pflag.NewFlagSet("", pflag.ContinueOnError)
	new(settings).register(f)
	lists := map[string]bool{}
	f.VisitAll(func(flag *pflag.Flag) {
		lists[strings.ReplaceAll(flag.Name, "-", "_")] = flag.Value.Type() == "stringSlice"
	})
	for _, name := range commandSettings {
		lists[name] = false
	}
	delete(lists, "config") // a file names no other
	return lists
}

// yamlMembers are the names and values of the one mapping in a text, in turn. They are nodes: decoded, 007 would be the number 7.
func yamlMembers(text []byte) ([]*yaml.Node, error) {
	var document yaml.Node
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	err := decoder.Decode(&document)
	if errors.Is(err, io.EOF) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("is not a YAML mapping: %w", err)
	}
	if err := decoder.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return nil, errors.New("holds more than one YAML document")
	}
	root := document.Content[0]
	switch {
	case root.Kind == yaml.MappingNode:
		return root.Content, nil
	case root.Tag == yamlNull:
		return nil, nil
	}
	return nil, errors.New("is not a YAML mapping")
}

// yamlNull is the tag of null, also of a value that is not there.
const yamlNull = "!!null"

// yamlValue is a setting's value as it is written.
func yamlValue(n *yaml.Node, list bool) (string, error) {
	switch {
	case n.Kind == yaml.ScalarNode && n.Tag == yamlNull:
		return "", errors.New("has no value: leave it out, or give it one")
	case n.Kind == yaml.ScalarNode:
		return n.Value, nil
	case n.Kind != yaml.SequenceNode:
		return "", fmt.Errorf("is a mapping or an alias, a setting is %s", wanted(list))
	case !list:
		return "", fmt.Errorf("is a list, the setting is %s", wanted(list))
	}
	words := make([]string, 0, len(n.Content))
	for _, item := range n.Content {
		word, err := yamlValue(item, false)
		if err != nil {
			return "", fmt.Errorf("holds an item that %w", err)
		}
		words = append(words, word)
	}
	return strings.Join(words, ","), nil
}

func wanted(list bool) string {
	if list {
		return "a plain value or a list"
	}
	return "a plain value"
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
	mechanism, err := s.saslMechanism()
	if err != nil {
		return nil, err
	}
	if mechanism != nil {
		opts = append(opts, kgo.SASL(mechanism))
	}
	return opts, nil
}

// saslMechanism is how to log in at the brokers; nil where nothing is said of it. Half of it is an error: it would log in as somebody else,
// or not at all.
func (s *settings) saslMechanism() (sasl.Mechanism, error) {
	if s.sasl == "" && (s.saslUser != "" || s.saslPassword != "") {
		return nil, usagef("--sasl-user and --sasl-password need --sasl, which names the mechanism")
	}
	if s.sasl != "" && s.saslUser == "" {
		return nil, usagef("--sasl needs --sasl-user")
	}
	login := scram.Auth{User: s.saslUser, Pass: s.saslPassword}
	switch s.sasl {
	case "":
		return nil, nil
	case "plain":
		return plain.Auth{User: s.saslUser, Pass: s.saslPassword}.AsMechanism(), nil
	case "scram-sha-256":
		return login.AsSha256Mechanism(), nil
	case "scram-sha-512":
		return login.AsSha512Mechanism(), nil
	}
	return nil, usagef("--sasl is plain, scram-sha-256 or scram-sha-512, not %q", s.sasl)
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
