package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sr"

	"github.com/tooltape/tooltape/processors/eventlog"
	"github.com/tooltape/tooltape/producer"
	"github.com/tooltape/tooltape/schemas"
	"github.com/tooltape/tooltape/schemas/event"
	"github.com/tooltape/tooltape/schemas/registry"
	"github.com/tooltape/tooltape/sinks/history"
	"github.com/tooltape/tooltape/sinks/postgres"
)

// reachWithin bounds how long a command waits for a service that it needs before it says that it is not there.
const reachWithin = 10 * time.Second

// database connects to PostgreSQL and demands that it answers and has the tables.
func (a *app) database(ctx context.Context) (*pgxpool.Pool, error) {
	if a.settings.databaseURL == "" {
		return nil, usagef("no database was named: set --database-url or TOOLTAPE_DATABASE_URL (tooltape dev writes it into .tooltape/env)")
	}
	pool, err := postgres.Connect(ctx, a.settings.databaseURL)
	if err != nil {
		return nil, err
	}
	reach, cancel := context.WithTimeout(ctx, reachWithin)
	defer cancel()
	if err := pool.Ping(reach); err != nil {
		pool.Close()
		return nil, fmt.Errorf("the database does not answer; is it running, and is --database-url right? %w", err)
	}
	return pool, nil
}

// startTries is how often a start is tried in which the database ended the connection: it may be restarting, or failing over.
const startTries = 4

// migrated is database with the demand that the tables are there.
func (a *app) migrated(ctx context.Context) (*pgxpool.Pool, error) {
	for try := 1; ; try++ {
		pool, err := a.migratedNow(ctx)
		if err == nil || try == startTries || !postgres.IsShutdown(err) {
			return pool, err
		}
		select {
		case <-time.After(250 * time.Millisecond):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

func (a *app) migratedNow(ctx context.Context) (*pgxpool.Pool, error) {
	pool, err := a.database(ctx)
	if err != nil {
		return nil, err
	}
	if err := postgres.Check(ctx, pool, history.View()); err != nil {
		pool.Close()
		return nil, err
	}
	return pool, nil
}

// brokers is how to reach Kafka, once it has answered.
func (a *app) brokers(ctx context.Context) ([]kgo.Opt, error) {
	opts, err := a.settings.kafka()
	if err != nil {
		return nil, err
	}
	client, err := kgo.NewClient(opts...)
	if err != nil {
		return nil, fmt.Errorf("configuring the Kafka client: %w", err)
	}
	defer client.Close()
	reach, cancel := context.WithTimeout(ctx, reachWithin)
	defer cancel()
	if err := client.Ping(reach); err != nil {
		return nil, fmt.Errorf("no broker of %v answers; is Kafka running, and is --brokers right? %w", a.settings.brokers, err)
	}
	return opts, nil
}

// maxAnswer bounds what is read of a registry's answer; a schema has kilobytes.
const maxAnswer = 16 << 20

// registry is the schema registry, or nil where none is configured. Its client shows the address that it is given in its errors: user and
// password go beside it.
func (a *app) registry() (*registry.Registry, error) {
	address, err := a.settings.registryAddress()
	if err != nil || address == nil {
		return nil, err
	}
	transport := &http.Transport{Proxy: http.ProxyFromEnvironment, IdleConnTimeout: time.Minute, ForceAttemptHTTP2: true}
	opts := []sr.ClientOpt{sr.HTTPClient(&http.Client{Timeout: reachWithin, Transport: boundedAnswers{transport}})}
	if user := address.User; user != nil {
		password, _ := user.Password()
		opts = append(opts, sr.BasicAuth(user.Username(), password))
		address.User = nil
	}
	client, err := sr.NewClient(append(opts, sr.URLs(address.String()))...)
	if err != nil {
		return nil, usagef("--registry-url: %s", err)
	}
	return registry.New(client, a.settings.topics().Events()), nil
}

// boundedAnswers ends the reading of an answer that is larger than any registry's.
type boundedAnswers struct{ http.RoundTripper }

func (b boundedAnswers) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := b.RoundTripper.RoundTrip(r)
	if err == nil {
		answer.Body = &boundedBody{answer.Body, maxAnswer}
	}
	return answer, err
}

// boundedBody is an error where more than left bytes come.
type boundedBody struct {
	io.ReadCloser
	left int
}

func (b *boundedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.left -= n; b.left < 0 {
		return 0, fmt.Errorf("the answer has more than %d bytes", maxAnswer)
	}
	return n, err
}

// decoder reads both framings; without a registry, the id of one is unknown.
func (a *app) decoder() (*schemas.Decoder, error) {
	r, err := a.registry()
	if err != nil {
		return nil, err
	}
	if r == nil {
		return schemas.NewDecoder(nil), nil
	}
	return schemas.NewDecoder(r.Lookup), nil
}

// encoder writes the Confluent wire format where there is a registry, else single-object encoding.
func (a *app) encoder(ctx context.Context) (*schemas.Encoder, error) {
	r, err := a.registry()
	if err != nil {
		return nil, err
	}
	if r == nil {
		return schemas.NewEncoder(), nil
	}
	ids, err := r.Register(ctx)
	if err != nil {
		return nil, err
	}
	return schemas.NewRegistryEncoder(ids)
}

// eventLog reads the events topic.
func (a *app) eventLog(ctx context.Context) (*eventlog.Log, error) {
	opts, err := a.brokers(ctx)
	if err != nil {
		return nil, err
	}
	return eventlog.Open(opts, a.settings.topics().Events())
}

// writer appends events; find, if there is one, looks up where sessions end.
func (a *app) writer(ctx context.Context, find func(context.Context, []string) (map[string]producer.Tail, error)) (*producer.Writer, error) {
	opts, err := a.brokers(ctx)
	if err != nil {
		return nil, err
	}
	encoder, err := a.encoder(ctx)
	if err != nil {
		return nil, err
	}
	return producer.New(ctx, producer.Config{Kafka: opts, Topics: a.settings.topics(), Encoder: encoder, Find: find})
}

// admin asks the brokers about topics.
func (a *app) admin(ctx context.Context) (*kadm.Client, error) {
	opts, err := a.brokers(ctx)
	if err != nil {
		return nil, err
	}
	client, err := kgo.NewClient(opts...)
	if err != nil {
		return nil, fmt.Errorf("configuring the Kafka client: %w", err)
	}
	return kadm.NewClient(client), nil
}

// eventCode names an error by its event code where it has one.
func eventCode(err error) error {
	if fault := (*event.Error)(nil); errors.As(err, &fault) {
		return withCode(string(fault.Code), err)
	}
	if errors.As(err, new(*producer.TooLargeError)) {
		return withCode("too_large", err)
	}
	return err
}
