package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"testing"

	"github.com/cilium/ebpf"
)

// openConnection must outlive all events on its node.
type openConnection struct {
	*dialog
	name   string
	server *responder
	peer   netip.AddrPort // the client, as the server sees it
}

// openConnections are some of each kind.
type openConnections struct {
	*serviceNodes
	all []openConnection
}

func (n *serviceNodes) open() *openConnections {
	n.Helper()
	o := &openConnections{serviceNodes: n}
	for _, six := range []bool{false, true} {
		for _, protocol := range protocols {
			o.add("direct", protocol, n.a, n.b.at(six, backendPort), n.b.responder(six))
			o.add("by the Service", protocol, n.a, n.at(local, six), n.b.responder(six))
			o.add("by the node port", protocol, n.a, n.nodePort(local, n.node1, six), n.b.responder(six))
			o.add("to itself by the Service", protocol, n.b, n.at(local, six), n.b.responder(six))
			o.add("direct to another node", protocol, n.a, n.d.at(six, backendPort), n.d.responder(six))
			o.add("by the Service to another node", protocol, n.a, n.at(remote, six), n.d.responder(six))
			o.add("by the Service to the node", protocol, n.a, n.at(host, six), n.node1.responder(six))
			o.add("by the Service from another node", protocol, n.d, n.at(local, six), n.b.responder(six))
			o.add("from outside", protocol, n.outside, n.nodePort(localPolicy, n.node1, six), n.b.responder(six))
		}
	}
	return o
}

func (o *openConnections) add(name, protocol string, from party, to netip.AddrPort, server string) {
	o.Helper()
	conn, err := openDialog(from.Namespace, protocol, 0, to, answerTime)
	if err != nil {
		o.Fatalf("%s: %v", name, err)
	}
	o.Cleanup(func() { conn.Close() })
	a, err := conn.ask()
	if err != nil {
		o.Fatalf("%s: %s to %s: %v", name, protocol, to, err)
	}
	o.all = append(o.all, openConnection{conn, name, o.responders[server], a.peer})
}

// answer checks that each connection carries something to its server and back, and that both ends are those from
// before.
func (o *openConnections) answer(when string) {
	o.Helper()
	for _, c := range o.all {
		if a, err := c.ask(); err != nil || a.peer != c.peer {
			o.Errorf("%s: %s, %s to %s: %+v, %v; the client was %s", when, c.name, c.protocol, c.RemoteAddr(), a, err, c.peer)
		}
	}
}

// hear checks that each connection carries data that its server sends unasked.
func (o *openConnections) hear(when string) {
	o.Helper()
	for _, c := range o.all {
		c.server.speakUp(c.protocol, c.peer)
		if a, err := c.dialog.hear(unasked); err != nil || a.peer != c.peer {
			o.Errorf("%s: %s, %s from %s: %+v, %v; the client was %s", when, c.name, c.protocol, c.RemoteAddr(), a, err, c.peer)
		}
	}
}

// goOn checks both ways. The side that speaks first is where the node decides on a path again.
func (o *openConnections) goOn(when string, serverFirst bool) {
	o.Helper()
	if serverFirst {
		o.hear(when)
	}
	o.answer(when)
	o.hear(when)
}

func TestServiceConnectionsSurviveRestart(t *testing.T) {
	t.Parallel()
	forEachProxyMode(t, func(t *testing.T, mode proxyMode) {
		n := newServiceNodes(t, mode)
		open := n.open()
		for _, serverFirst := range []bool{false, true} {
			n.one.agent.Stop(t)
			open.goOn("after the agent has stopped", serverFirst)
			n.one.agent.Start(t)
			open.goOn("after a start", serverFirst)
			n.one.agent.Kill(t)
			open.goOn("after the agent was killed", serverFirst)
			n.one.agent.Start(t)
			open.goOn("after a start", serverFirst)
		}
		n.nothingDropped()
	})
}

func TestServiceConnectionsSurviveUpgrade(t *testing.T) {
	t.Parallel()
	forEachProxyMode(t, func(t *testing.T, mode proxyMode) {
		n := newServiceNodes(t, mode)
		open := n.open()
		for _, serverFirst := range []bool{false, true} {
			n.one.previousVersion()
			open.goOn("with the programs of the previous version", serverFirst)
			n.one.thisVersion()
			if status := n.one.status(); status.Restored.Replaced != 3 {
				t.Errorf("restored %+v, want new programs at 3 endpoints", status.Restored)
			}
			open.goOn("after an upgrade", serverFirst)
		}
		n.nothingDropped()
	})
}

func TestServiceConnectionsSurviveMapSize(t *testing.T) {
	t.Parallel()
	forEachProxyMode(t, func(t *testing.T, mode proxyMode) {
		n := newServiceNodes(t, mode)
		open := n.open()
		for i, serverFirst := range []bool{false, true} {
			n.one.agent.Restart(t, "--metrics-address="+metricsAddress, fmt.Sprintf("--datapath-max-connections=%d", 2048<<i))
			open.goOn("after a start with another size", serverFirst)
		}
		n.nothingDropped()
	})
}

func TestServiceConnectionsSurviveLoss(t *testing.T) {
	t.Parallel()
	forEachProxyMode(t, func(t *testing.T, mode proxyMode) {
		n := newServiceNodes(t, mode)
		open := n.open()
		for _, serverFirst := range []bool{false, true} {
			n.loseAll()
			open.goOn("after the loss of all entries", serverFirst)
			for _, p := range []pod{n.podA, n.podB} {
				n.loseConnections(n.one.hostEnd(p))
				open.goOn("after the loss of the entries of one end", serverFirst)
			}
		}
		n.nothingDropped()
	})
}

// hostEnd is the index of the host end of the pod's link.
func (r *rig) hostEnd(p pod) uint32 {
	r.Helper()
	ep, err := r.api.Endpoint(context.Background(), "container-id:"+p.ID)
	if err != nil {
		r.Fatal(err)
	}
	return uint32(ep.Host.Index)
}

// loseAll deletes all entries of the first node.
func (n *serviceNodes) loseAll() { n.loseConnections(0) }

// loseConnections deletes the entries of one link of the first node, or of all with 0.
func (n *serviceNodes) loseConnections(link uint32) {
	n.Helper()
	m := n.connectionMap()
	defer m.Close()
	for key := range n.connections() {
		if link != 0 && key.Ifindex != link {
			continue
		}
		if err := m.Delete(key); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			n.Fatal(err)
		}
	}
}
