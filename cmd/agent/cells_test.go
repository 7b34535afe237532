package main

import (
	"bytes"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/fx"

	"porin.dev/porin/cells/endpointmanager"
	"porin.dev/porin/cells/ipam"
	"porin.dev/porin/cells/ipam/allocator"
	"porin.dev/porin/cells/monitor"
	"porin.dev/porin/cells/server"
)

func testConfig(t *testing.T) Config {
	cfg := DefaultConfig()
	cfg.IPAM.Mode = ipam.ModeMultiPool // which has all cells
	cfg.MultiPool.DefaultPool = []string{"10.0.0.0/16", "fd00::/64"}
	cfg.Server.Socket = filepath.Join(t.TempDir(), "agent.sock")
	cfg.CNIConfPath = filepath.Join(t.TempDir(), "05-porin.conflist")
	return cfg
}

// TestGraph builds the whole agent, every constructor of it, and checks that nothing is missing.
func TestGraph(t *testing.T) {
	app := fx.New(Cells(testConfig(t)), fx.Supply(slog.New(slog.DiscardHandler)), quiet, fx.Invoke(
		func(endpointmanager.Manager, endpointmanager.Lookup, endpointmanager.Service, *allocator.Allocator, monitor.Publisher, *server.Server) {
		}))
	if err := app.Err(); err != nil {
		t.Fatal(err)
	}
}

func TestGraphDrawing(t *testing.T) {
	var out bytes.Buffer
	if err := run(t.Context(), []string{"graph"}, &out); err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"digraph", "endpointmanager", "ipam", "datapath"} {
		if !strings.Contains(out.String(), part) {
			t.Errorf("the graph has no %q", part)
		}
	}
}
