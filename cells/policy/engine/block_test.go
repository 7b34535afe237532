package engine_test

import (
	"net/netip"
	"testing"

	"porin.dev/porin/cells/policy/engine"
	"porin.dev/porin/cells/policy/model"
)

// exceptions is a policy that allows all addresses but so many ranges of 256.
func exceptions(name string, n int) model.Policy {
	block := &model.Block{CIDR: netip.MustParsePrefix("0.0.0.0/0")}
	for i := range n {
		block.Except = append(block.Except, netip.PrefixFrom(netip.AddrFrom4([4]byte{20 + byte(i>>16), byte(i >> 8), byte(i), 0}), 24))
	}
	return networkPolicy(name, "db", model.Rule{Action: model.Accept, Peers: []model.Peer{{Block: block}}})
}

// TestExceptions has an address in an exception, one in none, and one with a second block that contradicts.
func TestExceptions(t *testing.T) {
	inside, outside := netip.MustParseAddr("20.0.1.9"), netip.MustParseAddr("20.0.2.0")
	e := shop(exceptions("all", 2))
	allowed := func(from netip.Addr) bool { return e.Evaluate(from, addr(2), model.TCP, 80).Allowed }
	if allowed(inside) || !allowed(outside) {
		t.Errorf("allowed: in an exception %t, in none %t", allowed(inside), allowed(outside))
	}
	e.Apply(engine.Update{SetPolicies: []model.Policy{exceptions("more", 1)}})
	if !allowed(inside) || allowed(netip.MustParseAddr("20.0.0.1")) {
		t.Error("an address is an exception of the one block, or of both, and it does not count")
	}
	e.Apply(engine.Update{RemovePolicies: []model.PolicyID{exceptions("more", 1).ID}})
	if allowed(inside) || !allowed(outside) {
		t.Errorf("without the second block: allowed: in an exception %t, in none %t", allowed(inside), allowed(outside))
	}
}
