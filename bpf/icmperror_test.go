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
		before func(t *testing.T, l conversation)
		want   uint32
	}{
		{"about a datagram that took the shortcut", func(t *testing.T, l conversation) { l.send(t, packet{"alice", datagram, deliver}) }, deliver},
		{"about a datagram that came through the stack", func(t *testing.T, l conversation) { l.send(t, packet{"alice by stack", datagram, toStack}) }, toStack},
		{"about a datagram of which only the node's conntrack knows", func(t *testing.T, l conversation) { l.addToConntrack(t, l.alice, l.bob, l.alice) }, toStack},
		{"about a datagram of which nobody knows", func(*testing.T, conversation) {}, deliver},
		{"when only the sender's entry of the shortcut is left", func(t *testing.T, l conversation) {
			l.send(t, packet{"alice", datagram, deliver})
			_, there := l.keys()
			l.loseEntry(t, there)
		}, deliver},
	} {
		for _, family := range []string{"IPv4", "IPv6"} {
			t.Run(row.name+", "+family, func(t *testing.T) {
				l := newConversation(f, family == "IPv6", true)
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
	l := newConversation(f, false, true)
	about := l.frame(f.alice.mac, f.alice.hostMAC, l.alice, netip.AddrPortFrom(outside.ip4, 53), nil)
	in := unreachable(f.alice.hostMAC, f.alice.mac, addr("192.0.2.7"), l.alice.Addr(), about)
	if verdict, _ := f.run(t, f.objects.ToPod, f.alice, in); verdict != toStack {
		t.Errorf("verdict %d, want %d", verdict, toStack)
	}
	if n := len(f.connections(t)); n != 0 {
		t.Errorf("%d entries, want none for an error", n)
	}
}

// TestICMPErrorForged: a pod may only report errors about packets that were sent to it, to their sender, under its own
// address.
func TestICMPErrorForged(t *testing.T) {
	f := load(t)
	l := newConversation(f, false, true)
	toBob := l.frame(f.alice.mac, f.alice.hostMAC, l.alice, l.bob, nil)
	toOutside := l.frame(f.alice.mac, f.alice.hostMAC, l.alice, netip.AddrPortFrom(outside.ip4, 53), nil)
	for _, row := range []struct {
		name     string
		src, dst netip.Addr
		about    []byte
		reason   abi.DropReason
	}{
		{"about a packet to another host", f.bob.ip4, l.alice.Addr(), toOutside, abi.DropMalformed},
		{"to another pod than the sender of the packet", f.bob.ip4, f.eve.ip4, toBob, abi.DropMalformed},
		{"under another address", outside.ip4, l.alice.Addr(), toBob, abi.DropMalformed},
	} {
		t.Run(row.name, func(t *testing.T) {
			f.reset(t)
			l.send(t, packet{"alice", datagram, deliver})
			in := unreachable(f.bob.mac, f.bob.hostMAC, row.src, row.dst, row.about)
			if verdict, _ := f.run(t, f.objects.FromPod, f.bob, in); verdict != dropped {
				t.Errorf("verdict %d, want %d", verdict, dropped)
			}
			if n := f.traffic(t, f.bob.id).Drops[row.reason]; n != 1 {
				t.Errorf("counted %d packets as %s, want 1", n, row.reason)
			}
		})
	}
}
