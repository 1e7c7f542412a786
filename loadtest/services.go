package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/tooltape/tooltape/deploy/local"
)

// databaseVariable carries the database's URL to both sides: it holds a password, and command lines are for all to see.
const databaseVariable = "TOOLTAPE_DATABASE_URL"

// services are the Kafka and the PostgreSQL that both sides work on.
type services struct {
	brokers     []string
	databaseURL string
	stops       []func() error
}

// findServices takes what flags and environment name, and starts what they do not.
func findServices(ctx context.Context, o options) (_ *services, err error) {
	s := &services{brokers: o.brokers, databaseURL: o.databaseURL}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.stop())
		}
	}()
	if len(s.brokers) == 0 {
		s.brokers = strings.FieldsFunc(firstOf("TOOLTAPE_BROKERS", "TOOLTAPE_TEST_BROKERS"), func(r rune) bool { return r == ',' })
	}
	if s.databaseURL == "" {
		s.databaseURL = firstOf(databaseVariable, "TOOLTAPE_TEST_DATABASE_URL")
	}
	if len(s.brokers) == 0 {
		if err := s.startKafka(ctx); err != nil {
			return s, fmt.Errorf("starting Kafka (name one with --brokers instead): %w", err)
		}
	}
	if s.databaseURL == "" {
		server, err := local.StartPostgres(ctx, local.PostgresOptions{Log: os.Stderr})
		if err != nil {
			return s, fmt.Errorf("starting PostgreSQL (name one with --database-url instead): %w", err)
		}
		s.databaseURL = server.URL
		s.stops = append(s.stops, server.Stop)
	}
	return s, nil
}

func firstOf(variables ...string) string {
	for _, name := range variables {
		if v := os.Getenv(name); v != "" {
			return v
		}
	}
	return ""
}

var exportedBrokers = regexp.MustCompile(`TOOLTAPE_TEST_BROKERS=(\S+)`)

// startKafka starts a real one by the project's script. Its PostgreSQL would not do: it leaves fsync off.
func (s *services) startKafka(ctx context.Context) error {
	root, err := output(exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", module))
	if err != nil {
		return fmt.Errorf("finding the module's folder: %w", err)
	}
	scripts := filepath.Join(strings.TrimSpace(string(root)), "deploy", "local")
	dir, err := os.MkdirTemp("", "tooltape-loadtest-")
	if err != nil {
		return err
	}
	s.stops = append(s.stops, func() error {
		_, err := output(exec.Command(filepath.Join(scripts, "down"), "--dir", dir, "--purge"))
		return errors.Join(err, os.RemoveAll(dir))
	})
	exports, err := output(exec.CommandContext(ctx, filepath.Join(scripts, "up"), "--dir", dir, "kafka"))
	if err != nil {
		return err
	}
	found := exportedBrokers.FindSubmatch(exports)
	if found == nil {
		return fmt.Errorf("deploy/local/up did not say where Kafka is: %s", bytes.TrimSpace(exports))
	}
	s.brokers = []string{string(found[1])}
	return nil
}

// stop ends what findServices started, the last first.
func (s *services) stop() error {
	var err error
	for i := len(s.stops) - 1; i >= 0; i-- {
		err = errors.Join(err, s.stops[i]())
	}
	s.stops = nil
	return err
}

// output is what a command prints; what it says on standard error becomes part of its error.
func output(cmd *exec.Cmd) ([]byte, error) {
	var complaints bytes.Buffer
	cmd.Stderr = &complaints
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %s", cmd.Args[0], err, bytes.TrimSpace(complaints.Bytes()))
	}
	return out, nil
}
