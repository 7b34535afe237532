package node_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"

	"go.uber.org/fx"

	"porin.dev/porin/cells/cluster"
	"porin.dev/porin/cells/cluster/clustertest"
	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/endpointmanager"
	"porin.dev/porin/cells/ipam"
	"porin.dev/porin/cells/ipam/allocator"
	"porin.dev/porin/cells/node"
	"porin.dev/porin/cells/node/cache"
	"porin.dev/porin/cells/node/endpoints"
	"porin.dev/porin/cells/policy"
	"porin.dev/porin/cells/supervisor"
	"porin.dev/porin/internal/testutil"
)

// embedded are the parts of the example that a program calls.
type embedded struct {
	fx.In

	Node      *node.Node
	Endpoints endpointmanager.Manager
	Remote    policy.RemoteSource // tells of the endpoints of other nodes who calls Begin before the start
}

// embed is the example of docs/nodes.md.
func embed(name, podCIDR, stateDir string, records cluster.Backend) (app *fx.App, parts embedded) {
	addresses, manager, own := ipam.DefaultConfig(), endpointmanager.DefaultConfig(), node.DefaultConfig()
	addresses.PodCIDRs, manager.StateDir, own.Name = []string{podCIDR}, stateDir, name
	blocks := node.Static{Node: node.IDOfName(name), Prefixes: addresses.Prefixes()}

	app = fx.New(fx.NopLogger, fx.Supply(slog.Default()), fx.Populate(&parts),
		fx.Supply(records), ipam.Module(addresses), endpointmanager.Module(manager),
		node.Module(own), endpoints.Module(), supervisor.Module(supervisor.DefaultConfig()),
		fx.Provide(func() node.Blocks { return blocks }, func(s *ipam.Step) endpoint.Steps { return endpoint.Steps{s} }),
		// The program has none of these:
		fx.Provide(func() (node.Health, node.AddressSource, node.DirectPath, endpoints.Namespaces, node.Kubernetes, *cache.Cache, allocator.Refiller) {
			return nil, nil, nil, nil, nil, nil, nil
		}))
	return app, parts
}

// told is a policy.Remote that passes on the addresses of endpoints of other nodes.
type told chan string

func (to told) SetRemote(change policy.RemoteChange) {
	for _, ep := range change.Set {
		if ep.Labels != nil {
			to <- fmt.Sprint(ep.Addresses, ep.Labels)
		}
	}
}

// TestEmbed has two programs with the cells know each other's node and endpoints.
func TestEmbed(t *testing.T) {
	testutil.Root(t)
	records, lan := clustertest.NewStrict(1), testutil.NewLAN(t)
	t.Cleanup(records.Close)
	heard := map[string]told{"node1": make(told, 16), "node2": make(told, 16)}
	var nodes []embedded
	for _, n := range []*testutil.Node{lan.NewNode(t), lan.NewNode(t)} {
		var app *fx.App
		var parts embedded
		err := n.Do(func() error {
			app, parts = embed(n.Name, n.PodIPv4.String(), t.TempDir(), records.Backend())
			parts.Remote.Begin(heard[n.Name]) // before the start
			return app.Start(t.Context())
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := app.Stop(context.Background()); err != nil {
				t.Error(err)
			}
		})
		nodes = append(nodes, parts)
	}
	one, two := nodes[0], nodes[1]
	testutil.Eventually(t, func() error {
		view, _ := one.Node.Peers().View()
		if len(view.Peers) != 1 || view.Peers[0].Node.Name != "node2" || len(view.Peers[0].Blocks) != 1 {
			return fmt.Errorf("the peers are %+v", view.Peers)
		}
		return nil
	})
	metadata, err := endpoint.Metadata{Labels: map[string]string{"app": "web"}}.Encode()
	if err != nil {
		t.Fatal(err)
	}
	ep, err := two.Endpoints.Create(t.Context(), endpoint.Spec{
		Attachment: endpoint.Attachment{ContainerID: "c1", IfName: "eth0"}, Pod: endpoint.Pod{Namespace: "shop", Name: "web"}, Metadata: metadata,
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := <-heard["node1"], fmt.Sprint(ep.Addresses.List(), map[string]string{"app": "web"}); got != want {
		t.Errorf("heard of %s, want %s", got, want)
	}
}

// TestEmbedInDocs has the page show the example as it is.
func TestEmbedInDocs(t *testing.T) {
	source, err := os.ReadFile("embed_test.go")
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../../docs/nodes.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(source), "func embed(")
	body, _, ok := strings.Cut(rest, "\n}\n")
	if !ok || !strings.Contains(string(page), "```go\nfunc embed("+body+"\n}\n```\n") {
		t.Error("docs/nodes.md does not show the function embed as it is")
	}
}
