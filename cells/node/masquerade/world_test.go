package masquerade_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os/exec"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	porinlink "porin.dev/porin/cells/link"
	"porin.dev/porin/cells/node/masquerade"
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

const port = 8080

// end is a namespace with an address of each family: a pod, or a host outside.
type end struct {
	*testutil.Namespace
	addrs [2]netip.Addr
}

func (e *end) at(six int) netip.AddrPort { return netip.AddrPortFrom(e.addrs[six], port) }

// world is a node with a pod, a router that knows no pods, and a host outside behind a narrow link of that router.
type world struct {
	node         *testutil.Node
	pod, outside *end
	table        *masquerade.Table
}

// narrow is the MTU of the last link: 1280 is the least for IPv6.
const narrow = 1280

func newWorld(t testing.TB) *world {
	t.Helper()
	fabric := testutil.NewFabric(t)
	w := &world{node: fabric.NewNode(t)}
	w.node.Sysctl(t, "net/ipv4/ip_forward", "1")
	w.node.Sysctl(t, "net/ipv6/conf/all/forwarding", "1")
	w.pod = join(t, w.node.Namespace, "pod1", [2]netip.Addr{w.node.PodIPv4.Addr().Next(), w.node.PodIPv6.Addr().Next()}, 1500)
	w.outside = join(t, fabric.Namespace, "outside", [2]netip.Addr{netip.MustParseAddr("203.0.113.9"), netip.MustParseAddr("2001:db8:99::9")}, narrow)
	w.table = w.newTable(t, masquerade.Config{Families: masquerade.Both})
	for i := range w.outside.addrs {
		serve(t, w.outside.Namespace, w.outside.at(i))
		serve(t, w.pod.Namespace, w.pod.at(i))
	}
	return w
}

// newTable is a table of an agent that has just started.
func (w *world) newTable(t testing.TB, cfg masquerade.Config) *masquerade.Table {
	must(t, cfg.Validate())
	table := masquerade.New(w.node.File(), cfg, slog.New(slog.NewTextHandler(t.Output(), nil)))
	t.Cleanup(func() { must(t, table.Close()) })
	return table
}

func (w *world) desired() masquerade.Desired {
	return masquerade.Desired{
		Sources: []netip.Prefix{w.node.PodIPv4, w.node.PodIPv6},
		Inside:  []netip.Prefix{netip.MustParsePrefix("10.100.0.0/16"), netip.MustParsePrefix("fd00:10::/32"), hostPrefix(w.node.IPv4), hostPrefix(w.node.IPv6)},
	}
}

func hostPrefix(addr netip.Addr) netip.Prefix { return netip.PrefixFrom(addr, addr.BitLen()) }

// nodeAddr is the address of a family.
func (w *world) nodeAddr(six int) netip.Addr { return []netip.Addr{w.node.IPv4, w.node.IPv6}[six] }

// routed has the outside know the way to the pods, so that what is not masqueraded is answered, too.
func (w *world) routed(t testing.TB) { w.node.Fabric.RoutePods(t, w.node) }

// join connects a namespace by a device with routes both ways, as a pod is connected. The router's
// device takes no packet larger than mtu: the end sends none, and no ICMP error.
func join(t testing.TB, router *testutil.Namespace, name string, addrs [2]netip.Addr, mtu int) *end {
	t.Helper()
	e := &end{Namespace: testutil.NetNS(t), addrs: addrs}
	number := byte(len(name))
	gateways := [2]netip.Addr{netip.MustParseAddr("169.254.1.1"), netip.MustParseAddr("fe80::1:1")}
	hostMAC, peerMAC := testutil.MAC(2, 1, number), testutil.MAC(2, 2, number)
	link, err := router.AddVeth(testutil.Veth{Name: name, MAC: hostMAC, Peer: e.Namespace, PeerName: "eth0", PeerMAC: peerMAC})
	must(t, err)
	index, eth0 := link.Attrs().Index, link.Attrs().ParentIndex
	must(t, router.Netlink(t).LinkSetMTU(testutil.LinkAt(index), mtu))
	must(t, e.Netlink(t).LinkSetUp(testutil.LinkAt(eth0)))
	must(t, porinlink.WaitForCarrier(t.Context(), e.Netlink(t), eth0)) // until then a first datagram may be lost
	must(t, porinlink.WaitForCarrier(t.Context(), router.Netlink(t), index))
	for i, addr := range addrs {
		must(t, e.Netlink(t).AddrAdd(testutil.LinkAt(eth0), testutil.Address(hostPrefix(addr))))
		must(t, e.Netlink(t).RouteAdd(testutil.HostRoute(eth0, gateways[i], unix.RTPROT_STATIC)))
		all := testutil.GatewayRoute(eth0, netip.PrefixFrom(addr, 0).Masked(), gateways[i])
		all.MTU, all.AdvMSS = mtu, 1500-60
		must(t, e.Netlink(t).RouteAdd(all))
		must(t, e.Netlink(t).NeighSet(testutil.PermanentNeighbour(eth0, gateways[i], hostMAC)))
		must(t, router.Netlink(t).RouteAdd(testutil.HostRoute(index, addr, unix.RTPROT_STATIC)))
		must(t, router.Netlink(t).NeighSet(testutil.PermanentNeighbour(index, addr, peerMAC)))
	}
	return e
}

// serve answers each client by TCP and UDP with the client's address and as many bytes as it got.
func serve(t testing.TB, ns *testutil.Namespace, at netip.AddrPort) {
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
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			answer(conn)
		}
	}()
	go func() {
		defer func() { done <- struct{}{} }()
		buf := make([]byte, 1<<16)
		for {
			n, from, err := packets.ReadFrom(buf)
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err == nil {
				_, _ = packets.WriteTo(append([]byte(from.String()+"\n"), buf[:n]...), from)
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

func answer(conn net.Conn) {
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(testutil.Patience))
	got, err := io.ReadAll(conn)
	if err == nil {
		_, _ = conn.Write(append([]byte(conn.RemoteAddr().String()+"\n"), got...))
	}
}

// ask sends so many bytes, wants them back, and returns who the server takes the sender for.
func ask(from *testutil.Namespace, protocol string, to netip.AddrPort, size int, timeout time.Duration) (peer netip.AddrPort, err error) {
	var conn net.Conn
	err = from.Do(func() (err error) {
		conn, err = net.DialTimeout(protocol, to.String(), timeout)
		return err
	})
	if err != nil {
		return peer, err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(timeout))
	sent := bytes.Repeat([]byte("x"), size)
	if _, err := conn.Write(sent); err != nil {
		return peer, err
	}
	got := make([]byte, 1<<17)
	n := 0
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.CloseWrite()
		n, err = io.ReadFull(conn, got)
		if errors.Is(err, io.ErrUnexpectedEOF) {
			err = nil
		}
	} else {
		n, err = conn.Read(got)
	}
	if err != nil {
		return peer, err
	}
	who, rest, _ := bytes.Cut(got[:n], []byte("\n"))
	if !bytes.Equal(rest, sent) {
		return peer, fmt.Errorf("%d bytes came back, want %d", len(rest), len(sent))
	}
	return netip.ParseAddrPort(string(who))
}

// wantPeer checks who the other one sees, by TCP and UDP.
func wantPeer(t testing.TB, from *end, to netip.AddrPort, want netip.Addr) {
	t.Helper()
	for _, protocol := range []string{"tcp", "udp"} {
		peer, err := ask(from.Namespace, protocol, to, 10, testutil.Patience)
		if err != nil {
			t.Errorf("%s to %s: %v", protocol, to, err)
		} else if peer.Addr() != want {
			t.Errorf("%s to %s: it sees %s, want %s", protocol, to, peer, want)
		}
	}
}

func family(six int) string { return []string{"IPv4", "IPv6"}[six] }

// rules writes nftables rules, as another program on the node does.
func (w *world) rules(t testing.TB, input string, program ...string) string {
	t.Helper()
	if len(program) == 0 {
		program = []string{"nft", "-f", "-"}
	}
	testutil.NeedPrograms(t, program[0])
	var out, stderr bytes.Buffer
	cmd := exec.Command(program[0], program[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader([]byte(input)), &out, &stderr
	must(t, w.node.Do(cmd.Start))
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v: %v: %s\n%s", program, err, stderr.String(), input)
	}
	return out.String()
}

func (w *world) list(t testing.TB) string { return w.rules(t, "", "nft", "-y", "list", "ruleset") }
