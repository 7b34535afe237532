package e2e

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"porin.dev/porin/internal/testutil"
)

// clashPort is the local port of clients that use it twice.
const clashPort = 45000

const clashes = `porin_datapath_drops_total{reason="path-clash"}`

// TestServicePathClash: a client uses one local port to a pod directly and to its Service. No answer may come from
// another address than was asked: a connected socket does not get it, and a dialog waits in vain.
func TestServicePathClash(t *testing.T) {
	t.Parallel()
	forEachProxyMode(t, func(t *testing.T, mode proxyMode) {
		n := newServiceNodes(t, mode)
		n.forEachFamily(func(t *testing.T, six bool) {
			direct, service, nodePort := n.b.at(six, backendPort), n.at(local, six), n.nodePort(local, n.node1, six)
			t.Run("direct first", func(t *testing.T) { n.directThenService(t, six, clashPort) })
			t.Run("Service first", func(t *testing.T) { n.serviceThenDirect(t, six, clashPort+1, func() {}) })
			t.Run("Service first, entries lost", func(t *testing.T) { n.serviceThenDirect(t, six, clashPort+4, n.loseAll) })
			t.Run("in turn, closed", func(t *testing.T) { n.inTurn(t, clashPort+2, false, direct, service, nodePort) })
			t.Run("in turn, reset", func(t *testing.T) { n.inTurn(t, clashPort+3, true, direct, service, nodePort) })
			for name, between := range map[string]func(){"": func() {}, ", entries lost": n.loseAll} {
				t.Run("Service at the same time by UDP"+name, func(t *testing.T) { n.alternate(t, six, between, direct, service) })
				t.Run("node port at the same time by UDP"+name, func(t *testing.T) { n.alternate(t, six, between, direct, nodePort, service) })
			}
		})
		n.nothingDropped("path-clash")
	})
}

// mustOpen connects from the first pod.
func (n *serviceNodes) mustOpen(t *testing.T, port uint16, to netip.AddrPort) *dialog {
	t.Helper()
	var conn *dialog
	testutil.Eventually(t, func() (err error) { // a process that another test starts has the descriptor of the port's last connection for a moment
		if conn, err = openDialog(n.a.Namespace, "tcp", port, to, answerTime); err != nil && !errors.Is(err, unix.EADDRNOTAVAIL) {
			t.Fatal(err)
		}
		return err
	})
	t.Cleanup(func() { conn.Close() })
	return conn
}

// mustAnswer asks a few times.
func mustAnswer(t *testing.T, conn *dialog, when string) {
	t.Helper()
	for range 3 {
		if _, err := conn.ask(); err != nil {
			t.Fatalf("%s: %s to %s: %v", when, conn.protocol, conn.RemoteAddr(), err)
		}
	}
}

// mustFinish closes a connection at both ends.
func mustFinish(t *testing.T, conn *dialog) {
	t.Helper()
	_ = conn.Conn.(*net.TCPConn).CloseWrite()
	_ = conn.SetDeadline(time.Now().Add(answerTime))
	if left, err := conn.in.ReadString('\n'); !errors.Is(err, io.EOF) {
		t.Fatalf("after the end: %q, %v", left, err)
	}
	conn.Close()
}

// directThenService: the Service's first SYN is dropped and counted while the direct connection is open; the node gives
// the next one another port. Nothing is dropped when the direct connection has ended.
func (n *serviceNodes) directThenService(t *testing.T, six bool, port uint16) {
	direct := n.mustOpen(t, port, n.b.at(six, backendPort))
	mustAnswer(t, direct, "before the clash")
	before := n.one.metrics()[clashes]
	service := n.mustOpen(t, port, n.at(local, six))
	if after := n.one.metrics()[clashes]; after != before+1 {
		t.Errorf("%v packets were dropped as path-clash, before %v", after, before)
	}
	for range 3 {
		mustAnswer(t, direct, "beside the Service")
		mustAnswer(t, service, "beside the direct connection")
	}
	mustFinish(t, service)
	mustAnswer(t, direct, "after the Service's has ended")
	mustFinish(t, direct)
	before = n.one.metrics()[clashes]
	again := n.mustOpen(t, port, n.at(local, six))
	mustAnswer(t, again, "after the first has ended")
	if after := n.one.metrics()[clashes]; after != before {
		t.Errorf("%v packets were dropped as path-clash when the first had ended", after-before)
	}
}

// serviceThenDirect: the direct connection takes the path of the open one, through the stack, which gives it another
// port.
func (n *serviceNodes) serviceThenDirect(t *testing.T, six bool, port uint16, between func()) {
	before := n.one.metrics()[clashes]
	first := n.mustOpen(t, port, n.at(local, six))
	mustAnswer(t, first, "before the second")
	between()
	second := n.mustOpen(t, port, n.b.at(six, backendPort))
	for range 3 {
		mustAnswer(t, second, "beside the first")
		mustAnswer(t, first, "beside the second")
	}
	mustFinish(t, first)
	mustAnswer(t, second, "after the first has ended")
	if after := n.one.metrics()[clashes]; after != before {
		t.Errorf("%v packets were dropped as path-clash", after-before)
	}
}

// inTurn uses a port for one connection after the other, each when the one before has ended.
func (n *serviceNodes) inTurn(t *testing.T, port uint16, reset bool, targets ...netip.AddrPort) {
	t.Helper()
	before := n.one.metrics()[clashes]
	if reset {
		targets = slices.Concat(targets, targets) // a port that was closed waits before it goes to the same address
		targets = append(targets, targets[1], targets[0], targets[0], targets[1])
	}
	for _, to := range targets {
		conn := n.mustOpen(t, port, to)
		mustAnswer(t, conn, "in turn")
		if reset {
			conn.reset(t)
		} else {
			mustFinish(t, conn)
		}
	}
	if after := n.one.metrics()[clashes]; after != before {
		t.Errorf("%v packets were dropped as path-clash", after-before)
	}
}

// alternate sends datagrams from one socket to all the targets in turn. Each answer must come from where its question
// went.
func (n *serviceNodes) alternate(t *testing.T, six bool, between func(), targets ...netip.AddrPort) {
	for start := range targets {
		socket := listenUDP(t, n.a.Namespace, n.a.addr(six))
		for i := range 4 * len(targets) {
			between()
			to := targets[(start+i)%len(targets)]
			if err := questionAndAnswer(socket, to, fmt.Sprint(i)); err != nil {
				t.Fatalf("datagram %d from %s to %s: %v", i, socket.LocalAddr(), to, err)
			}
		}
	}
}

func questionAndAnswer(socket *net.UDPConn, to netip.AddrPort, text string) error {
	if _, err := socket.WriteToUDPAddrPort([]byte(text), to); err != nil {
		return err
	}
	buf := make([]byte, 200)
	_ = socket.SetReadDeadline(time.Now().Add(answerTime))
	size, from, err := socket.ReadFromUDPAddrPort(buf)
	if err != nil {
		return err
	}
	if from = netip.AddrPortFrom(from.Addr().Unmap(), from.Port()); from != to {
		return fmt.Errorf("the answer %q came from %s", buf[:size], from)
	}
	_, err = parseAnswer(string(buf[:size]), text)
	return err
}

// TestServicePathClashLateAnswer: a pod answers what it was asked directly after the same client has asked it by the
// Service, too.
func TestServicePathClashLateAnswer(t *testing.T) {
	t.Parallel()
	forEachProxyMode(t, func(t *testing.T, mode proxyMode) {
		n := newServiceNodes(t, mode)
		n.forEachFamily(func(t *testing.T, six bool) {
			direct, service := n.b.at(six, closedPort), n.at(closed, six)
			t.Run("direct first", func(t *testing.T) { n.answersInOrder(t, six, direct, service) })
			t.Run("Service first", func(t *testing.T) { n.answersInOrder(t, six, service, direct) })
		})
		n.nothingDropped("path-clash")
	})
}

// TestServicePathClashUnasked: a session with a Service by UDP was idle until conntrack has forgotten it. Its backend
// goes on to send, and what the client asks by the Service is answered.
func TestServicePathClashUnasked(t *testing.T) {
	t.Parallel()
	forEachProxyMode(t, func(t *testing.T, mode proxyMode) {
		fabric := testutil.NewLAN(t)
		c := newNodes(t, fabric, 2, "--metrics-address="+metricsAddress)
		n := serviceNodesOn(t, mode, fabric, c.nodes[0], c.nodes[1])
		c.waitForPing(n.a.Namespace, n.d.ipv4)
		c.waitForPing(n.a.Namespace, n.d.ipv6)
		n.forEachFamily(func(t *testing.T, six bool) {
			for name, backend := range map[string]party{local: n.b, remote: n.d} {
				t.Run(name, func(t *testing.T) { n.backendSendsFirst(t, six, n.at(name, six), backend) })
			}
		})
	})
}

func (n *serviceNodes) backendSendsFirst(t *testing.T, six bool, service netip.AddrPort, backend party) {
	client := listenUDP(t, n.a.Namespace, n.a.addr(six))
	if err := questionAndAnswer(client, service, "before"); err != nil {
		t.Fatal(err)
	}
	if err := n.one.node.Do(func() error { return netlink.ConntrackTableFlush(netlink.ConntrackTable) }); err != nil {
		t.Fatal(err)
	}
	n.loseAll()
	n.responders[backend.responder(six)].speakUp("udp", netip.AddrPortFrom(n.a.addr(six), portOf(client)))
	buf := make([]byte, 200)
	_ = client.SetReadDeadline(time.Now().Add(answerTime))
	if _, from, err := client.ReadFromUDPAddrPort(buf); err != nil || from.Addr().Unmap() != backend.addr(six) {
		t.Fatalf("the backend is not heard: from %s, %v", from, err)
	}
	if err := questionAndAnswer(client, service, "after"); err != nil {
		t.Error(err)
	}
}

// answersInOrder asks by both ways from one socket before there is an answer. Each must come from where its question
// went.
func (n *serviceNodes) answersInOrder(t *testing.T, six bool, targets ...netip.AddrPort) {
	var server *net.UDPConn
	testutil.Eventually(t, func() (err error) { // a process that another test starts has the descriptor of the port's last socket for a moment
		if server, err = listenUDPAt(n.b, n.b.at(six, closedPort)); err != nil && !errors.Is(err, unix.EADDRINUSE) {
			t.Fatal(err)
		}
		return err
	})
	defer server.Close()
	client := listenUDP(t, n.a.Namespace, n.a.addr(six))
	buf, peers := make([]byte, 200), map[string]netip.AddrPort{}
	for _, to := range targets {
		if _, err := client.WriteToUDPAddrPort([]byte(to.String()), to); err != nil {
			t.Fatal(err)
		}
		_ = server.SetReadDeadline(time.Now().Add(unreachable)) // a dropped one gets no answer
		if size, peer, err := server.ReadFromUDPAddrPort(buf); err == nil {
			peers[string(buf[:size])] = peer
		}
	}
	for question, peer := range peers {
		if _, err := server.WriteToUDPAddrPort([]byte(question), peer); err != nil {
			t.Fatal(err)
		}
	}
	for range peers {
		_ = client.SetReadDeadline(time.Now().Add(answerTime))
		size, from, err := client.ReadFromUDPAddrPort(buf)
		if err != nil {
			t.Fatal(err)
		}
		if question := string(buf[:size]); question != netip.AddrPortFrom(from.Addr().Unmap(), from.Port()).String() {
			t.Errorf("the answer to what %s was asked came from %s; the server saw %v", question, from, peers)
		}
	}
}

func listenUDPAt(p party, at netip.AddrPort) (conn *net.UDPConn, err error) {
	err = p.Do(func() error {
		conn, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(at))
		return err
	})
	return conn, err
}
