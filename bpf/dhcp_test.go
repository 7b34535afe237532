package bpf_test

import (
	"testing"

	"porin.dev/porin/bpf/abi"
)

// leased has alice speak DHCP.
func (f *fixture) leased(t *testing.T) {
	t.Helper()
	var own abi.Endpoint
	if err := f.objects.Endpoints.Lookup(abi.AddrOf(alice.ip4), &own); err != nil {
		t.Fatal(err)
	}
	own.Flags = abi.EndpointDHCP
	if err := f.objects.Endpoints.Put(abi.AddrOf(alice.ip4), own); err != nil {
		t.Fatal(err)
	}
}

func TestDHCPFromPod(t *testing.T) {
	f, a, none := load(t), alice, addr("0.0.0.0")
	f.leased(t)
	stranger := a
	stranger.mac = mac(0xb)
	fragment := dhcp(a, none, everybody.ip4, 68, 67)
	fragment[20] |= 0x20 // more fragments
	rows := []row{
		{"a first request", dhcp(a, none, everybody.ip4, 68, 67), toStack, 0},
		{"a renewal", dhcp(a, a.ip4, everybody.ip4, 68, 67), toStack, 0},
		{"a request from another's MAC", dhcp(stranger, none, everybody.ip4, 68, 67), dropped, abi.DropSpoofedMAC},
		{"a request from another's address", dhcp(a, bob.ip4, everybody.ip4, 68, 67), dropped, abi.DropLinkLocal},
		{"a request from a self-assigned address", dhcp(a, addr("169.254.7.7"), everybody.ip4, 68, 67), dropped, abi.DropLinkLocal},
		{"a request to one machine, from none", dhcp(a, none, outside.ip4, 68, 67), dropped, abi.DropLinkLocal},
		{"a request to another pod, from none", dhcp(a, none, bob.ip4, 68, 67), dropped, abi.DropLinkLocal},
		{"an answer", dhcp(a, none, everybody.ip4, 67, 68), dropped, abi.DropLinkLocal},
		{"another service", dhcp(a, none, everybody.ip4, 68, 69), dropped, abi.DropLinkLocal},
		{"a part of one", fragment, dropped, abi.DropLinkLocal},
		{"one that ends too early", shorten(dhcp(a, none, everybody.ip4, 68, 67)), dropped, abi.DropMalformed},
		{"a group on the link", udp(a, a.ip4, addr("224.0.0.251"), 1), dropped, abi.DropLinkLocal},
	}
	f.check(t, f.objects.FromPod, rows, func(want *abi.Traffic) *abi.Counter { return &want.FromPod })
}

func TestDHCPToPod(t *testing.T) {
	f, host := load(t), party{mac: alice.hostMAC, hostMAC: alice.mac}
	f.leased(t)
	rows := []row{
		{"an answer", dhcp(host, outside.ip4, everybody.ip4, 67, 68), toStack, 0},
		{"a request", dhcp(host, outside.ip4, everybody.ip4, 68, 67), dropped, abi.DropLinkLocal},
		{"another broadcast", udp(host, outside.ip4, everybody.ip4, 64), dropped, abi.DropLinkLocal},
	}
	f.check(t, f.objects.ToPod, rows, func(want *abi.Traffic) *abi.Counter { return &want.ToPod })
}

// shorten leaves an IPv4 header that says so.
func shorten(frame []byte) []byte {
	const header = 14 + 20
	frame[16], frame[17] = 0, 20
	return frame[:header]
}
