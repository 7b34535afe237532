package e2e

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"porin.dev/porin/internal/testutil"
)

// wirings are the networks between nodes, with the flags for them.
var wirings = []struct {
	name  string
	make  func(testing.TB) *testutil.Fabric
	flags []string
}{
	{"native", testutil.NewLAN, nil},
	{"vxlan", testutil.NewFabric, []string{"--routing=vxlan"}},
}

// forEachWiring runs a test with that many nodes that know each other, on one of the networks, and with FULL=1 on each.
func forEachWiring(t *testing.T, nodes int, test func(t *testing.T, c *nodeGroup, fabric *testutil.Fabric), flags ...string) {
	t.Helper()
	for _, w := range testutil.Sample(wirings...) {
		t.Run(w.name, func(t *testing.T) {
			fabric := w.make(t)
			test(t, newNodes(t, fabric, nodes, slices.Concat(w.flags, []string{"--metrics-address=" + metricsAddress}, flags)...), fabric)
		})
	}
}

// TestServicesOfNodes has the nodes find each other: Services have backends on both, node ports of either lead to
// either. By tunnels, TestVXLANServices does so.
func TestServicesOfNodes(t *testing.T) {
	t.Parallel()
	forEachProxyMode(t, func(t *testing.T, mode proxyMode) {
		fabric := testutil.NewLAN(t)
		c := newNodes(t, fabric, 2, "--metrics-address="+metricsAddress)
		n := serviceNodesOn(t, mode, fabric, c.nodes[0], c.nodes[1])
		c.waitForPing(n.a.Namespace, n.d.ipv4)
		c.waitForPing(n.a.Namespace, n.d.ipv6)
		n.runAll()
	})
}

// TestLargePacketsBetweenNodes sends streams and datagrams in fragments, also where the link of a node takes less than
// pods believe.
func TestLargePacketsBetweenNodes(t *testing.T) {
	t.Parallel()
	forEachWiring(t, 2, func(t *testing.T, c *nodeGroup, fabric *testutil.Fabric) {
		one, two := c.nodes[0], c.nodes[1]
		a, b := one.pod(), two.pod()
		c.waitForMesh([]pod{a, b})
		all := func(t *testing.T) {
			node := nodeParty(two.node)
			for _, pair := range [][2]party{{a.party("a"), b.party("b")}, {b.party("b"), a.party("a")}, {a.party("a"), node}, {node, a.party("a")}} {
				for _, to := range []netip.Addr{pair[1].ipv4, pair[1].ipv6} {
					if sent, got, err := stream(t, pair[0].Namespace, pair[1].Namespace, to); err != nil || sent != got {
						t.Errorf("stream from %s to %s: sent %x, got %x, %v", pair[0].name, to, sent, got, err)
					}
					for _, size := range []int{1, 1400, 1472, 1473, 4000, 60_000} {
						testutil.Eventually(t, func() error { // the first datagram may be what finds the MTU of the path
							return datagramWithin(t, pair[0].Namespace, pair[1].Namespace, to, size, time.Second)
						})
					}
				}
			}
		}
		t.Run("MTU of the pods", all)
		for _, r := range c.nodes {
			fabric.SetMTU(t, r.node, 1400)
		}
		t.Run("smaller MTU of the nodes", all)
	})
}

// TestEightNodes is a mesh, in both modes of IPAM.
func TestEightNodes(t *testing.T) {
	t.Parallel()
	for _, mode := range testutil.Sample(ipamModes...) {
		for _, w := range testutil.Sample(wirings...) {
			t.Run(fmt.Sprint(mode.name, " ", w.name), func(t *testing.T) {
				c := newNodes(t, w.make(t), 8, slices.Concat(mode.flags, w.flags)...)
				var pods []pod
				for _, r := range c.nodes {
					pods = append(pods, r.pod())
				}
				c.waitForMesh(pods)
				for _, r := range c.nodes {
					r.agrees()
				}
			})
		}
	}
}
