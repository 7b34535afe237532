package e2e

import (
	"net/netip"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
)

// hops reads the TTL or hop limit.
func hops(p gopacket.Packet) uint8 {
	switch ip := p.NetworkLayer().(type) {
	case *layers.IPv4:
		return ip.TTL
	case *layers.IPv6:
		return ip.HopLimit
	}
	return 0
}

// withHops is a datagram from a to b that has so many hops left.
func (w *wire) withHops(a, b pod, six bool, n uint8, payload string) []byte {
	if six {
		ip := ip6(a.ipv6, b.ipv6, layers.IPProtocolUDP)
		ip.HopLimit = n
		return w.frame(append([]gopacket.SerializableLayer{w.eth(layers.EthernetTypeIPv6), ip}, udp(ip, payload)...)...)
	}
	ip := ip4(a.ipv4, b.ipv4, layers.IPProtocolUDP)
	ip.TTL = n
	return w.frame(append([]gopacket.SerializableLayer{w.eth(layers.EthernetTypeIPv4), ip}, udp(ip, payload)...)...)
}

func TestLocalDeliveryHops(t *testing.T) {
	r := newRig(t)
	a, b := r.pod(), r.pod()
	from, to := r.wire(a), r.wire(b)
	for _, six := range []bool{false, true} {
		for _, sent := range []uint8{64, 2, 255} {
			from.send(from.withHops(a, b, six, sent, "hop"))
			packet, _ := to.until(carries("hop"))
			if got := hops(packet); got != sent-1 {
				t.Errorf("IPv6 %v: %d hops left of %d", six, got, sent)
			}
			eth := packet.LinkLayer().(*layers.Ethernet)
			if eth.DstMAC.String() != to.pod.String() || eth.SrcMAC.String() != to.gw.String() {
				t.Errorf("IPv6 %v: the frame goes from %s to %s, want %s to %s", six, eth.SrcMAC, eth.DstMAC, to.gw, to.pod)
			}
			if ip, ok := packet.NetworkLayer().(*layers.IPv4); ok && ip.Checksum != checksumOf(t, ip) {
				t.Errorf("checksum %#x, want %#x", ip.Checksum, checksumOf(t, ip))
			}
		}
	}
}

// checksumOf is what the header's checksum should be.
func checksumOf(t *testing.T, ip *layers.IPv4) uint16 {
	t.Helper()
	buffer, right := gopacket.NewSerializeBuffer(), *ip
	if err := right.SerializeTo(buffer, gopacket.SerializeOptions{ComputeChecksums: true}); err != nil {
		t.Fatal(err)
	}
	return right.Checksum
}

func TestHopLimitExceeded(t *testing.T) {
	r := newRig(t)
	a, b := r.pod(), r.pod()
	from, to := r.wire(a), r.wire(b)
	from.send(from.withHops(a, b, false, 1, "last hop"))
	exceeded, _ := from.until(func(p gopacket.Packet) bool {
		icmp, ok := p.Layer(layers.LayerTypeICMPv4).(*layers.ICMPv4)
		return ok && icmp.TypeCode == layers.CreateICMPv4TypeCode(layers.ICMPv4TypeTimeExceeded, layers.ICMPv4CodeTTLExceeded)
	})
	isFrom(t, exceeded, r.node.IPv4)
	from.send(from.withHops(a, b, true, 1, "last hop"))
	exceeded, _ = from.until(func(p gopacket.Packet) bool {
		icmp, ok := p.Layer(layers.LayerTypeICMPv6).(*layers.ICMPv6)
		return ok && icmp.TypeCode == layers.CreateICMPv6TypeCode(layers.ICMPv6TypeTimeExceeded, layers.ICMPv6CodeHopLimitExceeded)
	})
	isFrom(t, exceeded, r.node.IPv6)
	from.send(from.withHops(a, b, false, 2, "one before"))
	if _, others := to.until(carries("one before")); others > 0 {
		t.Errorf("%d frames arrived without a hop left", others)
	}
}

func isFrom(t *testing.T, p gopacket.Packet, want netip.Addr) {
	t.Helper()
	if got, _ := netip.AddrFromSlice(p.NetworkLayer().NetworkFlow().Src().Raw()); got != want {
		t.Errorf("the answer is from %s, want %s", got, want)
	}
}
