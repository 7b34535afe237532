package bpf_test

import (
	"net/netip"
	"testing"

	"porin.dev/porin/bpf/abi"
	"porin.dev/porin/cells/policy/engine"
	"porin.dev/porin/cells/policy/model"
)

// wantUnmanaged compares the counts of all CPUs.
func (p *policyFixture) wantUnmanaged(t *testing.T, when string, want abi.Unmanaged) {
	t.Helper()
	var counted []abi.Unmanaged
	if err := p.objects.Unmanaged.Lookup(uint32(0), &counted); err != nil {
		t.Fatal(err)
	}
	var got abi.Unmanaged
	for _, one := range counted {
		got.Passed += one.Passed
		got.Denied += one.Denied
	}
	if got.Passed != want.Passed || got.Denied != want.Denied {
		t.Errorf("%s: %d passed, %d denied, want %d and %d", when, got.Passed, got.Denied, want.Passed, want.Denied)
	}
}

// TestPolicyUnmanaged has an address of an unknown pod of another node, and another one from outside.
func TestPolicyUnmanaged(t *testing.T) {
	p := newPolicyFixture(t)
	p.e = engine.New(engine.Config{AllowUnmanaged: true}) // which the first call of apply writes
	p.writer = p.newWriter()
	peer, block := netip.MustParseAddr("10.9.0.7"), netip.MustParsePrefix("10.9.0.0/24")
	p.apply(t, engine.Update{SetUnmanaged: []netip.Prefix{block}, SetEndpoints: []model.Endpoint{
		{Key: "shop/client", Kind: model.Pod, Local: true, Namespace: "shop", Labels: map[string]string{"app": "client"}, Addresses: []netip.Addr{p.client.ip4}},
		{Key: "shop/server", Kind: model.Pod, Local: true, Namespace: "shop", Labels: map[string]string{"app": "server"}, Addresses: []netip.Addr{p.server.ip4}},
	}})
	arrives := func(from netip.Addr, port uint16) uint32 {
		t.Helper()
		frame := segment(p.server.hostMAC, p.server.mac, netip.AddrPortFrom(from, port), netip.AddrPortFrom(p.server.ip4, serverPort), syn)
		return p.runFrom(t, p.objects.ToPod, p.server, skBuff{IngressIfindex: uint32(p.uplink.index)}, frame)
	}
	leaves := func(to netip.Addr) uint32 {
		t.Helper()
		frame := segment(p.uplink.hostMAC, p.uplink.mac, netip.AddrPortFrom(p.client.ip4, clientPort), netip.AddrPortFrom(to, serverPort), syn)
		return p.request(t, p.objects.ToUplink, p.uplink, &p.client, frame)
	}
	wantVerdict(t, "to a pod without a policy", arrives(peer, 1), toStack)
	p.wantUnmanaged(t, "without a policy", abi.Unmanaged{})

	p.policy(t, "isolate", isolate)
	wantVerdict(t, "from the peer", arrives(peer, 2), toStack)
	wantVerdict(t, "the same once more", arrives(peer, 2), toStack)
	wantVerdict(t, "from outside", arrives(outsider, 2), dropped)
	p.wantDrops(t, p.server, abi.DropPolicyIngress, 1)
	wantVerdict(t, "to the peer", leaves(peer), dropped)
	wantVerdict(t, "to the outside", leaves(outsider), dropped)
	p.wantDrops(t, p.client, abi.DropPolicyUnmanaged, 1)
	p.wantDrops(t, p.client, abi.DropPolicyEgress, 1)

	p.apply(t, engine.Update{RemoveUnmanaged: []netip.Prefix{block}})
	wantVerdict(t, "from one that is no peer any more", arrives(peer, 3), dropped)
	p.wantDrops(t, p.server, abi.DropPolicyIngress, 2)
	p.apply(t, engine.Update{SetEndpoints: []model.Endpoint{{Key: "peer", Kind: model.Unmanaged, Addresses: []netip.Addr{peer}}}})
	wantVerdict(t, "from one with an address of its own", arrives(peer, 4), toStack)
	found, err := p.writer.Compare(p.e, p.numbers)
	if err != nil || len(found) > 0 {
		t.Errorf("the maps differ from what was written: %+v, %v", found, err)
	}
	p.wantUnmanaged(t, "at the end", abi.Unmanaged{Passed: 3, Denied: 1})
}
