package e2e

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"porin.dev/porin/cells/kubernetes/kubernetestest"
	"porin.dev/porin/cells/node"
	"porin.dev/porin/internal/testutil"
)

// waysToPods are the node's routes to pods of others, by either routing.
func (r *rig) waysToPods() (ways []string) {
	r.Helper()
	all, err := r.node.Routes(0)
	if err != nil {
		r.Fatal(err)
	}
	for _, route := range all {
		if route.Protocol == node.RouteProtocol {
			ways = append(ways, route.Dst.String())
		}
	}
	slices.Sort(ways)
	return ways
}

// knows waits until the node knows that many others, and has a route to each of their blocks.
func (r *rig) knows(others int) {
	r.Helper()
	testutil.Eventually(r, func() error {
		if peers, ways := r.peers(), r.waysToPods(); len(peers) != others || len(ways) != 2*others {
			return fmt.Errorf("%s knows %+v, routes %v, want %d nodes", r.node.Name, peers, ways, others)
		}
		return nil
	})
}

// onePodEach attaches a pod to each node, and waits until all of them reach each other.
func (c *nodeGroup) onePodEach() (pods []pod) {
	c.Helper()
	for _, r := range c.nodes {
		pods = append(pods, r.pod())
	}
	c.waitForMesh(pods)
	return pods
}

// TestPartition: the network between nodes fails while their agents live. They forget nothing, local traffic continues,
// and all works when the partition ends.
func TestPartition(t *testing.T) {
	t.Parallel()
	forEachWiring(t, 3, func(t *testing.T, c *nodeGroup, fabric *testutil.Fabric) {
		pods := c.onePodEach()
		near := c.nodes[2].pod()
		if err := fabric.Disconnect(c.nodes[2].node); err != nil {
			t.Fatal(err)
		}
		if err := testutil.Ping(pods[0].Namespace, pods[2].ipv4, 300*time.Millisecond); err == nil {
			t.Error("the node is reached without its link")
		}
		for _, to := range []netip.Addr{pods[1].ipv4, pods[1].ipv6} {
			c.waitForPing(pods[0].Namespace, to)
		}
		c.waitForPing(near.Namespace, pods[2].ipv4)
		c.nodes[0].knows(2)
		c.nodes[1].agent.Kill(t)
		c.nodes[1].agent.Start(t)
		c.nodes[1].knows(2)
		if err := fabric.Connect(c.nodes[2].node); err != nil {
			t.Fatal(err)
		}
		c.waitForMesh(pods)
		for _, r := range c.nodes {
			r.agrees()
		}
	})
}

// TestNodeDies has a node without its agent and its link keep its place until an administrator deletes it, and then
// come back.
func TestNodeDies(t *testing.T) {
	t.Parallel()
	forEachWiring(t, 3, func(t *testing.T, c *nodeGroup, fabric *testutil.Fabric) {
		pods := c.onePodEach()
		dead := c.nodes[2]
		dead.agent.Kill(t)
		if err := fabric.Disconnect(dead.node); err != nil {
			t.Fatal(err)
		}
		for _, r := range c.nodes[:2] {
			r.agent.Restart(t)
			r.knows(2)
		}
		if done := c.api.asAdmin("node", "delete", dead.node.Name, "--machine-is-off"); done.code != 0 {
			t.Fatalf("porin node delete: %+v", done)
		}
		for _, r := range c.nodes[:2] {
			r.knows(1)
			r.agrees()
		}
		if err := fabric.Connect(dead.node); err != nil {
			t.Fatal(err)
		}
		dead.agent.Start(t)
		for _, r := range c.nodes {
			r.knows(2)
		}
		c.waitForMesh(pods)
		for _, r := range c.nodes {
			r.agrees()
		}
	})
}

// TestRoutesToNodesReturn removes a node's routes to pods of others.
func TestRoutesToNodesReturn(t *testing.T) {
	t.Parallel()
	forEachWiring(t, 2, func(t *testing.T, c *nodeGroup, _ *testutil.Fabric) {
		pods, one := c.onePodEach(), c.nodes[0]
		handle := one.node.Netlink(t)
		all, err := one.node.Routes(0)
		for _, route := range all {
			if route.Protocol == node.RouteProtocol {
				err = errors.Join(err, handle.RouteDel(&netlink.Route{Dst: route.Dst, LinkIndex: route.LinkIndex, Table: route.Table}))
			}
		}
		if err != nil {
			t.Fatal(err)
		}
		one.knows(1)
		c.waitForMesh(pods)
		one.agrees()
	})
}

// TestStoreOfNodesLost has the store of all nodes wiped, and set back, under their pods' traffic.
func TestStoreOfNodesLost(t *testing.T) {
	t.Parallel()
	forEachWiring(t, 2, func(t *testing.T, c *nodeGroup, fabric *testutil.Fabric) {
		pods := c.onePodEach()
		backup := c.api.Backup()
		third := c.join(t, fabric, "--routing="+c.nodes[0].status().Network.Routing)
		pods = append(pods, third.pod())
		c.waitForMesh(pods)
		lost := c.talk(pods[0], pods[2])
		// The restored one must be behind, which nodes notice (docs/limits.md): behind what they write until all have seen
		// it, and before the empty one.
		for n := range 300 {
			c.api.Put(&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "unrelated", Labels: map[string]string{"n": strconv.Itoa(n)}}})
		}
		for _, loss := range []struct {
			name string
			to   kubernetestest.Backup
		}{{"set back", backup}, {"wiped", c.api.empty}} {
			c.api.Restore(loss.to, 0)
			late := c.nodes[1].pod() // one after that must be known, too
			for _, r := range c.nodes {
				testutil.Eventually(t, func() error {
					if network := r.status().Network; !network.Published || network.MissingPeers > 0 || network.Peers != 2 {
						return fmt.Errorf("%s, after the store was %s: %+v", r.node.Name, loss.name, network)
					}
					return nil
				})
			}
			c.waitForMesh(append(slices.Clone(pods), late))
		}
		if asked, n := lost(); n > 0 {
			t.Errorf("%d of %d requests were not answered", n, asked)
		}
		for _, r := range c.nodes {
			r.knows(2)
			r.agrees()
		}
	})
}

// TestExternalRouting leaves the pods to a network that knows them: by the flag, or as the nodes are on no common link.
func TestExternalRouting(t *testing.T) {
	t.Parallel()
	for flag, reach := range map[string]string{"--routing=external": "external", "--routing=native": "off-link"} {
		t.Run(reach, func(t *testing.T) {
			fabric := testutil.NewFabric(t)
			c := newNodes(t, fabric, 2, flag)
			for _, r := range c.nodes {
				fabric.RoutePods(t, r.node)
			}
			c.onePodEach()
			for _, r := range c.nodes {
				testutil.Eventually(t, func() error {
					if ways := r.reach(); !slices.Equal(ways, []string{reach}) {
						return fmt.Errorf("%s reaches the other by %q, want %s", r.node.Name, ways, reach)
					}
					return nil
				})
				if ways := r.waysToPods(); len(ways) > 0 {
					t.Errorf("%s has routes %v", r.node.Name, ways)
				}
				r.agrees()
			}
		})
	}
}

// TestMachineReplaced starts a machine with the name and the prefixes of a node that is off, and another address.
func TestMachineReplaced(t *testing.T) {
	t.Parallel()
	forEachWiring(t, 2, func(t *testing.T, c *nodeGroup, fabric *testutil.Fabric) {
		c.onePodEach()
		one, off := c.nodes[0], c.nodes[1]
		off.agent.Kill(t)
		if err := fabric.Disconnect(off.node); err != nil {
			t.Fatal(err)
		}
		off.api.Close()
		n := fabric.NewNode(t)
		n.Name, n.PodIPv4, n.PodIPv6 = off.node.Name, off.node.PodIPv4, off.node.PodIPv6
		next := c.api.rigOn(n, "--routing="+one.status().Network.Routing)
		c.nodes[1] = next
		c.waitForMesh([]pod{one.pod(), next.pod()})
		for _, r := range c.nodes {
			r.knows(1)
			r.agrees()
		}
	})
}
