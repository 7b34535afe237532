package datapath_test

import (
	"net/netip"
	"testing"

	"porin.dev/porin/cells/policy"
	"porin.dev/porin/cells/policy/engine"
	"porin.dev/porin/cells/policy/manifest"
	"porin.dev/porin/cells/policy/model"
)

const denyAllEgress = "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: deny, namespace: shop}\nspec: {podSelector: {}, policyTypes: [Egress]}\n"

// restrictedEngine knows one pod, which may send nothing.
func restrictedEngine(t *testing.T, p *pod) (*engine.Engine, map[string]policy.Local) {
	t.Helper()
	policies, err := manifest.Read([]byte(denyAllEgress))
	must(t, err)
	e := engine.New(engine.Config{})
	e.Apply(engine.Update{SetPolicies: policies, SetEndpoints: []model.Endpoint{
		{ID: "shop/client", Kind: model.Pod, Local: true, Namespace: "shop", Addresses: []netip.Addr{netip.MustParseAddr("10.0.0.1")}},
	}})
	return e, map[string]policy.Local{"shop/client": {Number: 1, Link: p.index()}}
}

// TestEnforcerFailedRelease has the last policy stay in force, uplinks included, when one without restrictions cannot be written.
func TestEnforcerFailedRelease(t *testing.T) {
	n := newNode(t)
	p := n.newPod(t, 1)
	n.attach(t, p)
	uplink := n.addUplink(t, "eth0")
	e, locals := restrictedEngine(t, p)
	must(t, n.datapath.Enforcer().Apply(e, nil, locals))
	n.wantDecided(t, uplink)
	e.Apply(engine.Update{RemovePolicies: []model.PolicyID{{Kind: model.KindNetworkPolicy, Namespace: "shop", Name: "deny"}}})
	locals["shop/unknown"] = policy.Local{Number: 2}
	if err := n.datapath.Enforcer().Apply(e, nil, locals); err == nil {
		t.Fatal("an endpoint that the engine does not know is no error")
	}
	n.wantDecided(t, uplink)
	delete(locals, "shop/unknown")
	must(t, n.datapath.Enforcer().Apply(e, nil, locals))
	n.wantDecided(t)
}

// TestEnforcerUnknownPod has the uplinks decide for a restricted pod that the next agent does not know yet: the maps deny it everything.
func TestEnforcerUnknownPod(t *testing.T) {
	n := newNode(t)
	p := n.newPod(t, 1)
	n.attach(t, p)
	uplink := n.addUplink(t, "eth0")
	e, locals := restrictedEngine(t, p)
	must(t, n.datapath.Enforcer().Apply(e, nil, locals))
	n.wantDecided(t, uplink)
	must(t, n.datapath.Enforcer().Apply(engine.New(engine.Config{}), nil, nil))
	n.wantDecided(t, uplink)
}
