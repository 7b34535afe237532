package main

import (
	"bytes"
	"log/slog"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"go.uber.org/fx"

	"porin.dev/porin/cells/cluster"
	"porin.dev/porin/cells/endpointmanager"
	"porin.dev/porin/cells/health/probe"
	"porin.dev/porin/cells/ipam"
	"porin.dev/porin/cells/ipam/allocator"
	"porin.dev/porin/cells/kubernetes/kubernetestest"
	"porin.dev/porin/cells/link"
	"porin.dev/porin/cells/monitor"
	"porin.dev/porin/cells/node"
	"porin.dev/porin/cells/node/cache"
	"porin.dev/porin/cells/policy"
	"porin.dev/porin/cells/proxy/control"
	"porin.dev/porin/cells/server"
	"porin.dev/porin/internal/cell"
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
	app := fx.New(Cells(testConfig(t)), fx.Supply(slog.New(slog.DiscardHandler)), cell.Quiet, fx.Invoke(
		func(endpointmanager.Manager, endpointmanager.Lookup, endpointmanager.Service, *allocator.Allocator, monitor.Publisher, *server.Server) {
		}))
	if err := app.Err(); err != nil {
		t.Fatal(err)
	}
}

// taken are inputs of cells that a composition may leave out.
type taken struct {
	fx.In

	Backend    cluster.Backend
	Cache      *cache.Cache
	Refiller   allocator.Refiller
	Health     node.Health
	Addresses  node.AddressSource
	DirectPath node.DirectPath
	MTU        link.MTU
	Peers      probe.Peers
	Enforcer   policy.Enforcer
	Proxy      policy.Proxy
	Remote     policy.RemoteSource
	Flows      policy.Flows
}

// TestLeftOut has a table of inputs that each form of the agent leaves out.
func TestLeftOut(t *testing.T) {
	for name, row := range map[string]struct {
		change func(*Config)
		want   []string
	}{
		"multi-pool with Kubernetes": {func(cfg *Config) {
			cfg.Store.Backend, cfg.Kubernetes.Kubeconfig, cfg.MultiPool.DefaultPool = storeKubernetes, kubernetestest.Kubeconfig(t, "http://127.0.0.1:1"), nil
		}, nil},
		"multi-pool": {func(*Config) {}, []string{"Cache"}},
		"pod-cidr": {func(cfg *Config) {
			cfg.IPAM.Mode, cfg.IPAM.PodCIDRs, cfg.MultiPool.DefaultPool = ipam.ModePodCIDR, []string{"10.0.0.0/24"}, nil
		}, []string{"Backend", "Cache", "Refiller", "Remote"}},
		"no health endpoint": {func(cfg *Config) { cfg.Health.Endpoint = false }, []string{"Cache", "Health"}},
		"external proxy":     {func(cfg *Config) { cfg.Proxy.Mode = control.ModeExternal }, []string{"Cache"}},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := testConfig(t)
			row.change(&cfg)
			var left []string
			app := fx.New(Cells(cfg), fx.Supply(slog.New(slog.DiscardHandler)), cell.Quiet, fx.Invoke(func(all taken) {
				v := reflect.ValueOf(all)
				for i := 1; i < v.NumField(); i++ {
					if v.Field(i).IsZero() {
						left = append(left, v.Type().Field(i).Name)
					}
				}
			}))
			if err := app.Err(); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(left, row.want) {
				t.Errorf("left out: %q, want %q", left, row.want)
			}
		})
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
