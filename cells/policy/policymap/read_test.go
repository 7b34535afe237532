package policymap_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"porin.dev/porin/cells/policy/engine"
	"porin.dev/porin/cells/policy/model"
	"porin.dev/porin/cells/policy/oracle"
	"porin.dev/porin/cells/policy/policymap"
)

// world is random policies and endpoints, in an engine and in the maps.
type world struct {
	oracle.Random
	e         *engine.Engine
	maps      policymap.Maps
	writer    *policymap.Writer
	ids       map[string]uint16
	policies  []model.PolicyID
	endpoints map[string]model.Endpoint
}

func newWorld(t *testing.T, m policymap.Maps, seed uint64) *world {
	t.Helper()
	return &world{
		Random: oracle.NewRandom(seed), e: engine.New(engine.Config{}), maps: m, writer: policymap.New(m), ids: map[string]uint16{},
		endpoints: map[string]model.Endpoint{},
	}
}

// change makes a few random changes, and writes them.
func (w *world) change(t *testing.T) {
	t.Helper()
	if err := w.tryChange(); err != nil {
		t.Fatal(err)
	}
}

func (w *world) tryChange() error {
	var u engine.Update
	if len(w.policies) > 0 && w.IntN(2) == 0 {
		i := w.IntN(len(w.policies))
		u.RemovePolicies = append(u.RemovePolicies, w.policies[i])
		w.policies = slices.Delete(w.policies, i, i+1)
	}
	for range w.IntN(4) {
		p := w.Policy()
		u.SetPolicies = append(u.SetPolicies, p)
		if !slices.Contains(w.policies, p.ID) {
			w.policies = append(w.policies, p.ID)
		}
	}
	for range w.IntN(6) {
		ep := w.Endpoint()
		u.SetEndpoints = append(u.SetEndpoints, ep)
		w.endpoints[ep.Key] = ep
	}
	for _, rule := range oracle.Domains() {
		if w.IntN(3) == 0 {
			u.Domains = append(u.Domains, engine.DomainChange{Rule: rule, Add: []netip.Addr{w.Address(), w.Address()}, Remove: []netip.Addr{w.Address(), w.Address()}})
		}
	}
	change := w.e.Apply(u)
	clear(w.ids)
	for id, ep := range w.endpoints {
		if ep.Local && (ep.Kind == model.Pod || ep.Kind == model.Init) {
			var i int
			_, _ = fmt.Sscanf(id, "e%d", &i)
			w.ids[id] = uint16(100 + i)
		}
	}
	return w.writer.Apply(w.e, &change, w.ids)
}

// idOf is the ID of the local endpoint that has an address.
func (w *world) idOf(addr netip.Addr) (uint16, bool) {
	id, ok := w.ids[w.e.End(addr).Endpoint]
	return id, ok
}

// TestReadAgainstEngine asks the maps what the programs would, and the engine the same.
func TestReadAgainstEngine(t *testing.T) {
	m := newMaps(t)
	first := rand.Uint64()
	seen := map[string]int{}
	for seed := first; seed < first+30; seed++ {
		w := newWorld(t, m, seed)
		for range 8 {
			w.change(t)
			for range 40 {
				w.compareConnection(t, seed, seen)
			}
		}
	}
	if seen["allowed"] < 50 || seen["denied"] < 50 || seen["layer 7"] < 20 {
		t.Errorf("%v decisions: too few", seen)
	}
}

func (w *world) compareConnection(t *testing.T, seed uint64, seen map[string]int) {
	t.Helper()
	c := w.Connection(oracle.World{})
	if w.e.End(c.From).Endpoint == w.e.End(c.To).Endpoint {
		return // a pod with itself
	}
	want := w.e.Evaluate(c.From, c.To, c.Protocol, c.Port)
	if id, ok := w.idOf(c.From); ok {
		got, err := w.maps.Egress(id, c.To, c.Protocol, c.Port)
		if err != nil || got != want.Egress.Value() {
			t.Errorf("seed %d: %+v: egress has value %d, %v; the engine says %s", seed, c, got, err, want.Egress)
		}
		seen[kindOf(got)]++
	}
	if id, ok := w.idOf(c.To); ok {
		got, err := w.maps.Ingress(id, c.From, w.e.End(c.From).Kind == model.Host, c.Protocol, c.Port)
		if err != nil || got != want.Ingress.Value() {
			t.Errorf("seed %d: %+v: ingress has value %d, %v; the engine says %s", seed, c, got, err, want.Ingress)
		}
		seen[kindOf(got)]++
	}
}

func kindOf(value uint32) string {
	switch value {
	case engine.ValueDeny:
		return "denied"
	case engine.ValueAllow:
		return "allowed"
	}
	return "layer 7"
}

// TestReadForwarded has a connection that the node has forwarded: its address is not the node's right to reach its
// pods.
func TestReadForwarded(t *testing.T) {
	m := newMaps(t)
	node := netip.MustParseAddr("192.0.2.1")
	e := engine.New(engine.Config{})
	deny := model.Policy{
		ID: model.PolicyID{Kind: model.KindNetworkPolicy, Namespace: "shop", Name: "deny"}, Tier: model.TierNetworkPolicy,
		Subject: model.Pods{Namespace: "shop"}, Ingress: &model.Rules{},
	}
	change := e.Apply(engine.Update{
		SetPolicies:  []model.Policy{deny},
		SetEndpoints: []model.Endpoint{podOf(0, true), {Key: "host", Kind: model.Host, Addresses: []netip.Addr{node}}},
	})
	if err := policymap.New(m).Apply(e, &change, map[string]uint16{"pod0": 1}); err != nil {
		t.Fatal(err)
	}
	for fromNode, want := range map[bool]bool{true: true, false: false} {
		if got, err := m.Ingress(1, node, fromNode, model.TCP, 80); err != nil || got != engine.ValueDeny != want {
			t.Errorf("from the node's address, by the node itself %t: value %d, %v; want it allowed: %t", fromNode, got, err, want)
		}
	}
}
