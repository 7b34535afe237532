package e2e

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/cells/node"
	"porin.dev/porin/internal/testutil"
)

// nodeGroup is nodes of one Kubernetes API, with their agents.
type nodeGroup struct {
	testing.TB
	api   *apiServer
	nodes []*rig
}

// variant is a row of a test: flags of the agents, with a name.
type variant struct {
	name  string
	flags []string
}

// ipamModes are the two ways in which a node gets its prefixes.
var ipamModes = []variant{
	{"pod-cidr", nil},
	{"multi-pool", multiPool},
}

// newNodes starts that many nodes in the fabric.
func newNodes(t *testing.T, fabric *testutil.Fabric, nodes int, flags ...string) *nodeGroup {
	t.Helper()
	c := &nodeGroup{TB: t, api: newAPI(t)}
	for range nodes {
		c.join(t, fabric, flags...)
	}
	return c
}

// join adds a node.
func (c *nodeGroup) join(t *testing.T, fabric *testutil.Fabric, flags ...string) *rig {
	t.Helper()
	r := c.api.rigOn(fabric.NewNode(t), flags...)
	c.nodes = append(c.nodes, r)
	return r
}

// waitForPing waits until the pod reaches the address.
func (c *nodeGroup) waitForPing(from *testutil.Namespace, to netip.Addr) {
	c.Helper()
	testutil.Eventually(c, func() error { return testutil.Ping(from, to, 200*time.Millisecond) })
}

// waitForMesh waits until every pod reaches every other one, and every node, by both families.
func (c *nodeGroup) waitForMesh(pods []pod) {
	c.Helper()
	for i, from := range pods {
		for j, to := range pods {
			if i == j {
				continue
			}
			c.waitForPing(from.Namespace, to.ipv4)
			c.waitForPing(from.Namespace, to.ipv6)
		}
		for _, n := range c.nodes {
			c.waitForPing(from.Namespace, n.node.IPv4)
			c.waitForPing(from.Namespace, n.node.IPv6)
			c.waitForPing(n.node.Namespace, from.ipv4)
			c.waitForPing(n.node.Namespace, from.ipv6)
		}
	}
}

// peers are what the node's agent knows of the others.
func (r *rig) peers() (list []v1.Peer) {
	r.Helper()
	if err := r.agent.Get("/v1/peer", &list); err != nil {
		r.Fatal(err)
	}
	return list
}

// routesToPeers are the routes of the node to pods of others, as "10.100.2.0/24 via 192.0.2.2".
func (r *rig) routesToPeers() (routes []string) {
	r.Helper()
	all, err := r.node.Routes(0)
	if err != nil {
		r.Fatal(err)
	}
	for _, route := range all {
		if route.Protocol == node.RouteProtocol {
			routes = append(routes, fmt.Sprintf("%s via %s", route.Dst, route.Gw))
		}
	}
	slices.Sort(routes)
	return routes
}

// labelled is a pod of namespace shop with a label app.
func (r *rig) labelled(name, app string) pod {
	r.Helper()
	p := r.named("shop", name)
	r.setLabel("shop", name, app)
	return p
}

// setLabel returns when the agent knows the label.
func (r *rig) setLabel(namespace, name, app string) {
	r.Helper()
	selector := "pod-name:" + namespace + "/" + name
	if r.server == nil {
		if _, err := r.api.UpdateEndpoint(r.Context(), selector, v1.EndpointPatch{Labels: map[string]string{"app": app}}); err != nil {
			r.Fatal(err)
		}
		return
	}
	r.server.putPod(namespace, name, "u-"+name, map[string]string{"app": app})
	testutil.Eventually(r, func() error {
		ep, err := r.api.Endpoint(r.Context(), selector)
		if err == nil && ep.Labels["app"] != app {
			err = fmt.Errorf("the labels of %s are %v", name, ep.Labels)
		}
		return err
	})
}

func (r *rig) applyPolicy(manifest string) {
	r.Helper()
	file := filepath.Join(r.TempDir(), "policy.yaml")
	if err := os.WriteFile(file, []byte(manifest), 0o600); err != nil {
		r.Fatal(err)
	}
	if out, err := r.porin("policy", "apply", "-f", file); err != nil {
		r.Fatalf("policy apply: %v\n%s", err, out)
	}
}

// watchRoutes returns what returns the changes of the node's routes since, once.
func (r *rig) watchRoutes() func() []netlink.RouteUpdate {
	r.Helper()
	updates, done, collected := make(chan netlink.RouteUpdate), make(chan struct{}), make(chan []netlink.RouteUpdate, 1)
	namespace := netns.NsHandle(r.node.FD())
	if err := netlink.RouteSubscribeWithOptions(updates, done, netlink.RouteSubscribeOptions{Namespace: &namespace}); err != nil {
		r.Fatal(err)
	}
	go func() {
		var all []netlink.RouteUpdate
		for u := range updates {
			all = append(all, u)
		}
		collected <- all
	}()
	end := sync.OnceValue(func() []netlink.RouteUpdate {
		close(done)
		return <-collected
	})
	r.Cleanup(func() { end() })
	return end
}

// TestNodesOnALink has pods of all nodes reach each other without routes that anybody else has made, in both modes of
// IPAM.
func TestNodesOnALink(t *testing.T) {
	t.Parallel()
	for _, mode := range testutil.Sample(ipamModes...) {
		t.Run(mode.name, func(t *testing.T) {
			c := newNodes(t, testutil.NewLAN(t), 3, mode.flags...)
			var pods []pod
			for _, r := range c.nodes {
				pods = append(pods, r.pod())
			}
			c.waitForMesh(pods)
			for _, r := range c.nodes {
				r.agrees()
				if n := len(r.peers()); n != 2 {
					t.Errorf("%s knows %d nodes, want 2", r.node.Name, n)
				}
			}
		})
	}
}

// TestNodeRestarts restarts an agent while pods of two nodes talk: no packet is lost, and routes are not touched.
func TestNodeRestarts(t *testing.T) {
	t.Parallel()
	c := newNodes(t, testutil.NewLAN(t), 2)
	one, two := c.nodes[0], c.nodes[1]
	a, b := one.pod(), two.pod()
	c.waitForMesh([]pod{a, b})
	routes := one.routesToPeers()
	if len(routes) != 2 {
		t.Fatalf("routes %v, want one of each family", routes)
	}
	changes := one.watchRoutes()
	for _, r := range c.nodes {
		for _, end := range []func(){func() { r.agent.Kill(t) }, func() { r.agent.Stop(t) }} {
			end()
			if err := testutil.Ping(a.Namespace, b.ipv4, time.Second); err != nil {
				t.Errorf("without the agent of %s: %v", r.node.Name, err)
			}
			r.agent.Start(t)
			testutil.Eventually(t, func() error {
				if len(r.peers()) != 1 {
					return errors.New("it does not know the other node")
				}
				return nil
			})
			if err := testutil.Ping(a.Namespace, b.ipv6, time.Second); err != nil {
				t.Errorf("after a start of the agent of %s: %v", r.node.Name, err)
			}
		}
	}
	for _, change := range changes() {
		if change.Protocol == node.RouteProtocol {
			t.Errorf("a route was changed meanwhile: %v", change)
		}
	}
	if now := one.routesToPeers(); !slices.Equal(now, routes) {
		t.Errorf("routes %v, and before %v", now, routes)
	}
}
