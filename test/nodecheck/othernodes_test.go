package nodecheck_test

import (
	"errors"
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"porin.dev/porin/cells/cluster"
	"porin.dev/porin/cells/kubernetes/records/recordstest"
	"porin.dev/porin/internal/testutil"
	"porin.dev/porin/test/nodecheck"
)

// otherNode is a node on the rig's link.
func otherNode(routing cluster.RoutingMode) nodecheck.OtherNode {
	one := func(addr string) []netip.Addr { return []netip.Addr{netip.MustParseAddr(addr)} }
	id := cluster.NodeID{Name: "other", Key: cluster.NewKey()}
	o := nodecheck.OtherNode{
		NodeNetwork: cluster.NodeNetwork{
			Node: id, Agent: "x", Routing: routing, Addresses: one("192.0.2.77"), Health: one("10.77.0.2"),
			Blocks: []netip.Prefix{netip.MustParsePrefix("10.77.0.0/24"), netip.MustParsePrefix("10.78.0.0/24")},
		},
		Groups: []cluster.EndpointGroup{{
			Node: id, LabelSets: []cluster.LabelSet{{Namespace: "shop"}}, Endpoints: []cluster.PublishedEndpoint{{Addresses: one("10.77.0.10"), Pod: "web"}},
		}},
	}
	if routing == cluster.RoutingVXLAN {
		o.TunnelPort, o.Tunnel = 8472, one("10.77.0.3")
	}
	return o
}

// TestNodeCheckOtherNodes: it finds missing parts of another node, leftovers of one, and parts that belong to another
// one.
func TestNodeCheckOtherNodes(t *testing.T) {
	const addresses, owners, prefixes, blocks, route = "entry of map addresses", "entry of map owners", "entry of map prefixes", "entry of map remote_blocks", "route to another node"
	for routing, kinds := range map[cluster.RoutingMode]struct{ all, ofBlocks, ofAddresses []string }{
		cluster.RoutingNative: {
			all:         []string{addresses, prefixes, blocks, route},
			ofBlocks:    []string{prefixes, blocks, route},
			ofAddresses: []string{addresses, route},
		},
		cluster.RoutingVXLAN: {
			all:         []string{addresses, owners, prefixes, blocks, route},
			ofBlocks:    []string{owners, prefixes, blocks, route},
			ofAddresses: []string{addresses, owners},
		},
	} {
		t.Run(string(routing), func(t *testing.T) {
			testutil.Root(t)
			server, kubeconfig := recordstest.StartServer(t)
			backend := recordstest.Backend(t, kubeconfig)
			server.Put(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}})
			node := testutil.NewLAN(t).NewNode(t)
			r := rigOn(t, node, "--store=kubernetes", "--kubeconfig="+server.ServeIn(t, node.Do, "127.0.0.1:0").Kubeconfig, "--routing="+string(routing))
			alone := nodecheck.Want{Live: []nodecheck.Pod{r.pod}}
			with := func(o nodecheck.OtherNode) nodecheck.Want {
				return nodecheck.Want{Live: alone.Live, Others: []nodecheck.OtherNode{o}}
			}
			r.settles(alone)
			other := otherNode(routing)
			r.finds(with(other), each(kinds.all, "missing")...)

			_, networkErr := backend.Networks.Put(t.Context(), other.NodeNetwork)
			_, groupErr := backend.Endpoints.Put(t.Context(), other.Groups[0])
			r.must(errors.Join(networkErr, groupErr))
			r.settles(with(other))
			r.finds(alone, each(kinds.all, "left")...)
			r.must(r.putUnmanaged(netip.MustParsePrefix("10.77.0.0/25"))) // as a policy about a part of a block does
			r.finds(with(other))

			moved := other
			moved.Blocks = []netip.Prefix{other.Blocks[0], netip.MustParsePrefix("10.79.0.0/24")}
			r.finds(with(moved), each(kinds.ofBlocks, "left", "missing")...)
			moved = other
			moved.Addresses = []netip.Addr{netip.MustParseAddr("192.0.2.78")}
			r.finds(with(moved), each(kinds.ofAddresses, "left", "missing")...)
		})
	}
}

// each are the kinds with each problem.
func each(kinds []string, problems ...string) (all []string) {
	for _, kind := range kinds {
		for _, problem := range problems {
			all = append(all, kind+" "+problem)
		}
	}
	return all
}

// settles waits until nothing is found.
func (r *rig) settles(want nodecheck.Want) {
	r.Helper()
	if findings, err := r.check.Within(testutil.Patience, want); err != nil || len(findings) > 0 {
		r.Fatalf("%v, found %v", err, findings)
	}
}
