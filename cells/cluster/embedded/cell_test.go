package embedded_test

import (
	"log/slog"
	"path/filepath"
	"testing"

	"go.uber.org/fx"
	"go.uber.org/fx/fxtest"

	"porin.dev/porin/cells/cluster"
	"porin.dev/porin/cells/cluster/clustertest"
	"porin.dev/porin/cells/cluster/embedded"
)

func TestModule(t *testing.T) {
	var b cluster.Backend
	dir := filepath.Join(t.TempDir(), "state")
	app := fxtest.New(t, fx.NopLogger, fx.Supply(slog.New(slog.DiscardHandler)), embedded.Module(dir),
		fx.Populate(&b))
	app.RequireStart()
	if _, err := b.Nodes.Create(t.Context(), clustertest.NodeNamed("one")); err != nil {
		t.Error(err)
	}
	app.RequireStop()
}
