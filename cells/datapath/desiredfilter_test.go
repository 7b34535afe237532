package datapath

import (
	"net/netip"
	"slices"
	"testing"

	"porin.dev/porin/cells/datapath/hostfilter"
	"porin.dev/porin/cells/policy"
	"porin.dev/porin/cells/policy/engine"
	"porin.dev/porin/cells/policy/model"
)

// TestDesiredFilterICMP tells echo requests from other types, and both from protocols without types.
func TestDesiredFilterICMP(t *testing.T) {
	e := engine.New(engine.Config{})
	e.Apply(engine.Update{
		SetPolicies: []model.Policy{{
			ID: model.PolicyID{Kind: model.KindCiliumClusterwideNetworkPolicy, Name: "ping"}, Tier: model.TierNetworkPolicy,
			Egress: &model.Rules{{Peers: []model.Peer{{Any: true}}, Ports: []model.Port{{Protocol: model.ICMP, First: 8, Last: 8}}}},
		}},
		SetEndpoints: []model.Endpoint{{Key: "web", Kind: model.Pod, Local: true, Addresses: []netip.Addr{netip.MustParseAddr("10.0.0.1")}}},
	})
	desired := desiredFilter(e, map[string]policy.Local{"web": {ID: 1, Link: 7}})
	rows := slices.DeleteFunc(desired.Pods[0].Rows, func(r hostfilter.Row) bool { return model.Protocol(r.Protocol).HasPorts() })
	if want := []hostfilter.Row{{Protocol: uint8(model.ICMP), First: 8, Last: 8, Allow: true}, {Last: 65535}}; !slices.Equal(rows, want) {
		t.Errorf("rows %+v, want %+v", rows, want)
	}
}

// TestDesiredFilterLayer7 denies to the node what only layer 7 rules accept: no proxy would apply them.
func TestDesiredFilterLayer7(t *testing.T) {
	port := func(number uint16) []model.Port {
		return []model.Port{{Protocol: model.TCP, First: number, Last: number}}
	}
	e := engine.New(engine.Config{})
	e.Apply(engine.Update{
		SetPolicies: []model.Policy{{
			ID: model.PolicyID{Kind: model.KindCiliumClusterwideNetworkPolicy, Name: "web"}, Tier: model.TierNetworkPolicy,
			Egress: &model.Rules{
				{Peers: []model.Peer{{Any: true}}, Ports: port(80), Layer7: &model.Layer7{HTTP: []model.HTTPRule{{Path: "/"}}}},
				{Peers: []model.Peer{{Any: true}}, Ports: port(443)},
			},
		}},
		SetEndpoints: []model.Endpoint{{Key: "web", Kind: model.Pod, Local: true, Addresses: []netip.Addr{netip.MustParseAddr("10.0.0.1")}}},
	})
	desired := desiredFilter(e, map[string]policy.Local{"web": {ID: 1, Link: 7}})
	if len(desired.Pods) != 1 {
		t.Fatalf("%+v, want one pod", desired)
	}
	// One row for the port, and one for all else.
	if want := []hostfilter.Row{{Protocol: uint8(model.TCP), First: 443, Last: 443, Allow: true}, {Last: 65535}}; !slices.Equal(desired.Pods[0].Rows, want) {
		t.Errorf("rows %+v, want %+v", desired.Pods[0].Rows, want)
	}
}

// TestDesiredFilterBlocks: each address of the node is allowed by its own rule.
func TestDesiredFilterBlocks(t *testing.T) {
	block := model.Block{CIDR: netip.MustParsePrefix("0.0.0.0/0"), Except: []netip.Prefix{netip.MustParsePrefix("172.16.0.0/12")}}
	v4, v6, bridge := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1"), netip.MustParseAddr("172.17.0.1")
	e := engine.New(engine.Config{})
	node := model.Endpoint{Key: policy.HostKey, Kind: model.Host, Addresses: []netip.Addr{v4}}
	e.Apply(engine.Update{
		SetPolicies: []model.Policy{{
			ID: model.PolicyID{Kind: model.KindNetworkPolicy, Namespace: "demo", Name: "any"}, Tier: model.TierNetworkPolicy,
			Egress: &model.Rules{{Peers: []model.Peer{{Block: &block}}}},
		}},
		SetEndpoints: []model.Endpoint{{Key: "web", Kind: model.Pod, Local: true, Addresses: []netip.Addr{netip.MustParseAddr("10.0.0.1")}}, node},
	})
	locals := map[string]policy.Local{"web": {ID: 1, Link: 7}}
	allows := func(rows []hostfilter.Row) bool { return rows[len(rows)-1].Allow }
	if d := desiredFilter(e, locals); len(d.Groups) > 0 || len(d.Pods) != 1 || len(d.Pods[0].OfGroup) > 0 || !allows(d.Pods[0].Rows) {
		t.Errorf("%+v, want the one address allowed, without groups", d)
	}
	node.Addresses = []netip.Addr{v4, v6, bridge}
	e.Apply(engine.Update{SetEndpoints: []model.Endpoint{node}})
	d := desiredFilter(e, locals)
	if len(d.Pods) != 1 || allows(d.Pods[0].Rows) {
		t.Fatalf("%+v, want addresses without a group denied", d)
	}
	for addr, want := range map[netip.Addr]bool{v4: true, v6: false, bridge: false} {
		rows, ok := d.Pods[0].OfGroup[d.Groups[addr]]
		if !ok {
			rows = d.Pods[0].Rows
		}
		if allows(rows) != want {
			t.Errorf("%s: group %d, rows %+v, want allowed: %t", addr, d.Groups[addr], rows, want)
		}
	}
	if _, ok := d.Groups[v6]; ok || len(d.Pods[0].OfGroup) != 1 {
		t.Errorf("%+v: addresses that are as all others have a group", d)
	}
}

// TestDesiredFilterJoins has two blocks with the same rules: their addresses are one group.
func TestDesiredFilterJoins(t *testing.T) {
	blocks := []string{"192.0.2.0/24", "198.51.100.0/24"}
	node := model.Endpoint{Key: policy.HostKey, Kind: model.Host, Addresses: []netip.Addr{netip.MustParseAddr("203.0.113.1")}}
	rule := model.Rule{Ports: []model.Port{{Protocol: model.UDP, First: 53, Last: 53}}}
	for _, block := range blocks {
		cidr := netip.MustParsePrefix(block)
		rule.Peers = append(rule.Peers, model.Peer{Block: &model.Block{CIDR: cidr}})
		node.Addresses = append(node.Addresses, cidr.Addr().Next())
	}
	e := engine.New(engine.Config{})
	e.Apply(engine.Update{
		SetPolicies: []model.Policy{{
			ID: model.PolicyID{Kind: model.KindNetworkPolicy, Namespace: "demo", Name: "two"}, Tier: model.TierNetworkPolicy, Egress: &model.Rules{rule},
		}},
		SetEndpoints: []model.Endpoint{{Key: "web", Kind: model.Pod, Local: true, Addresses: []netip.Addr{netip.MustParseAddr("10.0.0.1")}}, node},
	})
	d := desiredFilter(e, map[string]policy.Local{"web": {ID: 1, Link: 7}})
	if len(d.Groups) != 2 || d.Groups[node.Addresses[1]] != d.Groups[node.Addresses[2]] || len(d.Pods[0].OfGroup) != 1 {
		t.Errorf("%+v, want one group of two addresses", d)
	}
}

// TestDesiredFilterAllBut denies the whole protocol and allows ranges, so that a packet is denied while the kernel
// replaces ranges.
func TestDesiredFilterAllBut(t *testing.T) {
	e := engine.New(engine.Config{})
	e.Apply(engine.Update{
		SetPolicies: []model.Policy{{
			ID: model.PolicyID{Kind: model.KindCiliumNetworkPolicy, Namespace: "demo", Name: "but"}, Tier: model.TierNetworkPolicy,
			Egress: &model.Rules{
				{Action: model.Deny, Peers: []model.Peer{{Any: true}}, Ports: []model.Port{{Protocol: model.TCP, First: 22, Last: 22}}},
				{Peers: []model.Peer{{Any: true}}},
			},
		}},
		SetEndpoints: []model.Endpoint{{Key: "web", Kind: model.Pod, Namespace: "demo", Local: true, Addresses: []netip.Addr{netip.MustParseAddr("10.0.0.1")}}},
	})
	d := desiredFilter(e, map[string]policy.Local{"web": {ID: 1, Link: 7}})
	tcp := uint8(model.TCP)
	want := []hostfilter.Row{{Protocol: tcp, Last: 65535}, {Protocol: tcp, Last: 21, Allow: true}, {Protocol: tcp, First: 23, Last: 65535, Allow: true}, {Last: 65535, Allow: true}}
	if !slices.Equal(d.Pods[0].Rows, want) {
		t.Errorf("rows %+v, want %+v", d.Pods[0].Rows, want)
	}
}
