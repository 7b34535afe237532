package metrics

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"porin.dev/porin/internal/httpx"
)

// Exporter holds all collectors and serves what they collect.
type Exporter struct {
	cfg        Config
	log        *slog.Logger
	registry   *prometheus.Registry
	background *httpx.Background // nil until Start, and when nothing is served
}

// New registers the collectors, and collectors of the Go runtime and the process, in a registry of their own. It opens
// nothing.
func New(cfg Config, log *slog.Logger, all ...prometheus.Collector) (*Exporter, error) {
	e := &Exporter{cfg: cfg, log: log, registry: prometheus.NewRegistry()}
	faults := []error{cfg.Validate()}
	all = append(all, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	for _, c := range all {
		if err := e.registry.Register(c); err != nil {
			faults = append(faults, fmt.Errorf("register %T: %w", c, err))
		}
	}
	return e, errors.Join(faults...)
}

// Gatherer reads the metrics without HTTP.
func (e *Exporter) Gatherer() prometheus.Gatherer { return e.registry }

// Handler answers GET /metrics. It does not compress, which would keep a buffer of a megabyte, and answers two at
// once, for each answer is in memory as a whole.
func (e *Exporter) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(e.registry, promhttp.HandlerOpts{
		ErrorLog:            slog.NewLogLogger(e.log.Handler(), slog.LevelWarn),
		ErrorHandling:       promhttp.ContinueOnError,
		DisableCompression:  true,
		MaxRequestsInFlight: 2,
	}))
	return mux
}

// Start serves in the background, when there is an address. When serving ends for another reason than Stop, failed
// is called once, from another goroutine.
func (e *Exporter) Start(ctx context.Context, failed func(error)) error {
	if e.cfg.Address == "" {
		return nil
	}
	listener, err := httpx.Listen(ctx, "metrics", "metrics-address", e.cfg.Address)
	if err != nil {
		return err
	}
	e.background = httpx.Serve(e.newHTTP(), listener, failed)
	e.log.Info("metrics served", "address", listener.Addr().String())
	return nil
}

// Stop ends the serving. Without a Start it does nothing.
func (e *Exporter) Stop(ctx context.Context) error {
	if e.background == nil {
		return nil
	}
	return e.background.Stop(ctx)
}

func (e *Exporter) newHTTP() *http.Server {
	return &http.Server{
		Handler:           e.Handler(),
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       5 * time.Second,
		WriteTimeout:      30 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          slog.NewLogLogger(e.log.Handler(), slog.LevelDebug),
	}
}
