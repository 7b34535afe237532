package e2e

import (
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cilium/ebpf"

	"porin.dev/porin/bpf"
	"porin.dev/porin/bpf/abi"
	"porin.dev/porin/internal/testutil"
)

// connectionMap opens the map of the first node's connections.
func (n *serviceNodes) connectionMap() *ebpf.Map {
	n.Helper()
	m, err := ebpf.LoadPinnedMap(filepath.Join(n.one.node.BPFRoot, "maps", bpf.Connections), nil)
	if err != nil {
		n.Fatal(err)
	}
	return m
}

// connections reads it. It may miss some of a table that changes meanwhile.
func (n *serviceNodes) connections() map[abi.ConnectionKey]abi.Connection {
	n.Helper()
	m := n.connectionMap()
	defer m.Close()
	var (
		key   abi.ConnectionKey
		value abi.Connection
	)
	found := map[abi.ConnectionKey]abi.Connection{}
	all := m.Iterate()
	for all.Next(&key, &value) {
		found[key] = value
	}
	if err := all.Err(); err != nil && !errors.Is(err, ebpf.ErrIterationAborted) {
		n.Fatal(err)
	}
	return found
}

// paths are the paths of the entries that a pod has of connections from, or to, a port of its own.
func (n *serviceNodes) paths(p pod, localPort, remotePort uint16) (paths []uint8) {
	n.Helper()
	link := n.one.hostEnd(p)
	for key, c := range n.connections() {
		if key.Ifindex == link && key.LocalPort == htons(localPort) && key.RemotePort == htons(remotePort) {
			paths = append(paths, c.Path)
		}
	}
	return paths
}

// TestServicePaths: a direct connection takes the shortcut, and one by a Service the stack, whatever becomes of the
// entries.
func TestServicePaths(t *testing.T) {
	forEachProxyMode(t, func(t *testing.T, mode proxyMode) {
		n := newServiceNodes(t, mode)
		n.forEachFamily(func(t *testing.T, six bool) {
			for _, protocol := range protocols {
				direct := n.mustConverse(t, protocol, n.b.at(six, backendPort))
				byService := n.mustConverse(t, protocol, n.at(local, six))
				for _, when := range []string{"at first", "after a loss"} {
					n.takes(t, when, direct, backendPort, abi.PathShortcut)
					n.takes(t, when, byService, servicePort, abi.PathStack)
					n.loseAll()
				}
			}
		})
		n.nothingDropped()
	})
}

func (n *serviceNodes) mustConverse(t *testing.T, protocol string, to netip.AddrPort) *dialog {
	t.Helper()
	conn, err := openDialog(n.a.Namespace, protocol, 0, to, answerTime)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// takes checks the path of a connection from a to port of b, at both ends.
func (n *serviceNodes) takes(t *testing.T, when string, conn *dialog, port uint16, want uint8) {
	t.Helper()
	mustAnswer(t, conn, when)
	client := conn.local().Port()
	ends := append(n.paths(n.podA, client, port), n.paths(n.podB, backendPort, client)...)
	if len(ends) != 2 || ends[0] != want || ends[1] != want {
		t.Errorf("%s: %s to %s takes the paths %v, want %d at both ends", when, conn.protocol, conn.RemoteAddr(), ends, want)
	}
}

// TestServiceConnectionsFull: without room for entries, connections go through the stack, and go on when there is room
// again.
func TestServiceConnectionsFull(t *testing.T) {
	t.Parallel()
	forEachProxyMode(t, func(t *testing.T, mode proxyMode) {
		n := newServiceNodes(t, mode)
		n.one.agent.Restart(t, "--metrics-address="+metricsAddress, "--datapath-max-connections=1024")
		n.forEachFamily(func(t *testing.T, six bool) {
			before := n.one.metrics()["porin_datapath_connections_refused_total"]
			for range 600 {
				mustAnswer(t, n.mustConverse(t, "udp", n.b.at(six, backendPort)), "while it becomes full")
			}
			if after := n.one.metrics()["porin_datapath_connections_refused_total"]; after <= before {
				t.Fatalf("%v connections were refused an entry, before %v", after, before)
			}
			var open []*dialog
			for _, protocol := range protocols {
				for _, to := range []netip.AddrPort{n.b.at(six, backendPort), n.at(local, six), n.nodePort(local, n.node1, six)} {
					open = append(open, n.mustConverse(t, protocol, to))
				}
			}
			for _, conn := range open {
				mustAnswer(t, conn, "when it is full")
			}
			n.loseAll()
			n.forgetUsage()
			for _, conn := range open {
				mustAnswer(t, conn, "when there is room")
				if conn.RemoteAddr().String() == n.b.at(six, backendPort).String() {
					n.takes(t, "opened when it was full", conn, backendPort, abi.PathStack)
				}
			}
		})
		n.nothingDropped()
	})
}

// forgetUsage makes room: no entry is counted any more.
func (n *serviceNodes) forgetUsage() {
	n.Helper()
	m, err := ebpf.LoadPinnedMap(filepath.Join(n.one.node.BPFRoot, "maps", bpf.Usage), nil)
	if err != nil {
		n.Fatal(err)
	}
	defer m.Close()
	ids := []uint32{abi.NoEndpoint} // which has the sum
	for _, ep := range n.one.endpoints() {
		ids = append(ids, uint32(ep.ID))
	}
	for _, id := range ids {
		var usage abi.Usage
		err := m.Lookup(id, &usage)
		if usage.Removed = usage.Inserted; err == nil {
			err = m.Put(id, usage)
		}
		if err != nil {
			n.Fatal(err)
		}
	}
}

// TestServicePathMTU: a link on the way is smaller than those at its ends, and ICMP errors say so to who sends too
// much.
func TestServicePathMTU(t *testing.T) {
	t.Parallel()
	forEachProxyMode(t, func(t *testing.T, mode proxyMode) {
		n := newServiceNodes(t, mode)
		setMTU(t, n.one.node.Namespace, "eth0", 1400)
		setMTU(t, n.outside.Namespace, n.one.node.Name, 1400)
		n.forEachFamily(func(t *testing.T, six bool) {
			for _, c := range []serviceCase{
				{"direct", n.a, n.d.at(six, backendPort), nil}, {"by Service", n.a, n.at(remote, six), nil},
				{"by Service from another node", n.d, n.at(local, six), nil}, {"by node port from outside", n.outside, n.nodePort(localPolicy, n.node1, six), nil},
				{"by masqueraded node port from another node", n.node2, n.nodePort(local, n.node1, six), nil},
			} {
				for _, protocol := range protocols {
					if err := c.carryMuch(protocol); err != nil {
						t.Errorf("%s by %s: %v", c.name, protocol, err)
					}
				}
			}
		})
		n.nothingDropped()
	})
}

// carryMuch sends and gets back more than a packet. A datagram that is too large is lost, and the next is cut to what
// the error has said.
func (c serviceCase) carryMuch(protocol string) error {
	conn, err := openDialog(c.from.Namespace, protocol, 0, c.to, answerTime)
	if err != nil {
		return err
	}
	defer conn.Close()
	if protocol == "tcp" {
		_, err = conn.askText(strings.Repeat("x", 50_000))
		return err
	}
	for range 5 {
		if _, err = conn.askWithin(strings.Repeat("x", 1440), unreachable); err == nil {
			return nil
		}
	}
	return fmt.Errorf("none of 5 datagrams: %w", err)
}

func setMTU(t *testing.T, ns *testutil.Namespace, name string, mtu int) {
	t.Helper()
	handle := ns.Netlink(t)
	link, err := handle.LinkByName(name)
	if err == nil {
		err = handle.LinkSetMTU(link, mtu)
	}
	if err != nil {
		t.Fatal(err)
	}
}
