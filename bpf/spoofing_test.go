package bpf_test

import (
	"testing"

	"porin.dev/porin/bpf/abi"
)

// TestMappedAddressOfConnection: an IPv6 packet with IPv4-mapped addresses does not belong to an open IPv4 connection.
func TestMappedAddressOfConnection(t *testing.T) {
	f := load(t)
	f.reset(t)
	l := newConversation(f, false, true)
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

// TestNoConnectionWithLinkLocal: a packet from a link-local address of the node's side makes no entry that would let
// the pod answer.
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
