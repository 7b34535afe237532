package policymap_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"

	"porin.dev/porin/bpf/abi"
	"porin.dev/porin/cells/policy/engine"
	"porin.dev/porin/cells/policy/model"
	"porin.dev/porin/cells/policy/policymap"
)

// TestCompareAfterChanges finds nothing after random changes, by agents that follow each other, whatever has been
// removed already.
func TestCompareAfterChanges(t *testing.T) {
	m := newMaps(t)
	first := rand.Uint64()
	for seed := first; seed < first+20; seed++ {
		w := newWorld(t, m, seed)
		for range 10 {
			w.change(t)
			w.wantNothing(t, fmt.Sprintf("seed %d: after a change", seed))
			if w.IntN(3) == 0 {
				w.clean(t)
				w.wantNothing(t, fmt.Sprintf("seed %d: after removals", seed))
			}
		}
	}
}

func (w *world) differences(t *testing.T) []policymap.Difference {
	t.Helper()
	found, err := w.writer.Compare(w.e, w.ids)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func (w *world) wantNothing(t *testing.T, when string) {
	t.Helper()
	if found := w.differences(t); len(found) > 0 {
		t.Errorf("%s: %+v", when, found)
	}
}

// clean removes what is to be removed, to the end.
func (w *world) clean(t *testing.T) {
	t.Helper()
	for w.writer.Waits() {
		<-w.writer.Removable()
		if err := w.writer.Clean(); err != nil {
			t.Fatal(err)
		}
	}
}

func firstKey[K, V any](t *testing.T, m *ebpf.Map, chosen func(K) bool) (key K, value V) {
	t.Helper()
	for entries := m.Iterate(); entries.Next(&key, &value); {
		if chosen(key) {
			return key, value
		}
	}
	t.Fatalf("map %s has no such entry", m)
	return key, value
}

// TestCompareFindsDamage damages each kind of entry by hand: Compare reports it, and writing everything again mends it.
func TestCompareFindsDamage(t *testing.T) {
	pod := netip.MustParseAddr("10.0.0.1")
	for _, row := range []struct {
		name   string
		damage func(t *testing.T, m policymap.Maps, active uint32) error
		want   string
	}{
		{"class of an address", func(_ *testing.T, m policymap.Maps, active uint32) error {
			return m.Addresses.Put(abi.AddressKey{Addr: abi.AddrOf(pod), Copy: active}, uint32(1))
		}, "differs addresses 10.0.0.1: class 1 instead of "},
		{"no address", func(_ *testing.T, m policymap.Maps, active uint32) error {
			return m.Addresses.Delete(abi.AddressKey{Addr: abi.AddrOf(pod), Copy: active})
		}, "missing addresses 10.0.0.1: missing, instead of class "},
		{"an address of nobody", func(_ *testing.T, m policymap.Maps, active uint32) error {
			return m.Addresses.Put(abi.AddressKey{Addr: abi.AddrOf(netip.MustParseAddr("10.9.9.9")), Copy: active}, uint32(1))
		}, "orphan addresses 10.9.9.9: class 1 in copy "},
		{"an address in the other copy", func(_ *testing.T, m policymap.Maps, active uint32) error {
			return m.Addresses.Put(abi.AddressKey{Addr: abi.AddrOf(pod), Copy: 1 - active}, uint32(1))
		}, "orphan addresses 10.0.0.1: class 1 in copy "},
		{"an address of nobody in the other copy", func(_ *testing.T, m policymap.Maps, active uint32) error {
			return m.Addresses.Put(abi.AddressKey{Addr: abi.AddrOf(netip.MustParseAddr("10.9.9.9")), Copy: 1 - active}, uint32(1))
		}, "orphan addresses 10.9.9.9: class 1 in copy "},
		{"class of a range", func(t *testing.T, m policymap.Maps, _ uint32) error {
			key, class := firstKey[abi.PrefixKey, uint32](t, m.Prefixes, func(k abi.PrefixKey) bool { return k.Bits == 32+96+8 })
			return m.Prefixes.Put(key, class+1)
		}, "differs prefixes 172.0.0.0/8: class "},
		{"no range of IPv4", func(_ *testing.T, m policymap.Maps, active uint32) error {
			return m.Prefixes.Delete(abi.PrefixKey{Bits: 32 + 96, Copy: active, Addr: netip.IPv4Unspecified().As16()})
		}, "missing prefixes 0.0.0.0/0: missing, instead of class 1"},
		{"a range of no policy", func(_ *testing.T, m policymap.Maps, active uint32) error {
			return m.Prefixes.Put(abi.PrefixKey{Bits: 32 + 32, Copy: active, Addr: netip.MustParseAddr("2001:db8::").As16()}, uint32(3))
		}, "orphan prefixes 2001:db8::/32: class 3 in copy "},
		{"rows of a class", func(t *testing.T, m policymap.Maps, _ uint32) error {
			key, _ := firstKey[abi.TableKey, uint32](t, m.Tables, func(k abi.TableKey) bool { return k.Class > 8 })
			return m.Tables.Put(key, abi.RowsDeny)
		}, "differs tables "},
		{"no rows for all classes", func(t *testing.T, m policymap.Maps, _ uint32) error {
			key, _ := firstKey[abi.TableKey, uint32](t, m.Tables, func(k abi.TableKey) bool { return k.Class == 0 })
			return m.Tables.Delete(key)
		}, "missing tables "},
		{"a table that no endpoint has", func(_ *testing.T, m policymap.Maps, active uint32) error {
			return m.Tables.Put(abi.TableKey{Table: 2000 + active, Class: 7}, abi.RowsAllow)
		}, "orphan tables "},
		{"a verdict", func(t *testing.T, m policymap.Maps, _ uint32) error {
			key, verdict := firstKey[abi.RowKey, uint32](t, m.Rows, func(abi.RowKey) bool { return true })
			return m.Rows.Put(key, 1-verdict)
		}, "differs rows "},
		{"no row", func(t *testing.T, m policymap.Maps, _ uint32) error {
			key, _ := firstKey[abi.RowKey, uint32](t, m.Rows, func(abi.RowKey) bool { return true })
			return m.Rows.Delete(key)
		}, "missing rows "},
		{"rows that nobody points to", func(_ *testing.T, m policymap.Maps, active uint32) error {
			return m.Rows.Put(abi.RowKey{Bits: 32, Rows: 2000 + active}, uint32(1))
		}, "orphan rows "},
		{"the table of an endpoint", func(_ *testing.T, m policymap.Maps, _ uint32) error {
			return m.Policies.Put(uint32(1), abi.Policy{Revision: 9})
		}, "differs policies 1: ingress by table 0 instead of "},
		{"the policy of no endpoint", func(_ *testing.T, m policymap.Maps, active uint32) error {
			p := abi.Policy{}
			p.Egress[active] = 7
			return m.Policies.Put(uint32(99), p)
		}, "orphan policies 99: tables 7 and 0, and there is no such endpoint"},
		{"the other copy", func(_ *testing.T, m policymap.Maps, active uint32) error {
			return m.ActiveCopy.Put(uint32(0), 1-active)
		}, "differs active_copy 0: "},
	} {
		t.Run(row.name, func(t *testing.T) {
			w := newShop(t)
			w.wantNothing(t, "before")
			var active uint32
			err := w.maps.ActiveCopy.Lookup(uint32(0), &active)
			active %= abi.PolicyCopies
			if err := errors.Join(err, row.damage(t, w.maps, active)); err != nil {
				t.Fatal(err)
			}
			found := w.differences(t)
			if len(found) != 1 || !strings.HasPrefix(fmt.Sprintf("%s %s %s: %s", found[0].Kind, found[0].Map, found[0].Key, found[0].Detail), row.want) {
				t.Errorf("found %+v, want %q", found, row.want)
			}
			if err := w.writer.Apply(w.e, nil, w.ids); err != nil {
				t.Fatal(err)
			}
			w.wantNothing(t, "written anew")
			w.clean(t)
			w.wantNothing(t, "written anew, and the other copy removed")
		})
	}
}

// newShop has two pods and a policy with ports, labels and a block, and nothing that is to be removed.
func newShop(t *testing.T) *world {
	t.Helper()
	w := newWorld(t, newMaps(t), 1)
	w.ids = map[string]uint16{"pod0": 1, "pod1": 2}
	p := policyOf(0)
	(*p.Ingress)[0].Peers[0].Pods.Labels[0].Values = []string{"app1"}
	*p.Ingress = append(*p.Ingress, model.Rule{Action: model.Accept, Peers: []model.Peer{{Block: &model.Block{CIDR: netip.MustParsePrefix("172.0.0.0/8")}}}})
	change := w.e.Apply(engine.Update{SetPolicies: []model.Policy{p}, SetEndpoints: []model.Endpoint{podOf(0, true), podOf(1, true)}})
	if err := w.writer.Apply(w.e, &change, w.ids); err != nil {
		t.Fatal(err)
	}
	w.clean(t)
	return w
}

// TestCleanRemovesOtherCopy without another change.
func TestCleanRemovesOtherCopy(t *testing.T) {
	w := newShop(t)
	if err := w.writer.Apply(w.e, nil, w.ids); err != nil {
		t.Fatal(err)
	}
	count := func() (n int) {
		var key abi.AddressKey
		var class uint32
		for entries := w.maps.Addresses.Iterate(); entries.Next(&key, &class); n++ {
		}
		return n
	}
	before := count()
	w.clean(t)
	if after := count(); before != 4 || after != 2 {
		t.Errorf("%d addresses of two copies, then %d; want 4 and 2", before, after)
	}
}

// TestCompareUnknownEndpoint has a previous agent restrict a pod that this one does not know: only its node reaches it,
// unless the node is subject to policies, and that is as it should be.
func TestCompareUnknownEndpoint(t *testing.T) {
	for _, hostPolicy := range []bool{true, false} {
		w := newShop(t)
		next := *w
		next.e, next.writer, next.ids = engine.New(engine.Config{HostPolicy: hostPolicy}), policymap.New(w.maps), nil
		node := netip.MustParseAddr("192.0.2.77")
		next.e.Apply(engine.Update{SetEndpoints: []model.Endpoint{{Key: "host", Kind: model.Host, Addresses: []netip.Addr{node}}}})
		fromNode := engine.ValueAllow
		if hostPolicy {
			fromNode = engine.ValueDeny
		}
		for range 2 {
			if err := next.writer.Apply(next.e, nil, nil); err != nil {
				t.Fatal(err)
			}
			if value, err := w.maps.Ingress(1, netip.MustParseAddr("10.0.0.1"), false, model.TCP, 80); value != engine.ValueDeny || err != nil {
				t.Errorf("the unknown pod may be reached: value %d, %v", value, err)
			}
			if value, err := w.maps.Ingress(1, node, true, model.TCP, 80); value != fromNode || err != nil {
				t.Errorf("from its node, with policies for that: %t: value %d, %v", hostPolicy, value, err)
			}
			if value, err := w.maps.Egress(1, node, model.TCP, 80); value != engine.ValueDeny || err != nil {
				t.Errorf("to its node: value %d, %v", value, err)
			}
			next.wantNothing(t, "by the next agent")
			next.clean(t)
			next.wantNothing(t, "by the next agent, later")
		}
		if err := next.writer.RemoveEndpoint(1); err != nil {
			t.Fatal(err)
		}
		next.wantNothing(t, "when the pod is gone")
		if err := next.writer.Apply(next.e, nil, nil); err != nil {
			t.Fatal(err)
		}
		next.clean(t)
		next.wantNothing(t, "when the pod is gone, later")
	}
	w := newShop(t)
	next := *w
	next.e, next.writer, next.ids = engine.New(engine.Config{}), policymap.New(w.maps), nil
	if err := next.writer.Apply(next.e, nil, nil); err != nil {
		t.Fatal(err)
	}
	if err := w.maps.Policies.Put(uint32(1), abi.Policy{}); err != nil {
		t.Fatal(err)
	}
	if found := next.differences(t); len(found) != 1 || found[0].Kind != policymap.Differs {
		t.Errorf("the unknown pod is allowed everything: found %+v", found)
	}
}

// TestForgetUnknownEndpoint has a pod that a previous agent has restricted be gone, before the next agent has written
// anything and afterwards.
func TestForgetUnknownEndpoint(t *testing.T) {
	for _, first := range []bool{true, false} {
		w := newShop(t)
		next := *w
		next.e, next.writer, next.ids = engine.New(engine.Config{}), policymap.New(w.maps), nil
		steps := []func() error{
			func() error { return next.writer.Apply(next.e, nil, nil) },
			func() error { return next.writer.RemoveEndpoint(1) },
		}
		if first {
			slices.Reverse(steps)
		}
		for _, step := range steps {
			if err := step(); err != nil {
				t.Fatal(err)
			}
		}
		var p abi.Policy
		if err := w.maps.Policies.Lookup(uint32(1), &p); err != nil || p.Egress != [2]uint32{} || p.Ingress != [2]uint32{} {
			t.Errorf("forgotten before the first write: %t: the map has %+v, %v, want no table", first, p, err)
		}
		next.wantNothing(t, "after the pod is forgotten")
	}
}

// TestForgetKnownEndpoint: what Apply was told of last stays in force.
func TestForgetKnownEndpoint(t *testing.T) {
	w := newShop(t)
	if err := w.writer.RemoveEndpoint(1); err != nil {
		t.Fatal(err)
	}
	w.wantNothing(t, "after the pod was to be forgotten")
}
