package e2e

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"porin.dev/porin/internal/testutil"
)

// forged is a frame that a container may not send, and the reason under which it is counted.
type forged struct {
	name, reason string
	frame        []byte
}

// forgeries are sent by a, whose wire w is, to b.
func forgeries(r *rig, w *wire, a, b pod) []forged {
	alien := *w
	alien.pod = net.HardwareAddr{2, 0xde, 0xad, 0, 0, 1}
	broadcast := *w
	broadcast.gw = layers.EthernetBroadcast
	vlan := &layers.Dot1Q{VLANIdentifier: 7, Type: layers.EthernetTypeIPv4}
	inside := ip4(a.ipv4, b.ipv4, layers.IPProtocolUDP)
	tagged := append([]gopacket.SerializableLayer{w.eth(layers.EthernetTypeDot1Q), vlan, inside}, udp(inside, "tagged")...)
	who := &layers.ARP{
		AddrType: layers.LinkTypeEthernet, Protocol: layers.EthernetTypeIPv4, HwAddressSize: 6, ProtAddressSize: 4, Operation: layers.ARPRequest,
		SourceHwAddress: w.pod, SourceProtAddress: a.ipv4.AsSlice(), DstHwAddress: make([]byte, 6), DstProtAddress: b.ipv4.AsSlice(),
	}
	truncated := w.udp4(a.ipv4, b.ipv4, "truncated")
	return []forged{
		{"another MAC, IPv4", "spoofed-mac", alien.udp4(a.ipv4, b.ipv4, "mac4")},
		{"another MAC, IPv6", "spoofed-mac", alien.udp6(a.ipv6, b.ipv6, "mac6")},
		{"the receiver's IPv4 address", "spoofed-address", w.udp4(b.ipv4, b.ipv4, "own4")},
		{"the receiver's IPv6 address", "spoofed-address", w.udp6(b.ipv6, b.ipv6, "own6")},
		{"the node's IPv4 address", "spoofed-address", w.udp4(r.node.IPv4, b.ipv4, "node4")},
		{"the node's IPv6 address", "spoofed-address", w.udp6(r.node.IPv6, b.ipv6, "node6")},
		{"an IPv4 address of the world outside", "spoofed-address", w.udp4(testutil.OutsideIPv4, b.ipv4, "out4")},
		{"a loopback address as source", "loopback", w.udp4(netip.AddrFrom4([4]byte{127, 0, 0, 1}), b.ipv4, "loopback")},
		{"the receiver's IPv4-mapped address", "mapped-address", w.udp6(a.ipv6, netip.AddrFrom16(b.ipv4.As16()), "mapped")},
		{"its own IPv4-mapped address", "mapped-address", w.udp6(netip.AddrFrom16(a.ipv4.As16()), b.ipv6, "mapped source")},
		{"a VLAN tag", "protocol", w.frame(tagged...)},
		{"an ethertype of no router", "protocol", w.frame(w.eth(layers.EthernetTypeLinkLayerDiscovery), gopacket.Payload("hello, neighbour"))},
		{"ARP", "arp", broadcast.frame(broadcast.eth(layers.EthernetTypeARP), who)},
		{"a packet that ends too early", "malformed", truncated[:30]},
	}
}

func TestForgedFrames(t *testing.T) {
	r := newRig(t)
	a, b := r.pod(), r.pod()
	from, to := r.wire(a), r.wire(b)
	const n = 3
	for _, f := range forgeries(r, from, a, b) {
		t.Run(f.name, func(t *testing.T) {
			before := r.drops(a)[f.reason]
			for range n {
				from.send(f.frame)
			}
			testutil.Eventually(t, func() error {
				if now := r.drops(a)[f.reason]; now != before+n {
					return fmt.Errorf("%d dropped as %s, want %d", now-before, f.reason, n)
				}
				return nil
			})
			// Its own frame arrives, and none before it.
			for _, honest := range [][]byte{from.udp4(a.ipv4, b.ipv4, f.name), from.udp6(a.ipv6, b.ipv6, f.name)} {
				from.send(honest)
				if _, others := to.until(carries(f.name)); others > 0 {
					t.Errorf("the other container got %d other frames", others)
				}
			}
		})
	}
	if drops := r.drops(b); drops["wrong-destination"] > 0 || drops["malformed"] > 0 {
		t.Errorf("drops of the receiver: %v", drops)
	}
}

func TestFramesToOtherMAC(t *testing.T) {
	r := newRig(t)
	a, b := r.pod(), r.pod()
	from, to := r.wire(a), r.wire(b)
	around := *from
	around.gw = to.pod // as if both were on one link
	around.send(around.udp4(a.ipv4, b.ipv4, "around"))
	around.send(around.udp6(a.ipv6, b.ipv6, "around"))
	from.send(from.udp4(a.ipv4, b.ipv4, "by the gateway"))
	if _, others := to.until(carries("by the gateway")); others > 0 {
		t.Errorf("%d other frames arrived", others)
	}
}

// kube-proxy sets route_localnet for node ports on 127.0.0.1. What listens there is meant for the node alone.
func TestPodCannotReachNodeLoopback(t *testing.T) {
	r := newRig(t)
	r.node.Sysctl(t, "net/ipv4/conf/all/route_localnet", "1")
	a := r.pod()
	from := r.wire(a)
	var server net.PacketConn
	err := r.node.Do(func() (err error) {
		server, err = net.ListenPacket("udp4", "127.0.0.1:9")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	from.send(from.udp4(a.ipv4, netip.AddrFrom4([4]byte{127, 0, 0, 1}), "to the node's loopback"))
	_ = server.SetReadDeadline(time.Now().Add(unreachable))
	var received [64]byte
	if n, sender, err := server.ReadFrom(received[:]); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("127.0.0.1 of the node got %q from %v, error %v", received[:n], sender, err)
	}
	if got := r.drops(a)["loopback"]; got != 1 {
		t.Errorf("%d packets were counted as loopback, want 1", got)
	}
}

// drops counts what the endpoint was not let do, by reason.
func (r *rig) drops(p pod) map[string]uint64 {
	r.Helper()
	ep, err := r.api.Endpoint(context.Background(), "container-id:"+p.ID)
	if err != nil || ep.Traffic == nil {
		r.Fatalf("endpoint %+v, %v", ep, err)
	}
	return ep.Traffic.Drops
}
