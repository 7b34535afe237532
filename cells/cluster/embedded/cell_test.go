package embedded_test

import (
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/fx"
	"go.uber.org/fx/fxtest"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/cells/cluster"
	"porin.dev/porin/cells/cluster/clustertest"
	"porin.dev/porin/cells/cluster/embedded"
	"porin.dev/porin/cells/cluster/embedded/embeddedtest"
	"porin.dev/porin/cells/server"
	"porin.dev/porin/cells/supervisor"
)

type reporters struct {
	fx.In

	Status []server.StatusReporter     `group:"server.reporters"`
	Health []supervisor.HealthReporter `group:"supervisor.reporters"`
}

func TestModule(t *testing.T) {
	var b cluster.Backend
	dir := filepath.Join(t.TempDir(), "state")
	app := fxtest.New(t, fx.NopLogger, fx.Supply(slog.New(slog.DiscardHandler)), embedded.Module(dir),
		fx.Populate(&b), fx.Invoke(func(r reporters) {
			if len(r.Status) != 1 || len(r.Health) != 1 {
				t.Errorf("%d and %d reporters", len(r.Status), len(r.Health))
			}
		}))
	app.RequireStart()
	if _, err := b.Nodes.Create(t.Context(), clustertest.NodeNamed("one")); err != nil {
		t.Error(err)
	}
	app.RequireStop()
}

// TestStatus has writes fail and succeed again.
func TestStatus(t *testing.T) {
	dir := t.TempDir()
	s := embeddedtest.Open(t, dir)
	report := func() v1.StoreStatus {
		var status v1.Status
		s.Report(&status)
		return *status.Store
	}
	before := report()
	if !before.Reachable || before.Location != filepath.Join(dir, "store.db") || before.LastAnswer.IsZero() || before.LastError != "" {
		t.Errorf("at the start: %+v", before)
	}
	if err := s.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Backend().Nodes.Create(t.Context(), clustertest.NodeNamed("one")); err == nil {
		t.Fatal("it is written")
	}
	away, condition := report(), s.Condition()
	if away.Reachable || !away.Since.After(before.Since) || away.LastError == "" || condition.State != supervisor.Degraded || !strings.Contains(condition.Reason, dir) {
		t.Errorf("after an error: %+v, condition %+v", away, condition)
	}
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if back := report(); !back.Reachable || !back.Since.After(away.Since) || back.LastError == "" || s.Condition().State != supervisor.OK {
		t.Errorf("after another start: %+v", back)
	}
}
