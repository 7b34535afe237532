package e2e

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"porin.dev/porin/cells/node"
	"porin.dev/porin/internal/testutil"
)

// TestStartWithoutStore starts an agent while the store is away, also as after a boot: policies go on to select the
// pods of other nodes, and the routes to them are there.
func TestStartWithoutStore(t *testing.T) {
	t.Parallel()
	for _, mode := range testutil.Sample(append(ipamModes, variant{"vxlan", []string{"--routing=vxlan"}})...) {
		t.Run(mode.name, func(t *testing.T) {
			c := newNodes(t, testutil.NewLAN(t), 2, mode.flags...)
			one, two := c.nodes[0], c.nodes[1]
			db, web, other := two.labelled("db", "db"), one.labelled("web", "web"), one.labelled("other", "other")
			c.waitForMesh([]pod{db, web, other})
			two.applyPolicy(ingressOfDB("db", ""))
			c.waitForPing(web.Namespace, db.ipv4)
			testutil.Eventually(t, func() error {
				if testutil.Ping(other.Namespace, db.ipv4, unreachable) == nil {
					return errors.New("the policy is not in force")
				}
				return nil
			})
			two.agent.Stop(t)
			for _, r := range c.nodes {
				r.server.stop()
			}
			check := func(when string) {
				t.Helper()
				for _, addr := range []netip.Addr{db.ipv4, db.ipv6} {
					if err := testutil.Ping(web.Namespace, addr, time.Second); err != nil {
						t.Errorf("%s: %v", when, err)
					}
					if testutil.Ping(other.Namespace, addr, unreachable) == nil {
						t.Errorf("%s: a pod reaches %s that the policy does not select", when, addr)
					}
				}
			}
			check("without an agent")
			two.agent.Start(t)
			check("after a start without the store")
			if n := two.status().Network; !n.StoreAway || n.AsOf.IsZero() || n.Peers != 1 {
				t.Errorf("status %+v, want one node as known before", n)
			}
			if out, _ := two.porin("doctor"); !strings.Contains(out, "node-store-away") { // it fails, as the store cannot be reached
				t.Errorf("doctor:\n%s\nwant a note about what was known", out)
			}
			two.applyPolicy(ingressOfDB("more", ", ports: [{port: 1}]")) // the agent writes rows for the pods of the other node again
			check("after a change")

			two.agent.Kill(t)
			removed := two.removeRoutesToPeers()
			two.agent.Start(t)
			testutil.Eventually(t, func() error {
				if now := two.routesToPeers(); !slices.Equal(now, removed) {
					return fmt.Errorf("routes %v, want %v", now, removed)
				}
				return nil
			})
			check("after a second start, as after a boot")

			for _, r := range c.nodes {
				r.server.listen()
			}
			testutil.Eventually(t, func() error {
				if n := two.status().Network; n.StoreAway || !n.Published {
					return fmt.Errorf("status %+v, want that the store has answered", n)
				}
				return nil
			})
			check("with the store")
			one.setLabel("shop", "other", "web")
			c.waitForPing(other.Namespace, db.ipv4)
			for _, r := range c.nodes {
				r.agrees()
			}
		})
	}
}

// ingressOfDB is a policy that lets web reach db.
func ingressOfDB(name, ports string) string {
	return fmt.Sprintf(`
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: %s, namespace: shop}
spec:
  podSelector: {matchLabels: {app: db}}
  ingress: [{from: [{podSelector: {matchLabels: {app: web}}}]%s}]
`, name, ports)
}

// removeRoutesToPeers removes the node's routes to pods of others, and returns them.
func (r *rig) removeRoutesToPeers() []string {
	r.Helper()
	removed := r.routesToPeers()
	err := r.node.Do(func() error {
		all, err := netlink.RouteListFiltered(netlink.FAMILY_ALL, &netlink.Route{Protocol: node.RouteProtocol}, netlink.RT_FILTER_PROTOCOL)
		for _, route := range all {
			err = errors.Join(err, netlink.RouteDel(&route))
		}
		return err
	})
	if err != nil || len(r.routesToPeers()) > 0 {
		r.Fatalf("remove routes: %v", err)
	}
	return removed
}
