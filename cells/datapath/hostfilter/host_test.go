package hostfilter_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os/exec"
	"slices"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"porin.dev/porin/cells/datapath/hostfilter"
	"porin.dev/porin/internal/testutil"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// unreachable is how long is waited for an answer that must not come.
const unreachable = 300 * time.Millisecond

// peer is a namespace at the other end of a device of the host: a pod, or another host.
type peer struct {
	*testutil.Namespace
	link  int // index of the host's end
	addrs [2]netip.Addr
}

// host is a node: a namespace that forwards, with pods and other devices.
type host struct {
	*testutil.Namespace
	addrs  [2]netip.Addr // on lo, as addresses without a device
	filter *hostfilter.Filter
	peers  int
}

func newHost(t testing.TB) *host {
	t.Helper()
	h := &host{Namespace: testutil.NetNS(t), addrs: [2]netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")}}
	h.Sysctl(t, "net/ipv4/ip_forward", "1")
	h.Sysctl(t, "net/ipv6/conf/all/forwarding", "1")
	for _, addr := range h.addrs {
		must(t, h.Netlink(t).AddrAdd(testutil.LinkAt(1), testutil.Address(netip.PrefixFrom(addr, addr.BitLen()))))
	}
	h.filter = h.newFilter(t)
	return h
}

// newFilter is a Filter of an agent that has just started.
func (h *host) newFilter(t testing.TB) *hostfilter.Filter {
	filter := hostfilter.New(h.File(), slog.New(slog.NewTextHandler(t.Output(), nil)))
	t.Cleanup(func() { must(t, filter.Close()) })
	return filter
}

// newPeer adds a device with a peer at the other end, and routes both ways, as for a pod: neighbour entries are
// permanent.
func (h *host) newPeer(t testing.TB) *peer {
	t.Helper()
	h.peers++
	number := byte(h.peers)
	p := &peer{Namespace: testutil.NetNS(t), addrs: [2]netip.Addr{
		netip.AddrFrom4([4]byte{10, 0, 0, number}), netip.AddrFrom16([16]byte{0xfd, 15: number}),
	}}
	gateways := [2]netip.Addr{netip.MustParseAddr("169.254.1.1"), netip.MustParseAddr("fe80::1:1")}
	hostMAC, peerMAC := testutil.MAC(2, 1, number), testutil.MAC(2, 2, number)
	link, err := h.AddVeth(testutil.Veth{Name: fmt.Sprintf("peer%d", number), MAC: hostMAC, Peer: p.Namespace, PeerName: "eth0", PeerMAC: peerMAC})
	must(t, err)
	p.link = link.Attrs().Index
	inner, outer := p.Netlink(t), h.Netlink(t)
	eth0 := link.Attrs().ParentIndex
	must(t, inner.LinkSetUp(testutil.LinkAt(eth0)))
	for i, addr := range p.addrs {
		must(t, inner.AddrAdd(testutil.LinkAt(eth0), testutil.Address(netip.PrefixFrom(addr, addr.BitLen()))))
		must(t, inner.RouteAdd(testutil.HostRoute(eth0, gateways[i], unix.RTPROT_STATIC)))
		must(t, inner.RouteAdd(testutil.GatewayRoute(eth0, netip.PrefixFrom(addr, 0).Masked(), gateways[i])))
		must(t, inner.NeighSet(testutil.PermanentNeighbour(eth0, gateways[i], hostMAC)))
		must(t, outer.RouteAdd(testutil.HostRoute(p.link, addr, unix.RTPROT_STATIC)))
		must(t, outer.NeighSet(testutil.PermanentNeighbour(p.link, addr, peerMAC)))
	}
	return p
}

// rules writes nftables rules, or another program's, as other programs on the node do.
func (h *host) rules(t testing.TB, input string, program ...string) string {
	t.Helper()
	testutil.NeedPrograms(t, program[0])
	var out, stderr bytes.Buffer
	cmd := exec.Command(program[0], program[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader([]byte(input)), &out, &stderr
	must(t, h.Do(cmd.Start))
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v: %v: %s\n%s", program, err, stderr.String(), input)
	}
	return out.String()
}

func (h *host) apply(t testing.TB, d hostfilter.Desired) {
	t.Helper()
	must(t, h.filter.Apply(d))
}

func (h *host) counters(t testing.TB) hostfilter.Counters {
	t.Helper()
	counters, err := h.filter.Counters()
	must(t, err)
	return counters
}

// service answers by TCP and UDP what it is sent.
func service(t testing.TB, ns *testutil.Namespace, at netip.AddrPort) {
	t.Helper()
	listener := ns.Listen(t, at)
	var packets net.PacketConn
	must(t, ns.Do(func() (err error) {
		packets, err = net.ListenPacket("udp", at.String())
		return err
	}))
	done := make(chan struct{}, 2)
	go func() {
		defer func() { done <- struct{}{} }()
		var conns []net.Conn
		for {
			conn, err := listener.Accept()
			if err != nil {
				break
			}
			conns = append(conns, conn)
			go func() { _, _ = io.Copy(conn, conn) }()
		}
		for _, conn := range conns {
			conn.Close()
		}
	}()
	go func() {
		defer func() { done <- struct{}{} }()
		buf := make([]byte, 100)
		for {
			n, from, err := packets.ReadFrom(buf)
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err == nil {
				_, _ = packets.WriteTo(buf[:n], from)
			}
		}
	}()
	t.Cleanup(func() {
		listener.Close()
		packets.Close()
		<-done
		<-done
	})
}

// conversation is a client's end.
type conversation struct{ net.Conn }

func dial(from *testutil.Namespace, protocol string, to netip.AddrPort, timeout time.Duration) (c *conversation, err error) {
	err = from.Do(func() error {
		conn, err := net.DialTimeout(protocol, to.String(), timeout)
		c = &conversation{conn}
		return err
	})
	return c, err
}

// ask sends one message, and wants it back.
func (c *conversation) ask(timeout time.Duration) error {
	_ = c.SetDeadline(time.Now().Add(timeout))
	if _, err := c.Write([]byte("hello")); err != nil {
		return err
	}
	_, err := io.ReadFull(c, make([]byte, 5))
	return err
}

// reaches tries once: UDP does not send lost packets again.
func reaches(from *testutil.Namespace, protocol string, to netip.AddrPort, timeout time.Duration) error {
	if protocol == "icmp" {
		return testutil.Ping(from, to.Addr(), timeout)
	}
	c, err := dial(from, protocol, to, timeout)
	if err != nil {
		return err
	}
	defer c.Close()
	return c.ask(timeout)
}

// wantReaches checks who reaches an address, and that what is denied is counted.
func (h *host) wantReaches(t testing.TB, from *testutil.Namespace, protocol string, to netip.AddrPort, want bool) {
	t.Helper()
	before := h.counters(t)
	timeout := unreachable
	if want {
		timeout = testutil.Patience
	}
	err := reaches(from, protocol, to, timeout)
	if (err == nil) != want {
		t.Errorf("%s to %s: error %v, want it to pass: %v", protocol, to, err, want)
	}
	if after := h.counters(t); (after == before) != want {
		t.Errorf("%s to %s: counters %+v after %+v", protocol, to, after, before)
	}
}

func ipv6(i int) string { return []string{"IPv4", "IPv6"}[i] }

func (p *peer) index() string { return strconv.Itoa(p.link) }

func sorted(texts []string) []string {
	slices.Sort(texts)
	return texts
}

func isRefused(err error) bool { return errors.Is(err, unix.ECONNREFUSED) }
