package policymap_test

import (
	"errors"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/cilium/ebpf"

	"porin.dev/porin/bpf/abi"
	"porin.dev/porin/cells/policy/engine"
	"porin.dev/porin/cells/policy/model"
	"porin.dev/porin/cells/policy/oracle"
	"porin.dev/porin/cells/policy/policymap"
	"porin.dev/porin/internal/bpfarray"
	"porin.dev/porin/internal/testutil"
)

// allIPv4Policy lets a pod be reached from every IPv4 address, and from no other.
func allIPv4Policy() model.Policy {
	return model.Policy{
		ID: model.PolicyID{Kind: model.KindNetworkPolicy, Namespace: "shop", Name: "all"}, Tier: model.TierNetworkPolicy, Subject: model.Pods{Namespace: "shop"},
		Ingress: &model.Rules{{Action: model.Accept, Peers: []model.Peer{{Block: &model.Block{CIDR: netip.MustParsePrefix("0.0.0.0/0")}}}}},
	}
}

// refuseWrites has writes to an array fail from now on. It is read through shared memory, which needs no descriptor.
func refuseWrites(t *testing.T, m *ebpf.Map) {
	t.Helper()
	if err := errors.Join(bpfarray.Mmap(m), m.Close()); err != nil {
		t.Fatal(err)
	}
}

// TestRemoveAllIPv4 ends a policy for 0.0.0.0/0: its class must not stay.
func TestRemoveAllIPv4(t *testing.T) {
	for _, interrupted := range []bool{false, true} {
		m := newMaps(t)
		e, w, ids := engine.New(engine.Config{}), policymap.New(m), map[string]uint16{"pod0": 1}
		change := e.Apply(engine.Update{SetPolicies: []model.Policy{allIPv4Policy()}, SetEndpoints: []model.Endpoint{podOf(0, true)}})
		if err := w.Apply(e, &change, ids); err != nil {
			t.Fatal(err)
		}
		change = e.Apply(engine.Update{RemovePolicies: []model.PolicyID{allIPv4Policy().ID}})
		if interrupted {
			refuseWrites(t, m.Policies)
		}
		if err := w.Apply(e, &change, ids); (err != nil) != interrupted {
			t.Fatalf("interrupted %t: %v", interrupted, err)
		}
		addr := netip.MustParseAddr("192.0.2.1")
		if value, err := m.Ingress(1, addr, false, model.TCP, 80); value != engine.ValueAllow || err != nil {
			t.Errorf("interrupted %t: an address that was allowed, and is: value %d, %v", interrupted, value, err)
		}
		if class := classIn(t, m, addr); !interrupted && class != abi.ClassWorld {
			t.Errorf("the address has class %d, want %d", class, abi.ClassWorld)
		}
	}
}

// TestRemoveAllIPv4Interrupted has a second policy, which denies everything: IPv6 addresses, which the maps do not
// have, are denied before, after and in between.
func TestRemoveAllIPv4Interrupted(t *testing.T) {
	m := newMaps(t)
	deny := allIPv4Policy()
	deny.ID.Name, deny.Ingress = "deny", &model.Rules{}
	e, w, ids := engine.New(engine.Config{}), policymap.New(m), map[string]uint16{"pod0": 1}
	change := e.Apply(engine.Update{SetPolicies: []model.Policy{allIPv4Policy(), deny}, SetEndpoints: []model.Endpoint{podOf(0, true)}})
	if err := w.Apply(e, &change, ids); err != nil {
		t.Fatal(err)
	}
	change = e.Apply(engine.Update{RemovePolicies: []model.PolicyID{allIPv4Policy().ID}})
	refuseWrites(t, m.Policies)
	if err := w.Apply(e, &change, ids); err == nil {
		t.Fatal("written to a map that cannot be written")
	}
	if value, err := m.Ingress(1, netip.MustParseAddr("2001:db8::1"), false, model.TCP, 80); value != engine.ValueDeny || err != nil {
		t.Errorf("an IPv6 address: value %d, %v; want it denied", value, err)
	}
}

// classIn is the class of an address without an endpoint, in the active copy.
func classIn(t *testing.T, m policymap.Maps, addr netip.Addr) (class uint32) {
	t.Helper()
	var active uint32
	if err := m.ActiveCopy.Lookup(uint32(0), &active); err != nil {
		t.Fatal(err)
	}
	if err := m.Prefixes.Lookup(abi.PrefixKey{Bits: 160, Copy: active % abi.PolicyCopies, Addr: addr.As16()}, &class); err != nil {
		t.Fatal(err)
	}
	return class
}

// TestInterruptedChange has random changes fail at the endpoints' tables, which come last: the maps must have for each
// connection the old verdict or the new one.
func TestInterruptedChange(t *testing.T) {
	first := rand.Uint64()
	failed := 0
	for seed := first; seed < first+40 && !t.Failed(); seed++ {
		w := newWorld(t, newMaps(t), seed)
		for range 3 {
			w.change(t)
		}
		var asked []oracle.Connection
		var before []engine.Verdict
		for range 200 {
			c := w.Connection(oracle.World{})
			asked, before = append(asked, c), append(before, w.e.Evaluate(c.From, c.To, c.Protocol, c.Port))
		}
		ids := map[netip.Addr]uint16{}
		for _, c := range asked {
			if id, ok := w.idOf(c.To); ok && w.e.End(c.From).Endpoint != w.e.End(c.To).Endpoint {
				ids[c.To] = id
			}
		}
		refuseWrites(t, w.maps.Policies)
		if w.tryChange() != nil {
			failed++
		}
		for i, c := range asked {
			id, ok := ids[c.To]
			if now, same := w.idOf(c.To); !ok || !same || now != id || w.e.End(c.From).Endpoint == w.e.End(c.To).Endpoint || w.e.End(c.From).Kind == model.Host {
				continue
			}
			got, err := w.maps.Ingress(id, c.From, false, c.Protocol, c.Port)
			after := w.e.Evaluate(c.From, c.To, c.Protocol, c.Port)
			if err != nil || got != before[i].Ingress.Value() && got != after.Ingress.Value() {
				t.Errorf("seed %d: %+v: value %d, %v; before %s, after %s", seed, c, got, err, before[i].Ingress, after.Ingress)
			}
		}
	}
	if failed == 0 {
		t.Error("no change has failed")
	}
}

// TestReadBesideWriter reads a verdict, which stays the same, while whole copies are written.
func TestReadBesideWriter(t *testing.T) {
	m := newMaps(t)
	e, w, ids := engine.New(engine.Config{}), policymap.New(m), map[string]uint16{"pod0": 1}
	change := e.Apply(engine.Update{SetPolicies: []model.Policy{allIPv4Policy()}, SetEndpoints: []model.Endpoint{podOf(0, true)}})
	if err := w.Apply(e, &change, ids); err != nil {
		t.Fatal(err)
	}
	copies := 600
	if testutil.Full() {
		copies = 3000
	}
	done := make(chan error)
	go func() {
		var err error
		for i := 0; i < copies && err == nil; i++ {
			err = w.Apply(e, nil, ids)
		}
		done <- err
	}()
	for reads := 0; ; reads++ {
		select {
		case err := <-done:
			if err != nil {
				t.Error(err)
			}
			t.Logf("%d reads", reads)
			return
		default:
		}
		if value, err := m.Ingress(1, netip.MustParseAddr("192.0.2.1"), false, model.TCP, 80); value != engine.ValueAllow || err != nil {
			t.Errorf("read %d: value %d, %v; want it allowed", reads, value, err)
			<-done
			return
		}
	}
}
