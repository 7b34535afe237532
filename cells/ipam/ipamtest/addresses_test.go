package ipamtest_test

import (
	"log/slog"
	"path/filepath"
	"testing"

	"go.uber.org/fx"
	"go.uber.org/fx/fxtest"

	"porin.dev/porin/cells/ipam"
	"porin.dev/porin/cells/ipam/allocator"
	"porin.dev/porin/cells/ipam/ipamtest"
	"porin.dev/porin/internal/testutil"
)

func TestMain(m *testing.M) { testutil.Main(m, testutil.NoLeaks()) }

func TestStep(t *testing.T) {
	t.Run("in memory", func(t *testing.T) { ipamtest.TestStep(t, ipamtest.New) })
	t.Run("module", func(t *testing.T) { ipamtest.TestStep(t, startModule) })
}

// startModule starts the cell as the agent does, with its file of reservations and the addresses of the node.
func startModule(t testing.TB, prefixes ...string) (a ipamtest.Addresses) {
	t.Helper()
	cfg := ipam.DefaultConfig()
	cfg.PodCIDRs, cfg.ReservationsPath = prefixes, filepath.Join(t.TempDir(), "reservations.db")
	app := fxtest.New(t, fx.NopLogger, fx.Supply(slog.New(slog.DiscardHandler)), ipam.Module(cfg),
		fx.Provide(func() allocator.Refiller { return nil }),
		fx.Populate(&a.Step), fx.Invoke(func(all *allocator.Allocator) { a.Allocator = all }))
	app.RequireStart()
	t.Cleanup(app.RequireStop)
	return a
}
