package e2e

import (
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/bpf"
	"porin.dev/porin/bpf/abi"
	"porin.dev/porin/internal/testutil"
)

// pathsOf are the paths of the entries that a pod of the node has, by its own port and the other one.
func (r *rig) pathsOf(p pod) map[[2]uint16]uint8 {
	r.Helper()
	m, err := ebpf.LoadPinnedMap(filepath.Join(r.node.BPFRoot, "maps", bpf.Connections), nil)
	if err != nil {
		r.Fatal(err)
	}
	defer m.Close()
	var (
		key   abi.ConnectionKey
		value abi.Connection
	)
	paths, link := map[[2]uint16]uint8{}, r.hostEnd(p)
	all := m.Iterate()
	for all.Next(&key, &value) {
		if key.Ifindex == link {
			paths[[2]uint16{htons(key.LocalPort), htons(key.RemotePort)}] = value.Path
		}
	}
	if err := all.Err(); err != nil && !errors.Is(err, ebpf.ErrIterationAborted) {
		r.Fatal(err)
	}
	return paths
}

// twoPods are pods of two nodes. The second one answers.
type twoPods struct {
	*nodeGroup
	one, two   *rig
	a, b       pod
	responders map[netip.Addr]*responder
}

func newTwoPods(t *testing.T, c *nodeGroup) *twoPods {
	t.Helper()
	p := &twoPods{nodeGroup: c, one: c.nodes[0], two: c.nodes[1], responders: map[netip.Addr]*responder{}}
	p.a, p.b = p.one.pod(), p.two.labelled("b", "b")
	c.waitForMesh([]pod{p.a, p.b})
	for _, addr := range p.addresses() {
		p.responders[addr] = respond(t, p.b.Namespace, "b", netip.AddrPortFrom(addr, backendPort))
	}
	for _, r := range c.nodes {
		trackConnections(t, r.node)
	}
	return p
}

func (p *twoPods) addresses() []netip.Addr { return []netip.Addr{p.b.ipv4, p.b.ipv6} }

// open opens a connection from the pod to the second pod, which must answer.
func (p *twoPods) open(t *testing.T, from pod, protocol string, to netip.Addr) *dialog {
	t.Helper()
	conn, err := openDialog(from.Namespace, protocol, 0, netip.AddrPortFrom(to, backendPort), answerTime)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	mustAnswer(t, conn, "at first")
	return conn
}

// wantPath checks the path of a connection at both ends; 0 is none.
func (p *twoPods) wantPath(t *testing.T, from pod, conn *dialog, atOne, atTwo uint8) {
	t.Helper()
	client := conn.local().Port()
	one, two := p.one.pathsOf(from)[[2]uint16{client, backendPort}], p.two.pathsOf(p.b)[[2]uint16{backendPort, client}]
	if one != atOne || two != atTwo {
		t.Errorf("%s to %s takes the paths %d and %d, want %d and %d", conn.protocol, conn.RemoteAddr(), one, two, atOne, atTwo)
	}
}

// trackedAt counts the connections to an address and port that the node's conntrack knows.
func (r *rig) trackedAt(to netip.AddrPort) (n int) {
	r.Helper()
	family := netlink.InetFamily(unix.AF_INET)
	if to.Addr().Is6() {
		family = unix.AF_INET6
	}
	err := r.node.Do(func() error {
		flows, err := netlink.ConntrackTableList(netlink.ConntrackTable, family)
		for _, flow := range flows {
			if flow.Forward.DstIP.Equal(to.Addr().AsSlice()) && flow.Forward.DstPort == to.Port() {
				n++
			}
		}
		return err
	})
	if err != nil {
		r.Fatal(err)
	}
	return n
}

// TestDirectPath: connections between pods of two nodes bypass both stacks, whatever becomes of the agents.
func TestDirectPath(t *testing.T) {
	t.Parallel()
	forEachWiring(t, 2, func(t *testing.T, c *nodeGroup, _ *testutil.Fabric) {
		p := newTwoPods(t, c)
		var open []*dialog
		for _, protocol := range protocols {
			for _, addr := range p.addresses() {
				conn := p.open(t, p.a, protocol, addr)
				p.wantPath(t, p.a, conn, abi.PathDirect, abi.PathDirect)
				open = append(open, conn)
			}
		}
		for _, r := range c.nodes {
			r.agent.Kill(t)
			for _, conn := range open {
				mustAnswer(t, conn, "without an agent")
			}
			r.agent.Start(t)
		}
		for _, conn := range open {
			mustAnswer(t, conn, "after a start of the agents")
			p.wantPath(t, p.a, conn, abi.PathDirect, abi.PathDirect)
		}
		for _, r := range c.nodes {
			for _, addr := range p.addresses() {
				if n := r.trackedAt(netip.AddrPortFrom(addr, backendPort)); n > 0 {
					t.Errorf("the conntrack of %s knows %d connections to %s", r.node.Name, n, addr)
				}
			}
			r.agreesSoon()
		}
	})
}

// TestDirectLimited: connections of a limited pod go through the stack of its node, where its queues are.
func TestDirectLimited(t *testing.T) {
	t.Parallel()
	forEachWiring(t, 2, func(t *testing.T, c *nodeGroup, _ *testutil.Fabric) {
		p := newTwoPods(t, c)
		limited := p.one.limited(v1.Bandwidth{IngressRate: wide.IngressRate, EgressRate: wide.EgressRate})
		for _, protocol := range protocols {
			for _, addr := range p.addresses() {
				p.wantPath(t, limited, p.open(t, limited, protocol, addr), abi.PathStack, abi.PathDirect)
			}
		}
	})
}

// TestDirectErrors: an error about a datagram reaches its sender.
func TestDirectErrors(t *testing.T) {
	t.Parallel()
	forEachWiring(t, 2, func(t *testing.T, c *nodeGroup, _ *testutil.Fabric) {
		p := newTwoPods(t, c)
		for _, addr := range p.addresses() {
			conn, err := openDialog(p.a.Namespace, "udp", 0, netip.AddrPortFrom(addr, closedPort), answerTime)
			if err == nil {
				_, err = conn.ask()
				conn.Close()
			}
			if !errors.Is(err, unix.ECONNREFUSED) {
				t.Errorf("a datagram to a closed port of %s: %v, want %v", addr, err, unix.ECONNREFUSED)
			}
		}
	})
}

// TestDirectPolicy: a policy decides about connections past the stack, also about open ones.
func TestDirectPolicy(t *testing.T) {
	t.Parallel()
	forEachWiring(t, 2, func(t *testing.T, c *nodeGroup, _ *testutil.Fabric) {
		p := newTwoPods(t, c)
		other := p.one.labelled("other", "other")
		web := p.one.labelled("web", "web")
		var cut, kept []*dialog
		for _, addr := range p.addresses() {
			cut, kept = append(cut, p.open(t, other, "tcp", addr)), append(kept, p.open(t, web, "tcp", addr))
		}
		p.two.applyPolicy(`
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: b, namespace: shop}
spec:
  podSelector: {matchLabels: {app: b}}
  ingress:
  - from: [{podSelector: {matchLabels: {app: web}}}]
`)
		for _, conn := range kept {
			testutil.Eventually(t, func() error { _, err := conn.ask(); return err })
			p.wantPath(t, web, conn, abi.PathDirect, abi.PathDirect)
		}
		for _, conn := range cut {
			if _, err := conn.askWithin("cut", unreachable); err == nil {
				t.Errorf("%s still answers a pod that may not ask it", conn.RemoteAddr())
			}
		}
		for _, addr := range p.addresses() {
			if _, err := openDialog(other.Namespace, "tcp", 0, netip.AddrPortFrom(addr, backendPort), unreachable); err == nil {
				t.Errorf("%s answers a pod that may not ask it", addr)
			}
			p.open(t, web, "tcp", addr)
		}
		p.one.applyPolicy(`
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: web, namespace: shop}
spec:
  podSelector: {matchLabels: {app: web}}
  policyTypes: [Egress]
`)
		for _, conn := range kept {
			if _, err := conn.askWithin("cut", unreachable); err == nil {
				t.Errorf("a pod that may send nothing still asks %s", conn.RemoteAddr())
			}
		}
	})
}

// denyIngress is a policy for pods that no client may ask.
const denyIngress = `
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: deny, namespace: shop}
spec:
  podSelector: {matchLabels: {app: client}}
  policyTypes: [Ingress]
`

// TestDirectIdle: the entry of a connection has expired at the node of the pod that has opened it, and that no client
// may ask. The server speaks first.
func TestDirectIdle(t *testing.T) {
	t.Parallel()
	forEachWiring(t, 2, func(t *testing.T, c *nodeGroup, _ *testutil.Fabric) {
		p := newTwoPods(t, c)
		client := p.one.labelled("client", "client")
		p.one.applyPolicy(denyIngress)
		for _, addr := range p.addresses() {
			conn := p.open(t, client, "tcp", addr)
			(&serviceNodes{T: t, one: p.one}).loseAll()
			p.responders[addr].speakUp("tcp", conn.local())
			if _, err := conn.hear(unasked); err != nil {
				t.Errorf("the server of %s is not heard: %v", addr, err)
			}
			mustAnswer(t, conn, "after the server has spoken")
			p.wantPath(t, client, conn, abi.PathDirect, abi.PathDirect)
		}
	})
}

// secondUplink gives the node another device on the LAN, and returns what has the other node send to it there. Replies
// leave by the first, and no reverse path filter refuses that.
func secondUplink(t *testing.T, fabric *testutil.Fabric, n, other *testutil.Node) (use func()) {
	t.Helper()
	mac := testutil.MAC(2, 0, 0, 3, 0, 1)
	link, err := fabric.AddVeth(testutil.Veth{Name: "second", MAC: testutil.MAC(2, 0, 0, 3, 0, 2), Peer: n.Namespace, PeerName: "eth1", PeerMAC: mac})
	if err != nil {
		t.Fatal(err)
	}
	handle := fabric.Netlink(t)
	err = errors.Join(handle.LinkSetMasterByIndex(link, fabric.Link(t, "lan").Attrs().Index), handle.LinkSetUp(link), n.Netlink(t).LinkSetUp(n.Link(t, "eth1")))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"all", "eth0", "eth1"} {
		n.Sysctl(t, "net/ipv4/conf/"+name+"/rp_filter", "0")
	}
	return func() {
		for _, addr := range []netip.Addr{n.IPv4, n.IPv6} {
			if err := other.Netlink(t).NeighSet(testutil.PermanentNeighbour(other.Link(t, "eth0").Attrs().Index, addr, mac)); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestDirectMoves: open connections' packets come by another device than before. A policy decides about them by the pod
// that has opened them.
func TestDirectMoves(t *testing.T) {
	fabric := testutil.NewLAN(t)
	p := newTwoPods(t, newNodes(t, fabric, 2))
	move := secondUplink(t, fabric, p.one.node, p.two.node)
	client := p.one.labelled("client", "client")
	p.one.applyPolicy(denyIngress)
	var open []*dialog
	for _, protocol := range protocols {
		for _, addr := range p.addresses() {
			open = append(open, p.open(t, client, protocol, addr))
		}
	}
	hear := func(when string) {
		t.Helper()
		for _, conn := range open {
			p.responders[conn.to().Addr()].speakUp(conn.protocol, conn.local())
			if _, err := conn.hear(unasked); err != nil {
				t.Errorf("%s: %s from %s: %v", when, conn.protocol, conn.to(), err)
			}
		}
	}
	move()
	hear("by another device")
	p.one.applyPolicy(strings.Replace(denyIngress, "name: deny", "name: another", 1) + "  ingress: [{ports: [{port: 7}]}]\n")
	hear("after a policy has changed")
}

// TestDirectAsymmetric: packets from the other node come by another device than packets to it. kube-proxy's rules drop
// a SYN-ACK there, as conntrack has not seen the SYN; the repeated one takes the stack.
func TestDirectAsymmetric(t *testing.T) {
	t.Parallel()
	forEachProxyMode(t, func(t *testing.T, mode proxyMode) {
		fabric := testutil.NewLAN(t)
		c := newNodes(t, fabric, 2, "--metrics-address="+metricsAddress)
		n := serviceNodesOn(t, mode, fabric, c.nodes[0], c.nodes[1])
		c.waitForPing(n.a.Namespace, n.d.ipv4)
		c.waitForPing(n.a.Namespace, n.d.ipv6)
		secondUplink(t, fabric, c.nodes[0].node, c.nodes[1].node)()
		n.forEachFamily(func(t *testing.T, six bool) {
			conn := n.mustOpen(t, 0, n.d.at(six, backendPort))
			mustAnswer(t, conn, "by another device")
			if path := n.one.pathsOf(n.podA)[[2]uint16{conn.local().Port(), backendPort}]; path != abi.PathStack {
				t.Errorf("the connection takes the path %d, want %d", path, abi.PathStack)
			}
		})
	})
}

// TestDirectClash: a client uses one local port to a pod of another node directly and by its Service.
func TestDirectClash(t *testing.T) {
	t.Parallel()
	forEachProxyMode(t, func(t *testing.T, mode proxyMode) {
		for _, w := range testutil.Sample(wirings...) {
			t.Run(w.name, func(t *testing.T) {
				fabric := w.make(t)
				c := newNodes(t, fabric, 2, append(slices.Clone(w.flags), "--metrics-address="+metricsAddress)...)
				n := serviceNodesOn(t, mode, fabric, c.nodes[0], c.nodes[1])
				c.waitForPing(n.a.Namespace, n.d.ipv4)
				c.waitForPing(n.a.Namespace, n.d.ipv6)
				n.forEachFamily(func(t *testing.T, six bool) {
					direct, service := n.d.at(six, backendPort), n.at(remote, six)
					t.Run("by TCP", func(t *testing.T) {
						first := n.mustOpen(t, clashPort, direct)
						mustAnswer(t, first, "before the clash")
						if path := n.one.pathsOf(n.podA)[[2]uint16{clashPort, backendPort}]; path != abi.PathDirect {
							t.Errorf("the direct connection takes the path %d, want %d", path, abi.PathDirect)
						}
						second := n.mustOpen(t, clashPort, service)
						for i := range 3 {
							mustAnswer(t, first, fmt.Sprint("beside the Service, ", i))
							mustAnswer(t, second, fmt.Sprint("beside the direct connection, ", i))
						}
					})
					t.Run("by UDP", func(t *testing.T) { n.alternate(t, six, func() {}, direct, service) })
					t.Run("in turn, closed", func(t *testing.T) { n.inTurn(t, clashPort+2, false, direct, service) })
					t.Run("in turn, reset", func(t *testing.T) { n.inTurn(t, clashPort+3, true, direct, service) })
				})
				n.nothingDropped("path-clash")
			})
		}
	})
}
