package metrics_test

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/fx"
	"go.uber.org/fx/fxtest"
	"go.uber.org/goleak"

	"porin.dev/porin/cells/metrics"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestExporter(t *testing.T) {
	var e *metrics.Exporter
	app := fxtest.New(t,
		fx.NopLogger,
		fx.Supply(slog.New(slog.DiscardHandler)),
		metrics.Module(metrics.DefaultConfig()),
		metrics.Collect(newCounter),
		fx.Populate(&e),
	)
	app.RequireStart()
	defer app.RequireStop()

	body := scrape(e.Handler())
	for _, want := range []string{"test_total 1", "go_goroutines", "process_resident_memory_bytes"} {
		if !strings.Contains(body, want) {
			t.Errorf("%s is not in /metrics", want)
		}
	}
}

func TestExporterDisabled(t *testing.T) {
	e := exporter(t, metrics.Config{})
	if err := e.Start(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if err := e.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestExporterAddressInUse(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()

	err = exporter(t, metrics.Config{Address: taken.Addr().String()}).Start(t.Context(), nil)
	if err == nil || !strings.Contains(err.Error(), taken.Addr().String()+": the address is in use; choose another --metrics-address") {
		t.Errorf("error %v", err)
	}
}

func TestExporterStop(t *testing.T) {
	address := freeAddress(t)
	e := exporter(t, metrics.Config{Address: address})
	if err := e.Start(t.Context(), func(err error) { t.Error(err) }); err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	answer, err := client.Get("http://" + address + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	_ = answer.Body.Close()
	if err := e.Stop(context.Background()); err != nil {
		t.Error(err)
	}
	if _, err := client.Get("http://" + address + "/metrics"); err == nil {
		t.Error("it answers after Stop")
	}
}

func TestNewAllFaults(t *testing.T) {
	_, err := metrics.New(metrics.Config{Address: "9090"}, slog.New(slog.DiscardHandler), newCounter(), newCounter())
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{`metrics-address "9090": want host:port`, "duplicate"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in: %v", want, err)
		}
	}
}

func exporter(t *testing.T, cfg metrics.Config) *metrics.Exporter {
	t.Helper()
	e, err := metrics.New(cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func newCounter() prometheus.Counter {
	c := prometheus.NewCounter(prometheus.CounterOpts{Name: "test_total", Help: "one"})
	c.Inc()
	return c
}

func scrape(h http.Handler) string {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	return w.Body.String()
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}
