package health_test

import (
	"context"
	"log/slog"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"go.uber.org/fx"
	"golang.org/x/sys/unix"

	"porin.dev/porin/cells/datapath"
	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/endpointmanager"
	"porin.dev/porin/cells/health"
	"porin.dev/porin/cells/health/probe"
	"porin.dev/porin/cells/health/probe/network"
	"porin.dev/porin/cells/ipam"
	"porin.dev/porin/cells/ipam/allocator"
	"porin.dev/porin/cells/link"
	"porin.dev/porin/cells/supervisor"
	"porin.dev/porin/internal/testutil"
)

// embed is the example of docs/health.md.
func embed(stateDir, bpfRoot string) (app *fx.App, local *health.LocalEndpoint, prober *probe.Prober) {
	addresses, endpoints, kernel, cfg := ipam.DefaultConfig(), endpointmanager.DefaultConfig(), datapath.DefaultConfig(), health.DefaultConfig()
	addresses.PodCIDRs = []string{"10.244.1.0/24", "fd00:10:244:1::/64"}
	endpoints.StateDir, kernel.BPFRoot, cfg.StateDir, cfg.Node = stateDir, bpfRoot, stateDir, "node1"

	app = fx.New(fx.NopLogger, fx.Supply(slog.Default()), fx.Populate(&local, &prober),
		ipam.Module(addresses), link.Module(), datapath.Module(kernel), endpointmanager.Module(endpoints),
		health.Module(cfg), supervisor.Module(supervisor.DefaultConfig()),
		fx.Provide(func(i *ipam.Step, l *link.Step, d *datapath.Step) endpoint.Steps { return endpoint.Steps{i, l, d} }),
		fx.Provide(func() probe.Peers { return staticPeers{} }), // the other nodes; nil for none
		// The program has none of these:
		fx.Provide(func() (allocator.Refiller, link.MTU) { return nil, nil }))
	return app, local, prober
}

func TestEmbed(t *testing.T) {
	testutil.Root(t)
	for _, addr := range []string{"192.0.2.1/32", "2001:db8::1/128"} { // a node has some
		if err := netlink.AddrReplace(testutil.LinkAt(1), testutil.Address(netip.MustParsePrefix(addr))); err != nil {
			t.Fatal(err)
		}
	}
	dir := t.TempDir()
	app, local, prober := embed(dir, testutil.BPFFS(t)+"/porin")
	changed := local.Changed
	if err := app.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := app.Stop(context.Background()); err != nil {
			t.Error(err)
		}
		_ = unix.Unmount(dir+"/health.netns", unix.MNT_DETACH)
	})
	for len(local.Addresses()) == 0 {
		select {
		case <-changed():
		case <-time.After(testutil.Patience):
			t.Fatal("no health endpoint")
		}
	}
	network := network.New()
	for _, addr := range local.Addresses() {
		testutil.Eventually(t, func() error {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if _, err := network.Ping(ctx, addr); err != nil {
				return err
			}
			_, _, err := network.Hello(ctx, addr)
			return err
		})
	}
	if nodes := prober.Nodes(); len(nodes) != 1 || nodes[0].Node.Name != "node2" {
		t.Errorf("other nodes: %+v", nodes)
	}
}

// TestEmbedInDocs has the page show the example as it is.
func TestEmbedInDocs(t *testing.T) {
	source, err := os.ReadFile("embed_test.go")
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../../docs/health.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(source), "func embed(")
	body, _, ok := strings.Cut(rest, "\n}\n")
	if !ok || !strings.Contains(string(page), "```go\nfunc embed("+body+"\n}\n```\n") {
		t.Error("docs/health.md does not show the function embed as it is")
	}
}
