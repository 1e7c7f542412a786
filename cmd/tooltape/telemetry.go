package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	otelprom "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/metric"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"

	"github.com/tooltape/tooltape/sinks/history"
	"github.com/tooltape/tooltape/sinks/postgres"
)

// telemetry is the OpenTelemetry SDK of one process: metrics for Prometheus always, and spans and metrics by OTLP where the standard
// variables (OTEL_EXPORTER_OTLP_ENDPOINT and its kin) name a collector. A collector that is away slows nothing: spans wait in a
// bounded queue and are dropped when it is full.
type telemetry struct {
	tracers  *sdktrace.TracerProvider
	meters   *sdkmetric.MeterProvider
	registry *prometheus.Registry
}

func newTelemetry(ctx context.Context) (*telemetry, error) {
	res, err := resource.Merge(resource.Default(), resource.NewSchemaless(semconv.ServiceName("tooltape"), semconv.ServiceVersion(version())))
	if err != nil {
		return nil, fmt.Errorf("describing this process to OpenTelemetry: %w", err)
	}
	t := &telemetry{registry: prometheus.NewRegistry()}
	t.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	exporter, err := otelprom.New(otelprom.WithRegisterer(t.registry), otelprom.WithoutScopeInfo())
	if err != nil {
		return nil, fmt.Errorf("making the Prometheus exporter: %w", err)
	}
	meterOpts := []sdkmetric.Option{sdkmetric.WithResource(res), sdkmetric.WithReader(exporter)}
	tracerOpts := []sdktrace.TracerProviderOption{sdktrace.WithResource(res), sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.TraceIDRatioBased(0.01)))}
	if os.Getenv("OTEL_TRACES_SAMPLER") != "" {
		tracerOpts = tracerOpts[:1] // the SDK reads it
	}
	if collectorNamed("METRICS") {
		otlp, err := otlpmetrichttp.New(ctx)
		if err != nil {
			return nil, fmt.Errorf("configuring OTLP metrics: %w", err)
		}
		meterOpts = append(meterOpts, sdkmetric.WithReader(sdkmetric.NewPeriodicReader(otlp)))
	}
	if collectorNamed("TRACES") {
		otlp, err := otlptracehttp.New(ctx)
		if err != nil {
			return nil, fmt.Errorf("configuring OTLP traces: %w", err)
		}
		tracerOpts = append(tracerOpts, sdktrace.WithBatcher(otlp))
	}
	t.meters = sdkmetric.NewMeterProvider(meterOpts...)
	t.tracers = sdktrace.NewTracerProvider(tracerOpts...)
	return t, nil
}

func collectorNamed(signal string) bool {
	return os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") != "" || os.Getenv("OTEL_EXPORTER_OTLP_"+signal+"_ENDPOINT") != ""
}

// close sends what is left, for a moment: a collector that is away must not hold up the end.
func (t *telemetry) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	return errors.Join(t.tracers.Shutdown(ctx), t.meters.Shutdown(ctx))
}

// watchParked tells how many sessions are parked, by code, and for how long the oldest has been. It asks the store when it is scraped.
func (t *telemetry) watchParked(pool *pgxpool.Pool) error {
	meter := t.meters.Meter("github.com/tooltape/tooltape/cmd/tooltape")
	sessions, err := meter.Int64ObservableGauge("tooltape.sessions.parked", metric.WithUnit("{session}"),
		metric.WithDescription("Sessions that wait because their next event could not be projected."))
	if err != nil {
		return err
	}
	oldest, err := meter.Float64ObservableGauge("tooltape.sessions.parked.oldest_age", metric.WithUnit("s"),
		metric.WithDescription("How long the oldest parked session has waited."))
	if err != nil {
		return err
	}
	_, err = meter.RegisterCallback(func(ctx context.Context, o metric.Observer) error {
		counts, err := postgres.CountParked(ctx, pool, history.Name)
		if err != nil {
			return err
		}
		projection := attribute.String("tooltape.projection", history.Name)
		age := 0.0
		for _, c := range counts {
			o.ObserveInt64(sessions, c.Sessions, metric.WithAttributes(projection, attribute.String("tooltape.code", string(c.Code))))
			age = max(age, time.Since(c.Oldest).Seconds())
		}
		o.ObserveFloat64(oldest, age, metric.WithAttributes(projection))
		return nil
	}, sessions, oldest)
	return err
}

// serve answers /livez, /readyz and /metrics until ctx ends. It returns once it listens, with the address.
func (t *telemetry) serve(ctx context.Context, listen string, ready func() error) (net.Addr, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", listen)
	if err != nil {
		return nil, fmt.Errorf("listening on %s (another --listen chooses another port): %w", listen, err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if err := ready(); err != nil {
			http.Error(w, printable(err.Error()), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	mux.Handle("GET /metrics", promhttp.HandlerFor(t.registry, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError}))
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	go func() {
		<-ctx.Done()
		_ = server.Close() // nobody waits for an answer of a process that ends
	}()
	go func() { _ = server.Serve(l) }() // ends with Close
	return l.Addr(), nil
}
