package e2e

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"porin.dev/porin/internal/testutil"
)

// TestVXLANServices: Services lead by tunnels, with kube-proxy's rules. A packet that is masqueraded on its way into a
// tunnel has the device's address, and replies come back by it.
func TestVXLANServices(t *testing.T) {
	t.Parallel()
	forEachProxyMode(t, func(t *testing.T, mode proxyMode) {
		c := newTunnels(t, 2)
		n := serviceNodesOn(t, mode, c.nodes[0].node.Fabric, c.nodes[0], c.nodes[1])
		for _, six := range []bool{false, true} {
			respond(t, n.outside.Namespace, "outside", n.outside.at(six, backendPort))
		}
		c.waitForPing(n.a.Namespace, n.d.ipv4)
		n.forEachFamily(func(t *testing.T, six bool) {
			var own netip.Addr
			cases := append(n.clusterIPCases(six), n.nodePortCases(six)...)
			for _, c := range cases {
				if c.name == "policy Local from a pod of another node" { // which comes from outside, as its node masquerades it
					clear(c.want)
					c.want["b"] = n.node2.addr(six)
				}
				for server, client := range c.want {
					switch { // by a tunnel, or to the address of another node
					case server == "d" && client == n.node1.addr(six):
						c.want[server] = n.one.tunnelAddress(six)
					case server != "d" && client == n.node2.addr(six) && !strings.HasPrefix(c.name, "policy"):
						c.want[server] = n.two.tunnelAddress(six)
					case c.from.name == "d" && server == "node1":
						c.want[server] = n.node2.addr(six)
					case six && server == "b" && client == n.node1.addr(six): // of the node's addresses, the nearest one to the pod's
						c.want[server] = n.one.tunnelAddress(six)
					}
				}
			}
			at := n.outside.at(six, backendPort)
			cases = append(cases,
				serviceCase{"pod to a pod of another node itself", n.a, n.d.at(six, backendPort), map[string]netip.Addr{"d": own}},
				serviceCase{"node to a pod of another node itself", n.node1, n.d.at(six, backendPort), map[string]netip.Addr{"d": n.one.tunnelAddress(six)}},
				serviceCase{"pod to another node itself", n.d, n.node1.at(six, backendPort), map[string]netip.Addr{"node1": n.node2.addr(six)}},
				serviceCase{"pod to the outside", n.a, at, map[string]netip.Addr{"outside": n.node1.addr(six)}},
			)
			for _, c := range cases {
				for _, protocol := range protocols {
					t.Run(strings.ReplaceAll(c.name+" "+protocol, " ", "_"), func(t *testing.T) { c.run(t, protocol) })
				}
			}
			// A node's process that is bound to the node's own address.
			err := n.node1.Do(func() error {
				dialer := net.Dialer{Timeout: answerTime, LocalAddr: &net.TCPAddr{IP: n.node1.addr(six).AsSlice()}}
				conn, err := dialer.Dial("tcp", n.d.at(six, backendPort).String())
				if err == nil {
					err = conn.Close()
				}
				return err
			})
			if err != nil {
				t.Errorf("from the node's own address: %v", err)
			}
		})
		n.nothingDropped()
	})
}

// TestVXLANPolicy: egress policies decide before a tunnel, ingress policies behind it, by the labels of pods of the
// other node; nodes are nodes by the addresses of their devices, too.
func TestVXLANPolicy(t *testing.T) {
	t.Parallel()
	c := newTunnels(t, 2)
	one, two := c.nodes[0], c.nodes[1]
	web, other := one.labelled("web", "web"), one.labelled("other", "other")
	db, cache := two.labelled("db", "db"), two.labelled("cache", "cache")
	c.waitForMesh([]pod{web, other, db, cache})
	two.applyPolicy(`
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: db, namespace: shop}
spec:
  podSelector: {matchLabels: {app: db}}
  ingress:
  - from: [{podSelector: {matchLabels: {app: web}}}]
`)
	one.applyPolicy(`
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: web, namespace: shop}
spec:
  podSelector: {matchLabels: {app: web}}
  policyTypes: [Egress]
  egress:
  - to: [{podSelector: {matchLabels: {app: db}}}]
`)
	reaches := func(from *testutil.Namespace, to pod, want bool) {
		t.Helper()
		for _, addr := range []netip.Addr{to.ipv4, to.ipv6} {
			testutil.Eventually(t, func() error {
				if err := testutil.Ping(from, addr, 200*time.Millisecond); (err == nil) != want {
					return fmt.Errorf("ping %s: %v, want success %t", addr, err, want)
				}
				return nil
			})
		}
	}
	for range 2 { // once more after a restart
		reaches(web.Namespace, db, true)
		reaches(web.Namespace, cache, false)
		reaches(other.Namespace, db, false)
		reaches(other.Namespace, cache, true)
		reaches(one.node.Namespace, db, false) // another node is none that the pod's own node is
		reaches(two.node.Namespace, db, true)
		for _, r := range c.nodes {
			r.agrees()
			r.agent.Kill(t)
			r.agent.Start(t)
		}
	}
}
