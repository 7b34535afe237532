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
	for number, want := range map[uint16]bool{79: false, 80: false, 443: true, 444: false} {
		i := slices.IndexFunc(desired.Pods[0].Rows, func(r hostfilter.Row) bool {
			return r.Protocol == uint8(model.TCP) && r.First <= number && number <= r.Last
		})
		if i < 0 || desired.Pods[0].Rows[i].Allow != want {
			t.Errorf("port %d: row %d of %+v, want allowed: %t", number, i, desired.Pods[0].Rows, want)
		}
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
		if d.Groups[addr] == 0 || allows(rows) != want {
			t.Errorf("%s: group %d, rows %+v, want allowed: %t", addr, d.Groups[addr], rows, want)
		}
	}
}
