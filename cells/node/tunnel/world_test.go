package tunnel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"path/filepath"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"porin.dev/porin/bpf/abi"
	porinlink "porin.dev/porin/cells/link"
	"porin.dev/porin/internal/testutil"
)

func addr(text string) netip.Addr     { return netip.MustParseAddr(text) }
func prefix(text string) netip.Prefix { return netip.MustParsePrefix(text) }

// The cast: this node, two others, and a host on their link that is no node.
var (
	here     = []netip.Addr{addr("192.0.2.1"), addr("2001:db8::1")}
	peer     = []netip.Addr{addr("192.0.2.2"), addr("2001:db8::2")}
	other    = []netip.Addr{addr("192.0.2.3"), addr("2001:db8::3")}
	stranger = []netip.Addr{addr("192.0.2.9"), addr("2001:db8::9")}
	ofDevice = []netip.Addr{addr("10.1.0.1"), addr("fd01::1")}
)

const port = 8472

// world is the node with its tunnel, and the machine at the other end of its link, which has the addresses of all
// others.
type world struct {
	*testing.T
	node, remote *testutil.Namespace
	tunnel       *Tunnel
	received     *net.UDPConn // in the node, at the device's addresses
	port         uint16       // of it
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{T: t, node: testutil.NetNS(t), remote: testutil.NetNS(t)}
	link, err := w.node.AddVeth(testutil.Veth{Name: "eth0", MAC: testutil.MAC(2, 0, 0, 0, 0, 1), Peer: w.remote, PeerName: "eth0", PeerMAC: testutil.MAC(2, 0, 0, 0, 0, 2)})
	if err != nil {
		t.Fatal(err)
	}
	give := func(ns *testutil.Namespace, index int, addrs ...netip.Addr) {
		err := errors.Join(ns.Netlink(t).LinkSetUp(testutil.LinkAt(index)), ns.Netlink(t).LinkSetUp(testutil.LinkAt(1)))
		for _, a := range addrs {
			bits := 24
			if a.Is6() {
				bits = 64
			}
			one := testutil.Address(netip.PrefixFrom(a, bits))
			one.Flags &^= unix.IFA_F_NOPREFIXROUTE
			err = errors.Join(err, ns.Netlink(t).AddrAdd(testutil.LinkAt(index), one))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	give(w.node, link.Attrs().Index, here...)
	give(w.remote, link.Attrs().ParentIndex, append(append(append([]netip.Addr{}, peer...), other...), stranger...)...)
	for ns, index := range map[*testutil.Namespace]int{w.node: link.Attrs().Index, w.remote: link.Attrs().ParentIndex} {
		if err := porinlink.WaitForCarrier(t.Context(), ns.Netlink(t), index); err != nil {
			t.Fatal(err)
		}
	}
	w.tunnel = w.open(filepath.Join(testutil.BPFFS(t), "porin"))
	w.listen()
	return w
}

func (w *world) open(root string) *Tunnel {
	w.Helper()
	tunnel := New(Config{BPFRoot: root, Port: port}, w.node.Netlink(w), w.node.File(), slog.New(slog.NewTextHandler(w.Output(), nil)))
	w.Cleanup(func() {
		if err := tunnel.Close(); err != nil {
			w.Error(err)
		}
	})
	return tunnel
}

// desired has packets to the peer sent from the local address.
func desired(local netip.Addr) Desired {
	d := Desired{MTU: 1430, Addresses: ofDevice, Owners: map[netip.Prefix]Owner{
		prefix("10.1.0.0/24"): {Pods: true}, prefix("fd01::/64"): {Pods: true},
		prefix("10.2.0.0/24"): {Addresses: peer, Local: local, Pods: true}, prefix("fd02::/64"): {Addresses: peer, Local: local, Pods: true},
		prefix("10.3.0.0/24"): {Addresses: other, Local: local, Pods: true}, prefix("fd03::/64"): {Addresses: other, Local: local, Pods: true},
	}}
	for _, a := range here {
		d.Owners[netip.PrefixFrom(a, a.BitLen())] = Owner{}
	}
	for _, node := range [][]netip.Addr{peer, other} {
		for _, a := range node {
			d.Owners[netip.PrefixFrom(a, a.BitLen())] = Owner{Addresses: node, Local: local}
		}
	}
	return d
}

// apply makes the tunnel, and the routes to the peers' blocks.
func (w *world) apply(d Desired) (index int) {
	w.Helper()
	index, err := w.tunnel.Apply(d)
	if err != nil {
		w.Fatal(err)
	}
	for _, a := range d.Addresses {
		testutil.Eventually(w, func() error { // addrconf of the kernel makes the local route of an IPv6 address later, on a work queue
			routes, err := w.node.Netlink(w).RouteGet(a.AsSlice())
			if err == nil && (len(routes) != 1 || routes[0].Type != unix.RTN_LOCAL) {
				err = fmt.Errorf("no local route of %s, but %v", a, routes)
			}
			return err
		})
	}
	for p := range d.Owners {
		if p.IsSingleIP() || d.Owners[p].Addresses == nil {
			continue
		}
		via := addr("169.254.1.1")
		if p.Addr().Is6() {
			via = addr("fe80::1")
		}
		route := testutil.GatewayRoute(index, p, via)
		route.Flags = int(netlink.FLAG_ONLINK)
		if err := w.node.Netlink(w).RouteReplace(route); err != nil {
			w.Fatal(err)
		}
	}
	return index
}

func (w *world) listen() {
	w.Helper()
	err := w.node.Do(func() (err error) {
		w.received, err = net.ListenUDP("udp", &net.UDPAddr{})
		return err
	})
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { _ = w.received.Close() })
	w.port = uint16(w.received.LocalAddr().(*net.UDPAddr).Port)
}

// inner is a datagram in a frame to the device.
func (w *world) inner(src, dst netip.Addr, text string) []byte {
	udp := &layers.UDP{SrcPort: 1024, DstPort: layers.UDPPort(w.port)}
	ether := &layers.Ethernet{SrcMAC: testutil.MAC(2, 0, 0, 0, 0, 9), DstMAC: MAC, EthernetType: layers.EthernetTypeIPv4}
	if src.Is4() {
		ip := &layers.IPv4{Version: 4, TTL: 64, Protocol: layers.IPProtocolUDP, SrcIP: src.AsSlice(), DstIP: dst.AsSlice()}
		_ = udp.SetNetworkLayerForChecksum(ip)
		return frame(ether, ip, udp, gopacket.Payload(text))
	}
	ether.EthernetType = layers.EthernetTypeIPv6
	ip := &layers.IPv6{Version: 6, HopLimit: 64, NextHeader: layers.IPProtocolUDP, SrcIP: src.AsSlice(), DstIP: dst.AsSlice()}
	_ = udp.SetNetworkLayerForChecksum(ip)
	return frame(ether, ip, udp, gopacket.Payload(text))
}

func frame(all ...gopacket.SerializableLayer) []byte {
	buf := gopacket.NewSerializeBuffer()
	if err := gopacket.SerializeLayers(buf, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, all...); err != nil {
		panic(err)
	}
	return buf.Bytes()
}

// send has the remote machine send a frame in a tunnel to the node, with an address of its own as the outer source.
func (w *world) send(from netip.Addr, network uint32, frame []byte) {
	w.Helper()
	to := here[0]
	if from.Is6() {
		to = here[1]
	}
	w.sendTo(to, from, network, frame)
}

func (w *world) sendTo(to, from netip.Addr, network uint32, frame []byte) {
	w.Helper()
	header := binary.BigEndian.AppendUint32([]byte{0x08, 0, 0, 0}, network<<8)
	testutil.Eventually(w, func() error { // an address of IPv6 is looked for duplicates first
		return w.remote.Do(func() error {
			c, err := net.DialUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(from, 0)), net.UDPAddrFromAddrPort(netip.AddrPortFrom(to, port)))
			if err != nil {
				return err
			}
			defer c.Close()
			_, err = c.Write(append(header, frame...))
			return err
		})
	})
}

// receives wants the next datagram that reaches the node's stack to have the text.
func (w *world) receives(what, text string) {
	w.Helper()
	buf := make([]byte, 2048)
	_ = w.received.SetReadDeadline(time.Now().Add(testutil.Patience))
	n, _, err := w.received.ReadFrom(buf)
	if err != nil || string(buf[:n]) != text {
		w.Errorf("%s: received %q, %v, want %q", what, buf[:n], err, text)
	}
}

// drops are the counters of from_tunnel.
func (w *world) drops() (byReason map[string]uint64) {
	w.Helper()
	sum, err := w.tunnel.Drops()
	if err != nil {
		w.Fatal(err)
	}
	byReason = map[string]uint64{}
	for _, reason := range abi.TunnelDropReasons() {
		byReason[reason.String()] = sum.FromTunnel[reason]
	}
	return byReason
}
