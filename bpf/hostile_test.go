package bpf_test

import (
	"net/netip"
	"testing"

	"porin.dev/porin/bpf/abi"
)

// TestMappedAddressOfConnection: an IPv6 packet with IPv4-mapped addresses is none of an open IPv4 connection.
func TestMappedAddressOfConnection(t *testing.T) {
	f := load(t)
	f.reset(t)
	l := newLife(f, false, true)
	l.send(t, packet{"alice", datagram, deliver})
	in := udp(f.alice, f.alice.ip6, f.bob.ip6, 64)
	source, destination := f.alice.ip4.As16(), f.bob.ip4.As16()
	in = mangle(mangle(mangle(in, 14+8, source[:]...), 14+24, destination[:]...), 14+40, 1000>>8, 1000&0xff, 0, 80)
	if verdict, _ := f.run(t, f.objects.FromPod, f.alice, in); verdict != dropped {
		t.Errorf("verdict %d, want %d", verdict, dropped)
	}
	if n := f.traffic(t, f.alice.id).Drops[abi.DropMappedAddress]; n != 1 {
		t.Errorf("counted %d packets with mapped addresses, want 1", n)
	}
}

// TestPathWithoutRoom: the other end's entry says the path also when there is no room for one here.
func TestPathWithoutRoom(t *testing.T) {
	f := load(t)
	f.reset(t)
	l := newLife(f, false, false)
	l.flushConntrack(t)
	l.send(t, packet{"alice", syn, deliver})
	_, there := l.keys()
	l.forget(t, there)
	f.limit(t, abi.Limits{})
	for _, p := range []packet{{"bob", synACK, deliver}, {"alice", ack, deliver}} {
		if verdict := l.send(t, p); verdict != p.want {
			t.Errorf("from %s: verdict %d, want %d", p.from, verdict, p.want)
		}
	}
}

// TestNoConnectionByBroadcast: a DHCP answer to all makes no entry by which the pod could send as 255.255.255.255.
func TestNoConnectionByBroadcast(t *testing.T) {
	f := load(t)
	f.reset(t)
	key := abi.AddrOf(f.alice.ip4)
	var own abi.Endpoint
	if err := f.objects.Endpoints.Lookup(key, &own); err != nil {
		t.Fatal(err)
	}
	own.Flags = abi.EndpointDHCP
	if err := f.objects.Endpoints.Put(key, own); err != nil {
		t.Fatal(err)
	}
	host := party{mac: f.alice.hostMAC, hostMAC: f.alice.mac}
	if verdict, _ := f.run(t, f.objects.ToPod, f.alice, dhcp(host, addr("192.0.2.9"), everybody.ip4, 67, 68)); verdict != toStack {
		t.Errorf("a DHCP answer: verdict %d, want %d", verdict, toStack)
	}
	spoofed := mangle(udp(f.alice, everybody.ip4, addr("192.0.2.9"), 64), 14+20, 0, 68, 0, 67)
	if verdict, _ := f.run(t, f.objects.FromPod, f.alice, spoofed); verdict != dropped {
		t.Errorf("a packet from 255.255.255.255: verdict %d, want %d", verdict, dropped)
	}
}

// TestNoConnectionWithLinkLocal: who is on the node's side of the link by a link-local address is none that a pod may answer.
func TestNoConnectionWithLinkLocal(t *testing.T) {
	f := load(t)
	f.reset(t)
	host := party{mac: f.alice.hostMAC, hostMAC: f.alice.mac}
	if verdict, _ := f.run(t, f.objects.ToPod, f.alice, udp(host, addr("fe80::99"), f.alice.ip6, 64)); verdict != toStack {
		t.Errorf("to the pod: verdict %d, want %d", verdict, toStack)
	}
	if n := len(f.connections(t)); n != 0 {
		t.Errorf("%d entries, want none", n)
	}
}

// TestShares: two pods that use up what is common leave a third one its share, and what is refused is counted.
func TestShares(t *testing.T) {
	f := load(t)
	f.reset(t)
	const size = 16
	f.limit(t, abi.Limits{Common: size / 4 * 3, Share: size / 4 / 2})
	for port := uint16(1); port < 100; port++ {
		in := segment(f.bob.hostMAC, f.bob.mac, netip.AddrPortFrom(outside.ip4, port), netip.AddrPortFrom(f.bob.ip4, 80), syn)
		f.run(t, f.objects.ToPod, f.bob, in)
	}
	l := newLife(f, false, false)
	if verdict := l.send(t, packet{"alice", syn, deliver}); verdict != deliver {
		t.Errorf("verdict %d, want %d: alice has a share", verdict, deliver)
	}
	var usage abi.Usage
	if err := f.objects.Usage.Lookup(uint32(f.bob.id), &usage); err != nil || usage.Connections() != 12 || usage.Refused != 99-12 {
		t.Errorf("bob uses %+v, error %v, want 12 entries and all others refused", usage, err)
	}
	f.checkUsage(t)
}

// TestICMPErrorAboutOthers: an error about what was for another pod is not the sender's to tell.
func TestICMPErrorAboutOthers(t *testing.T) {
	f := load(t)
	f.reset(t)
	l := newLife(f, false, true)
	about := l.frame(f.alice.mac, f.alice.hostMAC, l.alice, netip.AddrPortFrom(outside.ip4, 53), nil)
	in := unreachable(f.bob.mac, f.bob.hostMAC, f.bob.ip4, l.alice.Addr(), about)
	if verdict, _ := f.run(t, f.objects.FromPod, f.bob, in); verdict != dropped {
		t.Errorf("verdict %d, want %d", verdict, dropped)
	}
}
