package bpf_test

import (
	"net/netip"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"porin.dev/porin/bpf/abi"
)

// unreachable is the ICMP error "port unreachable" about a frame, from src to dst.
func unreachable(srcMAC, dstMAC []byte, src, dst netip.Addr, about []byte) []byte {
	quoted := gopacket.Payload(about[14:])
	if src.Is4() {
		network, typ := network(src, dst, layers.IPProtocolICMPv4)
		return frame(ether(srcMAC, dstMAC, typ), network, &layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(3, 3)}, quoted)
	}
	network, typ := network(src, dst, layers.IPProtocolICMPv6)
	message := &layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(1, 4)}
	_ = message.SetNetworkLayerForChecksum(network.(gopacket.NetworkLayer))
	return frame(ether(srcMAC, dstMAC, typ), network, message, gopacket.Payload(make([]byte, 4)), quoted)
}

// TestICMPErrorPath: an error takes the path of the connection that it is about.
func TestICMPErrorPath(t *testing.T) {
	f := load(t)
	for _, row := range []struct {
		name   string
		before func(t *testing.T, l life)
		want   uint32
	}{
		{"about a datagram that took the shortcut", func(t *testing.T, l life) { l.send(t, packet{"alice", datagram, deliver}) }, deliver},
		{"about a datagram that came through the stack", func(t *testing.T, l life) { l.send(t, packet{"alice by stack", datagram, toStack}) }, toStack},
		{"about a datagram of which only the node's conntrack knows", func(t *testing.T, l life) { l.known(t, l.alice, l.bob, l.alice) }, toStack},
		{"about a datagram of which nobody knows", func(*testing.T, life) {}, deliver},
		{"when only the sender's entry of the shortcut is left", func(t *testing.T, l life) {
			l.send(t, packet{"alice", datagram, deliver})
			_, there := l.keys()
			l.forget(t, there)
		}, deliver},
	} {
		for _, family := range []string{"IPv4", "IPv6"} {
			t.Run(row.name+", "+family, func(t *testing.T) {
				l := newLife(f, family == "IPv6", true)
				f.reset(t)
				l.flushConntrack(t)
				row.before(t, l)
				before := len(f.connections(t))
				about := l.frame(f.alice.mac, f.alice.hostMAC, l.alice, l.bob, nil)
				in := unreachable(f.bob.mac, f.bob.hostMAC, l.bob.Addr(), l.alice.Addr(), about)
				if verdict, _ := f.run(t, f.objects.FromPod, f.bob, in); verdict != row.want {
					t.Errorf("verdict %d, want %d", verdict, row.want)
				}
				if after := len(f.connections(t)); after != before {
					t.Errorf("%d entries, before the error there were %d", after, before)
				}
			})
		}
	}
}

// TestICMPErrorToPod: errors of routers reach the pod, whatever address they have.
func TestICMPErrorToPod(t *testing.T) {
	f := load(t)
	f.reset(t)
	l := newLife(f, false, true)
	about := l.frame(f.alice.mac, f.alice.hostMAC, l.alice, netip.AddrPortFrom(outside.ip4, 53), nil)
	in := unreachable(f.alice.hostMAC, f.alice.mac, addr("192.0.2.7"), l.alice.Addr(), about)
	if verdict, _ := f.run(t, f.objects.ToPod, f.alice, in); verdict != toStack {
		t.Errorf("verdict %d, want %d", verdict, toStack)
	}
	if n := len(f.connections(t)); n != 0 {
		t.Errorf("%d entries, want none for an error", n)
	}
}

// TestICMPErrorForSomebodyElse: an error goes to who sent what it is about, so another one is made up.
func TestICMPErrorForSomebodyElse(t *testing.T) {
	f := load(t)
	f.reset(t)
	about := udp(f.bob, f.bob.ip4, outside.ip4, 64)
	in := unreachable(f.alice.mac, f.alice.hostMAC, f.alice.ip4, f.eve.ip4, about)
	if verdict, _ := f.run(t, f.objects.FromPod, f.alice, in); verdict != dropped {
		t.Errorf("verdict %d, want %d", verdict, dropped)
	}
	if n := f.traffic(t, f.alice.id).Drops[abi.DropMalformed]; n != 1 {
		t.Errorf("counted %d malformed packets, want 1", n)
	}
}

// TestICMPErrorSpoofed: the sender of an error has to be the pod itself.
func TestICMPErrorSpoofed(t *testing.T) {
	f := load(t)
	f.reset(t)
	l := newLife(f, false, true)
	l.send(t, packet{"alice", datagram, deliver})
	about := l.frame(f.alice.mac, f.alice.hostMAC, l.alice, l.bob, nil)
	in := unreachable(f.bob.mac, f.bob.hostMAC, outside.ip4, l.alice.Addr(), about)
	if verdict, _ := f.run(t, f.objects.FromPod, f.bob, in); verdict != dropped {
		t.Errorf("verdict %d, want %d", verdict, dropped)
	}
}
