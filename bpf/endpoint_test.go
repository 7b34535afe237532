package bpf_test

import (
	"testing"

	"github.com/cilium/ebpf"
	"github.com/google/go-cmp/cmp"
	"github.com/gopacket/gopacket/layers"

	"porin.dev/porin/bpf/abi"
)

// The verdicts of lib/verdict.h.
const (
	toStack = 0
	dropped = 2
	deliver = 7
	toNext  = ^uint32(0) // on with the next filter of the device
)

// row is one packet and what becomes of it.
type row struct {
	name    string
	in      []byte
	verdict uint32
	drop    abi.DropReason // counted once at alice's
}

// fromPod are packets that come by alice's link.
func fromPod() []row {
	a, b := alice, bob
	broadcast, multicast := addr("255.255.255.255"), addr("224.0.0.251")
	return []row{
		{"a pod of this node is delivered to, IPv4", udp(a, a.ip4, b.ip4, 64), deliver, 0},
		{"a pod of this node is delivered to, IPv6", udp(a, a.ip6, b.ip6, 64), deliver, 0},
		{"ICMP is delivered", icmp(a, a.ip4, b.ip4), deliver, 0},
		{"ICMPv6 is delivered", icmp(a, a.ip6, b.ip6), deliver, 0},
		{"an unknown destination is for the stack, IPv4", udp(a, a.ip4, outside.ip4, 64), toStack, 0},
		{"an unknown destination is for the stack, IPv6", udp(a, a.ip6, outside.ip6, 64), toStack, 0},
		{"a metadata service is for the stack", udp(a, a.ip4, addr("169.254.169.254"), 64), toStack, 0},

		{"the last hop but one is delivered, IPv4", udp(a, a.ip4, b.ip4, 2), deliver, 0},
		{"the last hop but one is delivered, IPv6", udp(a, a.ip6, b.ip6, 2), deliver, 0},
		{"the last hop is for the stack to answer, IPv4", udp(a, a.ip4, b.ip4, 1), toStack, 0},
		{"the last hop is for the stack to answer, IPv6", udp(a, a.ip6, b.ip6, 1), toStack, 0},
		{"no hop is for the stack to answer, IPv4", udp(a, a.ip4, b.ip4, 0), toStack, 0},
		{"no hop is for the stack to answer, IPv6", udp(a, a.ip6, b.ip6, 0), toStack, 0},
		{"options are for the stack to read", routerAlert(a, b.ip4), toStack, 0},
		{"a hop-by-hop header is for the stack to read", hopByHop(a, b.ip6), toStack, 0},
		{"a frame to somebody else is for the stack to ignore", udpFrom(a.mac, b.hostMAC, a.ip4, b.ip4, 64), toStack, 0},
		{"a broadcast frame is for the stack to ignore", udpFrom(a.mac, layers.EthernetBroadcast, a.ip4, b.ip4, 64), toStack, 0},
		{"link padding may follow", append(udp(a, a.ip4, b.ip4, 64), 0, 0, 0, 0), deliver, 0},

		{"a spoofed MAC is dropped, IPv4", udpFrom(b.mac, a.hostMAC, a.ip4, b.ip4, 64), dropped, abi.DropSpoofedMAC},
		{"a spoofed MAC is dropped, IPv6", udpFrom(b.mac, a.hostMAC, a.ip6, b.ip6, 64), dropped, abi.DropSpoofedMAC},
		{"a MAC spoofed in its first byte is dropped", mangle(udp(a, a.ip4, b.ip4, 64), 6, 6), dropped, abi.DropSpoofedMAC},
		{"a MAC spoofed in its third byte is dropped", mangle(udp(a, a.ip4, b.ip4, 64), 8, 6), dropped, abi.DropSpoofedMAC},
		{"a spoofed address is dropped, IPv4", udp(a, b.ip4, outside.ip4, 64), dropped, abi.DropSpoofedAddress},
		{"a spoofed address is dropped, IPv6", udp(a, b.ip6, outside.ip6, 64), dropped, abi.DropSpoofedAddress},

		{"a loopback destination is dropped, IPv4", udp(a, a.ip4, addr("127.0.0.1"), 64), dropped, abi.DropLoopback},
		{"the last loopback destination is dropped, IPv4", udp(a, a.ip4, addr("127.255.255.255"), 64), dropped, abi.DropLoopback},
		{"a loopback destination is dropped, IPv6", udp(a, a.ip6, addr("::1"), 64), dropped, abi.DropLoopback},
		{"a loopback source is dropped, IPv4", udp(a, addr("127.0.0.1"), b.ip4, 64), dropped, abi.DropLoopback},
		{"a loopback source is dropped, IPv6", udp(a, addr("::1"), b.ip6, 64), dropped, abi.DropLoopback},
		{"the address before loopback is for the stack", udp(a, a.ip4, addr("126.255.255.255"), 64), toStack, 0},
		{"the address after loopback is for the stack", udp(a, a.ip4, addr("128.0.0.0"), 64), toStack, 0},
		{"another pod's IPv4-mapped address as destination is dropped", udp(a, a.ip6, addr("::ffff:10.0.0.2"), 64), dropped, abi.DropMappedAddress},
		{"an unknown IPv4-mapped destination is dropped", udp(a, a.ip6, addr("::ffff:198.51.100.1"), 64), dropped, abi.DropMappedAddress},
		{"an IPv4-mapped loopback destination is dropped", udp(a, a.ip6, addr("::ffff:127.0.0.1"), 64), dropped, abi.DropMappedAddress},
		{"its own IPv4-mapped address as source is dropped", udp(a, addr("::ffff:10.0.0.1"), b.ip6, 64), dropped, abi.DropMappedAddress},
		{"a spoofed MAC comes before a loopback destination", udpFrom(b.mac, a.hostMAC, a.ip4, addr("127.0.0.1"), 64), dropped, abi.DropSpoofedMAC},

		{"ARP for the gateway is denied", arp(a, gateway.ip4), dropped, abi.DropARP},
		{"ARP for a pod is denied", arp(a, b.ip4), dropped, abi.DropARP},
		{"a VLAN tag is dropped", vlan(a), dropped, abi.DropProtocol},
		{"LLDP is dropped", frame(ether(a.mac, a.hostMAC, layers.EthernetTypeLinkLayerDiscovery)), dropped, abi.DropProtocol},

		{"the IPv4 gateway has no services", icmp(a, a.ip4, gateway.ip4), dropped, abi.DropLinkLocal},
		{"the IPv6 gateway has no services", icmp(a, a.ip6, gateway.ip6), dropped, abi.DropLinkLocal},
		{"DHCP is noise", udp(a, addr("0.0.0.0"), broadcast, 64), dropped, abi.DropLinkLocal},
		{"a DHCP request is noise", broadcastUDP(a, addr("0.0.0.0"), everybody.ip4, 68, 67), dropped, abi.DropLinkLocal},
		{"mDNS is noise", udp(a, a.ip4, multicast, 1), dropped, abi.DropLinkLocal},
		{"a self-assigned IPv4 address is noise", udp(a, addr("169.254.7.7"), outside.ip4, 64), dropped, abi.DropLinkLocal},
		{"router solicitation is noise", icmp6(a, addr("fe80::a"), addr("ff02::2"), layers.ICMPv6TypeRouterSolicitation), dropped, abi.DropLinkLocal},
		{"duplicate detection is noise", icmp6(a, addr("::"), addr("ff02::1:ff00:1"), layers.ICMPv6TypeNeighborSolicitation), dropped, abi.DropLinkLocal},
		{"neighbour solicitation is noise", icmp6(a, a.ip6, addr("ff02::1:ff00:1"), layers.ICMPv6TypeNeighborSolicitation), dropped, abi.DropLinkLocal},
		{"MLD is noise", icmp6(a, addr("fe80::a"), addr("ff02::16"), layers.ICMPv6TypeMLDv2MulticastListenerReportMessageV2), dropped, abi.DropLinkLocal},
		{"multicast beyond the link is dropped, IPv4", udp(a, a.ip4, addr("239.1.1.1"), 64), dropped, abi.DropMulticast},
		{"the first address after the groups of a link is multicast", udp(a, a.ip4, addr("224.0.1.0"), 64), dropped, abi.DropMulticast},
		{"the last group is multicast", udp(a, a.ip4, addr("239.255.255.255"), 64), dropped, abi.DropMulticast},
		{"an address after the groups is none", udp(a, a.ip4, addr("240.0.0.1"), 64), toStack, 0},
		{"multicast beyond the link is dropped, IPv6", udp(a, a.ip6, addr("ff05::1"), 64), dropped, abi.DropMulticast},
		{"multicast of all scopes is dropped, IPv6", udp(a, a.ip6, addr("ff3e::8000:1"), 64), dropped, abi.DropMulticast},
		{"multicast from a spoofed address is the worse", udp(a, b.ip4, addr("239.1.1.1"), 64), dropped, abi.DropSpoofedAddress},
		{"interface-local multicast is noise", udp(a, a.ip6, addr("ff01::1"), 64), dropped, abi.DropLinkLocal},

		{"zeroes after the link header are dropped", frame(ether(a.mac, a.hostMAC, layers.EthernetTypeIPv4)), dropped, abi.DropMalformed},
		{"a truncated IPv4 packet is dropped", udp(a, a.ip4, b.ip4, 64)[:40], dropped, abi.DropMalformed},
		{"a truncated IPv6 packet is dropped", udp(a, a.ip6, b.ip6, 64)[:60], dropped, abi.DropMalformed},
		{"IPv6 that says it is IPv4 is dropped", mangle(udp(a, a.ip4, b.ip4, 64), 14, 0x65), dropped, abi.DropMalformed},
		{"IPv4 that says it is IPv6 is dropped", mangle(udp(a, a.ip6, b.ip6, 64), 14, 0x40), dropped, abi.DropMalformed},
		{"a header shorter than a header is dropped", mangle(udp(a, a.ip4, b.ip4, 64), 14, 0x44), dropped, abi.DropMalformed},
		{"a header longer than the packet is dropped", mangle(udp(a, a.ip4, b.ip4, 64), 14, 0x4f), dropped, abi.DropMalformed},
		{"a total shorter than the header is dropped", mangle(udp(a, a.ip4, b.ip4, 64), 16, 0, 19), dropped, abi.DropMalformed},
	}
}

// toPod are packets that the node sends down alice's link.
func toPod() []row {
	a, host := alice, party{mac: alice.hostMAC, hostMAC: alice.mac}
	return []row{
		{"its own address, IPv4", udp(host, outside.ip4, a.ip4, 64), toStack, 0},
		{"its own address, IPv6", udp(host, outside.ip6, a.ip6, 64), toStack, 0},
		{"ICMPv6 from the host end itself", udp(host, addr("fe80::1a"), a.ip6, 64), toStack, 0},
		{"the last hop was the node's to count", udp(host, outside.ip4, a.ip4, 1), toStack, 0},
		{"options are the pod's to read", routerAlert(party{mac: a.hostMAC, hostMAC: a.mac, ip4: outside.ip4}, a.ip4), toStack, 0},
		{"another pod's address, IPv4", udp(host, outside.ip4, bob.ip4, 64), dropped, abi.DropWrongDestination},
		{"another pod's address, IPv6", udp(host, outside.ip6, bob.ip6, 64), dropped, abi.DropWrongDestination},
		{"its own IPv4-mapped address", udp(host, outside.ip6, addr("::ffff:10.0.0.1"), 64), dropped, abi.DropMappedAddress},
		{"an IPv4-mapped source", udp(host, addr("::ffff:198.51.100.1"), a.ip6, 64), dropped, abi.DropMappedAddress},
		{"a loopback destination, IPv4", udp(host, outside.ip4, addr("127.0.0.1"), 64), dropped, abi.DropLoopback},
		{"a loopback destination, IPv6", udp(host, outside.ip6, addr("::1"), 64), dropped, abi.DropLoopback},
		{"a loopback source, IPv4", udp(host, addr("127.0.0.1"), a.ip4, 64), dropped, abi.DropLoopback},
		{"a loopback source, IPv6", udp(host, addr("::1"), a.ip6, 64), dropped, abi.DropLoopback},
		{"multicast that was routed here, IPv4", udp(host, outside.ip4, addr("239.1.1.1"), 64), dropped, abi.DropMulticast},
		{"multicast that was routed here, IPv6", udp(host, outside.ip6, addr("ff05::1"), 64), dropped, abi.DropMulticast},
		{"the node's own MLD", icmp6(host, addr("fe80::1a"), addr("ff02::16"), layers.ICMPv6TypeMLDv2MulticastListenerReportMessageV2), dropped, abi.DropLinkLocal},
		{"the node's own solicitation", icmp6(host, addr("fe80::1a"), addr("ff02::1:ff00:1"), layers.ICMPv6TypeNeighborSolicitation), dropped, abi.DropLinkLocal},
		{"a broadcast of the node", udp(host, outside.ip4, everybody.ip4, 64), dropped, abi.DropLinkLocal},
		{"a DHCP answer", broadcastUDP(host, outside.ip4, everybody.ip4, 67, 68), dropped, abi.DropLinkLocal},
		{"the node's ARP", arp(host4(host), a.ip4), dropped, abi.DropARP},
		{"a truncated packet", udp(host, outside.ip4, a.ip4, 64)[:40], dropped, abi.DropMalformed},
	}
}

func host4(p party) party { p.ip4 = outside.ip4; return p }

func vlan(link party) []byte {
	return frame(ether(link.mac, link.hostMAC, layers.EthernetTypeDot1Q), &layers.Dot1Q{VLANIdentifier: 7, Type: layers.EthernetTypeIPv4})
}

func TestFromPod(t *testing.T) {
	f := load(t)
	f.check(t, f.objects.FromPod, fromPod(), func(want *abi.Traffic) *abi.Counter { return &want.FromPod })
}

func TestToPod(t *testing.T) {
	f := load(t)
	f.check(t, f.objects.ToPod, toPod(), func(want *abi.Traffic) *abi.Counter { return &want.ToPod })
}

// check runs the rows on alice's link; passed is where the ones count that are not dropped.
func (f *fixture) check(t *testing.T, prog *ebpf.Program, rows []row, passed func(*abi.Traffic) *abi.Counter) {
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			f.reset(t)
			size := uint64(len(row.in))
			verdict, _ := f.run(t, prog, f.alice, row.in)
			if verdict != row.verdict {
				t.Errorf("verdict = %d, want %d", verdict, row.verdict)
			}
			var atAlice, atBob abi.Traffic
			if row.verdict == dropped {
				atAlice.Drops[row.drop]++
			} else {
				*passed(&atAlice) = abi.Counter{Packets: 1, Bytes: size}
			}
			if row.verdict == deliver {
				atBob.ToPod = abi.Counter{Packets: 1, Bytes: size}
			}
			if diff := cmp.Diff(atAlice, f.traffic(t, f.alice.id)); diff != "" {
				t.Errorf("counted at alice's (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(atBob, f.traffic(t, f.bob.id)); diff != "" {
				t.Errorf("counted at bob's (-want +got):\n%s", diff)
			}
		})
	}
}

func TestUnknownLink(t *testing.T) {
	f := load(t)
	f.reset(t)
	for _, prog := range []*ebpf.Program{f.objects.FromPod, f.objects.ToPod} {
		if verdict, _ := f.run(t, prog, f.eve, udp(eve, eve.ip4, bob.ip4, 64)); verdict != dropped {
			t.Errorf("%s: verdict = %d, want %d", prog, verdict, dropped)
		}
	}
	if n := f.traffic(t, uint16(abi.NoEndpoint)).Drops[abi.DropNoEndpoint]; n != 2 {
		t.Errorf("counted %d drops, want 2", n)
	}
}

func TestDelivery(t *testing.T) {
	f := load(t)
	// Every TTL and two addresses: the checksum's carries.
	for ttl := hops(2); ttl != 0; ttl++ {
		_, got := f.run(t, f.objects.FromPod, f.alice, udp(alice, alice.ip4, bob.ip4, ttl))
		want := udpFrom(bob.hostMAC, bob.mac, alice.ip4, bob.ip4, ttl-1)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("IPv4, TTL %d (-want +got):\n%s", ttl, diff)
		}
		_, got = f.run(t, f.objects.FromPod, f.alice, udp(alice, alice.ip6, bob.ip6, ttl))
		want = udpFrom(bob.hostMAC, bob.mac, alice.ip6, bob.ip6, ttl-1)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("IPv6, hop limit %d (-want +got):\n%s", ttl, diff)
		}
	}
}

func TestPodOneFamily(t *testing.T) {
	f := load(t)
	link := abi.Link{Ipv4: abi.AddrOf(alice.ip4), PodMac: abi.MAC{Byte: [6]byte(alice.mac)}, Id: alice.id}
	if err := f.objects.Links.Put(uint32(f.alice.index), link); err != nil {
		t.Fatal(err)
	}
	if verdict, _ := f.run(t, f.objects.FromPod, f.alice, udp(alice, alice.ip6, bob.ip6, 64)); verdict != dropped {
		t.Errorf("IPv6 from a pod without: verdict = %d, want %d", verdict, dropped)
	}
	if verdict, _ := f.run(t, f.objects.FromPod, f.alice, udp(alice, alice.ip4, bob.ip4, 64)); verdict != deliver {
		t.Errorf("IPv4: verdict = %d, want %d", verdict, deliver)
	}
}
