package store_test

import (
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/fx"
	"go.uber.org/fx/fxtest"

	"porin.dev/porin/cells/doctor"
	"porin.dev/porin/cells/metrics"
	"porin.dev/porin/cells/server"
	"porin.dev/porin/cells/store"
)

// module runs the cell with those that look after it.
func module(t *testing.T, cfg store.Config, more ...fx.Option) {
	app := fxtest.New(t, fx.NopLogger,
		fx.Supply(slog.New(slog.DiscardHandler)),
		store.Module(cfg), doctor.Module(doctor.DefaultConfig()), metrics.Module(metrics.DefaultConfig()),
		server.Module(server.Config{Socket: filepath.Join(t.TempDir(), "agent.sock")}, server.Info{}),
		fx.Options(more...),
	)
	app.RequireStart()
	t.Cleanup(app.RequireStop)
}

func TestMetrics(t *testing.T) {
	var (
		s        store.Store
		exporter *metrics.Exporter
	)
	cfg, _ := inFolder(t)
	module(t, cfg, fx.Populate(&s, &exporter))
	create(t, s, "a")
	_ = s.Create(t.Context(), "a", nil)
	_, _ = s.Get(t.Context(), "A")
	events, err := s.Watch(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	<-events
	want := `
# HELP porin_store_operations_total Operations on the cluster's store, by kind and result (ok, or the code of the error).
# TYPE porin_store_operations_total counter
porin_store_operations_total{operation="create",result="conflict"} 1
porin_store_operations_total{operation="create",result="ok"} 1
porin_store_operations_total{operation="get",result="invalid"} 1
porin_store_operations_total{operation="list",result="ok"} 1
# HELP porin_store_resyncs_total Times a watch began with the whole list.
# TYPE porin_store_resyncs_total counter
porin_store_resyncs_total 1
# HELP porin_store_watches Watches that are open.
# TYPE porin_store_watches gauge
porin_store_watches 1
`
	if err := testutil.GatherAndCompare(exporter.Gatherer(), strings.NewReader(want),
		"porin_store_operations_total", "porin_store_resyncs_total", "porin_store_watches"); err != nil {
		t.Error(err)
	}
}

func TestDoctorEtcdAway(t *testing.T) {
	t.Parallel()
	var d *doctor.Doctor
	cfg := store.DefaultConfig()
	cfg.Backend, cfg.Etcd.Endpoints = store.BackendEtcd, []string{"unix:///nowhere/etcd.sock"}
	module(t, cfg, fx.Populate(&d))
	answer, err := d.Examine(t.Context(), doctor.Scope{})
	if err != nil || len(answer.Findings) != 1 {
		t.Fatalf("%+v, %v", answer, err)
	}
	found := answer.Findings[0]
	if found.Kind != "store-unreachable" || found.Subject != "etcd at unix:///nowhere/etcd.sock" || found.Detail != "no answer in time" || !found.Manual {
		t.Errorf("%+v", found)
	}
}

func TestDoctorEmbedded(t *testing.T) {
	var d *doctor.Doctor
	cfg, _ := inFolder(t)
	module(t, cfg, fx.Populate(&d))
	if answer, err := d.Examine(t.Context(), doctor.Scope{}); err != nil || len(answer.Findings) != 0 {
		t.Errorf("%+v, %v", answer, err)
	}
}
