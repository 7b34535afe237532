package e2e

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"porin.dev/porin/internal/testutil"
)

// backendPort is where every responder listens, and closedPort where none does.
const (
	backendPort = 8080
	closedPort  = 8081
)

// serviceNodes are two nodes with kube-proxy's rules, and a host outside. a, b and c are pods of the first node, d is
// one of the second.
type serviceNodes struct {
	*testing.T
	mode                  proxyMode
	one, two              *rig
	podA, podB, podC      pod
	a, b, c, d            party
	node1, node2, outside party
	responders            map[string]*responder // by the names of parties, and family
}

// newServiceNodes have agents that know nothing of each other, and a network between them that knows all pods.
func newServiceNodes(t *testing.T, mode proxyMode, flags ...string) *serviceNodes {
	t.Helper()
	fabric := testutil.NewFabric(t)
	flags = append(flags, "--metrics-address="+metricsAddress)
	one, two := rigOn(t, fabric.NewNode(t), flags...), rigOn(t, fabric.NewNode(t), flags...)
	fabric.RoutePods(t, one.node)
	fabric.RoutePods(t, two.node)
	return serviceNodesOn(t, mode, fabric, one, two)
}

// serviceNodesOn attaches the pods of two nodes, and gives the nodes kube-proxy's rules, none without a mode.
func serviceNodesOn(t *testing.T, mode proxyMode, fabric *testutil.Fabric, one, two *rig) *serviceNodes {
	t.Helper()
	n := &serviceNodes{T: t, mode: mode, one: one, two: two, responders: map[string]*responder{}}
	n.podA, n.podB, n.podC = n.one.named("demo", "a"), n.one.named("demo", "b"), n.one.named("demo", "c")
	n.a, n.b, n.c, n.d = n.podA.party("a"), n.podB.party("b"), n.podC.party("c"), n.two.named("demo", "d").party("d")
	n.node1, n.node2 = nodeParty(n.one.node), nodeParty(n.two.node)
	n.outside = party{"outside", fabric.Namespace, testutil.OutsideIPv4, testutil.OutsideIPv6}
	for _, r := range []*rig{n.one, n.two} {
		for _, six := range []bool{false, true} {
			if mode == nil {
				continue
			}
			mode.apply(t, r.node, n.proxyOf(r.node, six))
		}
	}
	for _, p := range []party{n.a, n.b, n.c, n.d, n.node1} {
		for _, six := range []bool{false, true} {
			n.responders[p.responder(six)] = respond(t, p.Namespace, p.name, netip.AddrPortFrom(p.addr(six), backendPort))
		}
	}
	return n
}

func (p pod) party(name string) party { return party{name, p.Namespace, p.ipv4, p.ipv6} }

func nodeParty(n *testutil.Node) party { return party{n.Name, n.Namespace, n.IPv4, n.IPv6} }

// addr is the address of a family.
func (p party) addr(six bool) netip.Addr {
	if six {
		return p.ipv6
	}
	return p.ipv4
}

func (p party) responder(six bool) string { return fmt.Sprint(p.name, six) }

func (p party) at(six bool, port uint16) netip.AddrPort { return netip.AddrPortFrom(p.addr(six), port) }

// The Services of the tests.
const (
	local       = "local"       // on the node of the first pods
	remote      = "remote"      // on the other node
	host        = "host"        // the node itself
	localPolicy = "localpolicy" // externalTrafficPolicy Local, with a backend on each node
	sticky      = "sticky"      // sessionAffinity ClientIP
	closed      = "closed"      // no program listens at the backend
	web         = "web"         // HTTP, on the node of the first pods
	remoteWeb   = "remoteweb"   // HTTP, on the other node
	names       = "names"       // DNS, on the node of the first pods
	remoteNames = "remotenames" // DNS, on the other node
	hostNames   = "hostnames"   // DNS, the node itself
	hostWeb     = "hostweb"     // HTTP, the node itself
)

func (n *serviceNodes) services(six bool) []service {
	all := []service{
		{name: local, nodePort: 30080, backends: []netip.AddrPort{n.b.at(six, backendPort)}},
		{name: remote, nodePort: 30081, backends: []netip.AddrPort{n.d.at(six, backendPort)}},
		{name: host, backends: []netip.AddrPort{n.node1.at(six, backendPort)}},
		{name: localPolicy, nodePort: 30082, local: true, backends: []netip.AddrPort{n.b.at(six, backendPort), n.d.at(six, backendPort)}},
		{name: sticky, nodePort: 30083, affinity: true, backends: []netip.AddrPort{n.b.at(six, backendPort), n.c.at(six, backendPort)}},
		{name: closed, backends: []netip.AddrPort{n.b.at(six, closedPort)}},
		{name: web, nodePort: 30084, backends: []netip.AddrPort{n.b.at(six, webPort)}},
		{name: remoteWeb, nodePort: 30085, backends: []netip.AddrPort{n.d.at(six, webPort)}},
		{name: names, backends: []netip.AddrPort{n.b.at(six, dnsPort)}},
		{name: remoteNames, backends: []netip.AddrPort{n.d.at(six, dnsPort)}},
		{name: hostNames, backends: []netip.AddrPort{n.node1.at(six, dnsPort)}},
		{name: hostWeb, backends: []netip.AddrPort{n.node1.at(six, webPort)}},
	}
	for i := range all {
		all[i].clusterIP = netip.AddrFrom4([4]byte{10, 96, 0, byte(10 + i)})
		if six {
			all[i].clusterIP = netip.AddrFrom16([16]byte{0xfd, 0, 0, 0x96, 15: byte(10 + i)})
		}
	}
	return all
}

func (n *serviceNodes) service(name string, six bool) service {
	for _, s := range n.services(six) {
		if s.name == name {
			return s
		}
	}
	n.Fatalf("no Service %s", name)
	return service{}
}

// at is the Service at its cluster IP.
func (n *serviceNodes) at(name string, six bool) netip.AddrPort { return n.service(name, six).at() }

// nodePort is the Service at a node.
func (n *serviceNodes) nodePort(name string, node party, six bool) netip.AddrPort {
	return node.at(six, n.service(name, six).nodePort)
}

func (n *serviceNodes) proxyOf(node *testutil.Node, six bool) proxy {
	p := proxy{node: node.IPv4, pods: netip.PrefixFrom(node.PodIPv4.Addr(), 16).Masked(), own: node.PodIPv4, services: n.services(six)}
	if six {
		p.node, p.pods, p.own = node.IPv6, netip.PrefixFrom(node.PodIPv6.Addr(), 32).Masked(), node.PodIPv6
	}
	return p
}

// forEachFamily runs a test for both families.
func (n *serviceNodes) forEachFamily(test func(t *testing.T, six bool)) {
	n.Helper()
	for _, six := range []bool{false, true} {
		name := "IPv4"
		if six {
			name = "IPv6"
		}
		n.Run(name, func(t *testing.T) { test(t, six) })
	}
}

// nothingDropped checks that the rules have seen no invalid packet, and that the programs have dropped nothing, but for
// the reasons given.
func (n *serviceNodes) nothingDropped(but ...string) {
	n.Helper()
	but = append(but, "link-local") // which is what a pod says as its link comes up
	for _, r := range []*rig{n.one, n.two} {
		for _, six := range []bool{false, true} {
			if dropped := n.mode.invalid(n, r.node, six); dropped > 0 {
				n.Errorf("%s, IPv6 %v: the rules dropped %d packets as invalid", r.node.Name, six, dropped)
			}
		}
		for name, dropped := range r.metrics() {
			reason, ok := strings.CutPrefix(name, `porin_datapath_drops_total{reason="`)
			if ok && dropped > 0 && !slices.Contains(but, strings.TrimSuffix(reason, `"}`)) {
				n.Errorf("%s: %s is %v", r.node.Name, name, dropped)
			}
		}
	}
}
