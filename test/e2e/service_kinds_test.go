package e2e

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"porin.dev/porin/internal/testutil"
)

// serviceCase is a client that connects to a Service.
type serviceCase struct {
	name string
	from party
	to   netip.AddrPort
	// want has the backends that answer, in turn, and who they say the client is: the invalid address stands for its
	// own, not translated.
	want map[string]netip.Addr
}

func TestServices(t *testing.T) {
	t.Parallel()
	forEachProxyMode(t, func(t *testing.T, mode proxyMode) {
		newServiceNodes(t, mode).runAll()
	})
}

// runAll connects to every Service from everywhere.
func (n *serviceNodes) runAll() {
	n.forEachFamily(func(t *testing.T, six bool) {
		for _, c := range append(n.clusterIPCases(six), n.nodePortCases(six)...) {
			for _, protocol := range protocols {
				t.Run(strings.ReplaceAll(c.name+" "+protocol, " ", "_"), func(t *testing.T) { c.run(t, protocol) })
			}
		}
	})
	n.nothingDropped()
}

func (n *serviceNodes) clusterIPCases(six bool) []serviceCase {
	var own netip.Addr
	return []serviceCase{
		{"pod to a pod of its node", n.a, n.at(local, six), map[string]netip.Addr{"b": own}},
		{"pod to a pod of another node", n.a, n.at(remote, six), map[string]netip.Addr{"d": own}},
		{"pod to its node", n.a, n.at(host, six), map[string]netip.Addr{"node1": own}},
		{"pod to itself", n.b, n.at(local, six), map[string]netip.Addr{"b": n.node1.addr(six)}},
		{"pod to pods of both nodes", n.a, n.at(localPolicy, six), map[string]netip.Addr{"b": own, "d": own}},
		{"pod of another node to a pod", n.d, n.at(local, six), map[string]netip.Addr{"b": own}},
		{"pod of another node to the node", n.d, n.at(host, six), map[string]netip.Addr{"node1": own}},
		{"node to its pod", n.node1, n.at(local, six), map[string]netip.Addr{"b": n.node1.addr(six)}},
		{"node to a pod of another node", n.node1, n.at(remote, six), map[string]netip.Addr{"d": n.node1.addr(six)}},
		{"node to itself", n.node1, n.at(host, six), map[string]netip.Addr{"node1": n.node1.addr(six)}},
	}
}

func (n *serviceNodes) nodePortCases(six bool) []serviceCase {
	var own netip.Addr
	node1, node2 := n.node1.addr(six), n.node2.addr(six)
	here, away := n.nodePort(local, n.node1, six), n.nodePort(remote, n.node1, six)
	there, policy := n.nodePort(local, n.node2, six), n.nodePort(localPolicy, n.node1, six)
	return []serviceCase{
		{"node port of the own node from a pod", n.a, here, map[string]netip.Addr{"b": node1}},
		{"node port of the own node from the backend", n.b, here, map[string]netip.Addr{"b": node1}},
		{"node port of the own node from a pod, to another node", n.a, away, map[string]netip.Addr{"d": node1}},
		{"node port of another node from a pod", n.a, there, map[string]netip.Addr{"b": node2}},
		{"node port from a pod of another node", n.d, here, map[string]netip.Addr{"b": node1}},
		{"node port from the node", n.node1, here, map[string]netip.Addr{"b": node1}},
		{"node port from another node", n.node2, here, map[string]netip.Addr{"b": node1}},
		{"node port from outside", n.outside, here, map[string]netip.Addr{"b": node1}},
		{"node port from outside, to another node", n.outside, away, map[string]netip.Addr{"d": node1}},
		{"node port of another node from outside", n.outside, there, map[string]netip.Addr{"b": node2}},
		{"policy Local from a pod", n.a, policy, map[string]netip.Addr{"b": own, "d": own}},
		{"policy Local from the backend", n.b, policy, map[string]netip.Addr{"b": node1, "d": own}},
		{"policy Local from a pod of another node", n.d, policy, map[string]netip.Addr{"b": own, "d": node1}},
		{"policy Local from the node", n.node1, policy, map[string]netip.Addr{"b": node1, "d": node1}},
		{"policy Local from another node", n.node2, policy, map[string]netip.Addr{"b": own}},
		{"policy Local from outside", n.outside, policy, map[string]netip.Addr{"b": own}},
		{"policy Local from outside to another node", n.outside, n.nodePort(localPolicy, n.node2, six), map[string]netip.Addr{"d": own}},
	}
}

// run connects until all the backends have answered.
func (c serviceCase) run(t *testing.T, protocol string) {
	missing, clashed := map[string]bool{}, false
	for server := range c.want {
		missing[server] = true
	}
	for connections := 0; len(missing) > 0; connections++ {
		if connections == 64 {
			t.Fatalf("%d connections, and none to %v", connections, missing)
		}
		conn, err := openDialog(c.from.Namespace, protocol, 0, c.to, answerTime)
		if err != nil {
			t.Fatal(err)
		}
		a, err := conn.ask()
		if err != nil {
			t.Fatal(err)
		}
		if other := a.peer.Addr() == conn.local().Addr() && a.peer != conn.local(); other && !clashed {
			clashed = true // the port had a direct connection to the same pod: docs/limits.md
			conn.Close()
			continue
		}
		server := c.exchange(t, conn)
		conn.Close()
		delete(missing, server)
	}
}

// exchange asks a few times on one connection, and returns who answered.
func (c serviceCase) exchange(t *testing.T, conn *dialog) (server string) {
	t.Helper()
	for range 3 {
		a, err := conn.ask()
		if err != nil {
			t.Fatal(err)
		}
		if server != "" && a.server != server {
			t.Errorf("%s answers after %s on one connection", a.server, server)
		}
		server = a.server
		client, ok := c.want[server]
		switch {
		case !ok:
			t.Errorf("%s answers, want one of %v", server, c.want)
		case !client.IsValid() && a.peer != conn.local():
			t.Errorf("%s sees %s, want %s, which is the client's own", server, a.peer, conn.local())
		case client.IsValid() && a.peer.Addr() != client:
			t.Errorf("%s sees %s, want the address %s", server, a.peer, client)
		}
	}
	return server
}

func TestServiceAffinity(t *testing.T) {
	t.Parallel()
	forEachProxyMode(t, func(t *testing.T, mode proxyMode) {
		n := newServiceNodes(t, mode)
		n.forEachFamily(func(t *testing.T, six bool) {
			clusterIP, nodePort := n.at(sticky, six), n.nodePort(sticky, n.node1, six)
			for _, c := range []serviceCase{
				{"pod", n.a, clusterIP, nil}, {"backend", n.b, clusterIP, nil}, {"pod of another node", n.d, clusterIP, nil},
				{"node", n.node1, clusterIP, nil}, {"outside", n.outside, nodePort, nil},
			} {
				for _, protocol := range protocols {
					c.staysWithBackend(t, protocol)
				}
			}
		})
		n.nothingDropped()
	})
}

// staysWithBackend checks that all connections reach the same one.
func (c serviceCase) staysWithBackend(t *testing.T, protocol string) {
	t.Helper()
	servers := map[string]int{}
	for range 16 {
		conn, err := openDialog(c.from.Namespace, protocol, 0, c.to, answerTime)
		if err != nil {
			t.Fatalf("%s by %s: %v", c.name, protocol, err)
		}
		a, err := conn.ask()
		conn.Close()
		if err != nil {
			t.Fatalf("%s by %s: %v", c.name, protocol, err)
		}
		servers[a.server]++
	}
	if len(servers) != 1 {
		t.Errorf("%s by %s reached %v, want one backend for all", c.name, protocol, servers)
	}
}

func TestServiceLargeDatagrams(t *testing.T) {
	t.Parallel()
	forEachProxyMode(t, func(t *testing.T, mode proxyMode) {
		n := newServiceNodes(t, mode)
		n.forEachFamily(func(t *testing.T, six bool) {
			for _, c := range []serviceCase{
				{"pod to pod", n.a, n.b.at(six, backendPort), nil}, {"pod to Service", n.a, n.at(local, six), nil},
				{"pod to another node", n.a, n.d.at(six, backendPort), nil}, {"pod to Service of another node", n.a, n.at(remote, six), nil},
				{"backend to itself by Service", n.b, n.at(local, six), nil}, {"outside to node port", n.outside, n.nodePort(local, n.node1, six), nil},
			} {
				for _, sizes := range [][]int{{10, 4000, 10, 4000}, {4000, 10, 10, 4000}} {
					c.talk(t, sizes)
				}
			}
		})
		n.nothingDropped()
	})
}

// talk exchanges datagrams of these sizes with one socket, those over the MTU in fragments.
func (c serviceCase) talk(t *testing.T, sizes []int) {
	t.Helper()
	conn, err := openDialog(c.from.Namespace, "udp", 0, c.to, answerTime)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for i, size := range sizes {
		if _, err := conn.askText(strings.Repeat("x", size)); err != nil {
			t.Fatalf("%s: datagram %d of %d bytes: %v", c.name, i+1, size, err)
		}
	}
}

func TestServiceClosedPort(t *testing.T) {
	t.Parallel()
	forEachProxyMode(t, func(t *testing.T, mode proxyMode) {
		n := newServiceNodes(t, mode)
		n.forEachFamily(func(t *testing.T, six bool) {
			for _, from := range []party{n.a, n.d, n.node1} {
				for _, to := range []netip.AddrPort{n.b.at(six, closedPort), n.at(closed, six)} {
					for _, protocol := range protocols {
						if err := refusal(from.Namespace, protocol, to); !errors.Is(err, unix.ECONNREFUSED) {
							t.Errorf("%s to %s by %s: %v", from.name, to, protocol, err)
						}
					}
				}
			}
		})
		n.nothingDropped()
	})
}

// refusal connects to a port without a listener, and returns the client's error.
func refusal(from *testutil.Namespace, protocol string, to netip.AddrPort) error {
	conn, err := openDialog(from, protocol, 0, to, answerTime)
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = conn.ask() // by UDP, an ICMP error comes
	return err
}

// TestServiceBesideDirect: connections to the same pod, directly and by Services, do not disturb each other.
func TestServiceBesideDirect(t *testing.T) {
	t.Parallel()
	forEachProxyMode(t, func(t *testing.T, mode proxyMode) {
		n := newServiceNodes(t, mode)
		n.forEachFamily(func(t *testing.T, six bool) {
			targets := []netip.AddrPort{n.b.at(six, backendPort), n.at(local, six), n.nodePort(local, n.node1, six), n.b.at(six, backendPort), n.at(local, six)}
			var open []*dialog
			for _, to := range targets {
				for _, protocol := range protocols {
					conn, err := openDialog(n.a.Namespace, protocol, 0, to, answerTime)
					if err != nil {
						t.Fatal(err)
					}
					defer conn.Close()
					open = append(open, conn)
				}
			}
			for round := range 5 {
				for _, conn := range open {
					if a, err := conn.ask(); err != nil || a.server != "b" {
						t.Errorf("round %d, %s to %s: %+v, %v", round, conn.protocol, conn.RemoteAddr(), a, err)
					}
				}
			}
		})
		n.nothingDropped()
	})
}

// TestServiceRulesCountInvalid: a packet that belongs to nothing is counted, so that a count of none means something.
func TestServiceRulesCountInvalid(t *testing.T) {
	t.Parallel()
	forEachProxyMode(t, func(t *testing.T, mode proxyMode) {
		n := newServiceNodes(t, mode)
		wire := n.one.wire(n.podA)
		wire.send(wire.strayReset(n.podA.ipv4, testutil.OutsideIPv4))
		wire.send(wire.strayReset(n.podA.ipv6, testutil.OutsideIPv6))
		for _, six := range []bool{false, true} {
			testutil.Eventually(t, func() error {
				if got := mode.invalid(t, n.one.node, six); got != 1 {
					return fmt.Errorf("IPv6 %v: %d packets counted as invalid, want 1", six, got)
				}
				return nil
			})
		}
	})
}
