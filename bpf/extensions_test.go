package bpf_test

import (
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"porin.dev/porin/bpf/abi"
)

// withExtensions is a datagram from alice to bob behind IPv6 extension headers of the given kinds.
func withExtensions(kinds ...uint8) []byte {
	const udpProtocol = 17
	next := append(kinds[1:len(kinds):len(kinds)], udpProtocol)
	var payload []byte
	for i, kind := range kinds {
		header := []byte{next[i], 0, 1, 4, 0, 0, 0, 0} // PadN
		switch kind {
		case 44: // fragment
			header = []byte{next[i], 0, 0, 1, 0, 0, 0, 7} // the first of several
		case 51: // authentication
			header = append([]byte{next[i], 4}, make([]byte, 22)...)
		}
		payload = append(payload, header...)
	}
	datagram := []byte{4, 0, 0, 53, 0, 8, 0, 0}
	return frame(ether(alice.mac, alice.hostMAC, layers.EthernetTypeIPv6), &layers.IPv6{
		Version: 6, HopLimit: 64, NextHeader: layers.IPProtocol(kinds[0]), SrcIP: alice.ip6.AsSlice(), DstIP: bob.ip6.AsSlice(),
	}, gopacket.Payload(append(payload, datagram...)))
}

// withOptions is an IPv4 datagram from alice to bob with options.
func withOptions(options ...byte) []byte {
	const header = 14 + 20
	in := udp(alice, alice.ip4, bob.ip4, 64)
	out := append(append(append([]byte{}, in[:header]...), options...), in[header:]...)
	out[14] = 0x40 | byte(5+len(options)/4)
	out[17] += byte(len(options))
	return out
}

func TestHeaders(t *testing.T) {
	f := load(t)
	f.check(t, f.objects.FromPod, []row{
		{"destination options", withExtensions(60), deliver, 0},
		{"an authentication header", withExtensions(51), deliver, 0},
		{"hop-by-hop options are for routers", withExtensions(0, 60), toStack, 0},
		{"a fragment is for the stack", withExtensions(44), toStack, 0},
		{"eight headers", withExtensions(60, 60, 60, 60, 60, 60, 60, 60), deliver, 0},
		{"nine headers", withExtensions(60, 60, 60, 60, 60, 60, 60, 60, 60), dropped, abi.DropExtensions},
		{"a routing header", withExtensions(43), dropped, abi.DropSourceRoute},
		{"a routing header behind others", withExtensions(0, 60, 43), dropped, abi.DropSourceRoute},
		{"a header that ends too early", withExtensions(60)[:14+40+8+4], dropped, abi.DropMalformed},
		{"IPv4 options are for routers", withOptions(1, 1, 1, 0), toStack, 0},
		{"a loose source route", withOptions(131, 7, 4, 198, 51, 100, 1, 0), dropped, abi.DropSourceRoute},
		{"a strict source route behind others", withOptions(1, 148, 4, 0, 0, 137, 7, 4, 198, 51, 100, 1), dropped, abi.DropSourceRoute},
		{"a source route behind the end of the options", withOptions(0, 131, 3, 4), toStack, 0},
		{"an option without length", withOptions(148, 0, 0, 0), dropped, abi.DropMalformed},
		{"a fragment, IPv4", mangle(udp(alice, alice.ip4, bob.ip4, 64), 20, 0x20), toStack, 0},
		{"the last fragment, IPv4", mangle(udp(alice, alice.ip4, bob.ip4, 64), 21, 9), toStack, 0},
		{"a TCP header that ends too early", mangle(mangle(udp(alice, alice.ip4, bob.ip4, 64)[:14+20+12], 17, 20+12), 23, 6), dropped, abi.DropMalformed},
	}, func(want *abi.Traffic) *abi.Counter { return &want.FromPod })
	if n := len(f.connections(t)); n > 4 {
		t.Errorf("%d entries, want at most two of each family: a fragment or a packet that was dropped has made one", n)
	}
}
