package policymap_test

import (
	"fmt"
	"net/netip"
	"runtime"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/rlimit"

	"porin.dev/porin/bpf"
	"porin.dev/porin/cells/policy/engine"
	"porin.dev/porin/cells/policy/model"
	"porin.dev/porin/cells/policy/policymap"
	"porin.dev/porin/internal/testutil"
)

func newMaps(tb testing.TB) policymap.Maps {
	tb.Helper()
	return newMapsOf(tb, 0)
}

// newMapsOf has room for as many prefixes; 0: for the usual number.
func newMapsOf(tb testing.TB, prefixes uint32) policymap.Maps {
	tb.Helper()
	testutil.Root(tb)
	if err := rlimit.RemoveMemlock(); err != nil {
		tb.Fatal(err)
	}
	spec, err := bpf.Endpoint()
	if err != nil {
		tb.Fatal(err)
	}
	spec.Maps[bpf.Policies].MaxEntries = 4096
	if prefixes > 0 {
		spec.Maps[bpf.Prefixes].MaxEntries = prefixes
	}
	var m policymap.Maps
	for name, to := range map[string]**ebpf.Map{
		bpf.Policies: &m.Policies, bpf.ActiveCopy: &m.ActiveCopy, bpf.Addresses: &m.Addresses, bpf.Prefixes: &m.Prefixes, bpf.Tables: &m.Tables, bpf.Rows: &m.Rows,
	} {
		if *to, err = ebpf.NewMap(spec.Maps[name]); err != nil {
			tb.Fatal(err)
		}
		tb.Cleanup(func() { (*to).Close() })
	}
	return m
}

const (
	remotePods = 10_000
	localPods  = 250
	policies   = 1_000
	apps       = 200
)

func podOf(i int, local bool) model.Endpoint {
	return model.Endpoint{
		Key: fmt.Sprintf("pod%d", i), Kind: model.Pod, Local: local, Namespace: "shop",
		Labels: map[string]string{"app": fmt.Sprint("app", i%apps)}, Addresses: []netip.Addr{netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})},
	}
}

func policyOf(i int) model.Policy {
	apply := func(app int) model.Pods {
		return model.Pods{Namespace: "shop", Labels: model.Selector{{Key: "app", Operator: model.In, Values: []string{fmt.Sprint("app", app%apps)}}}}
	}
	from := apply(7 * i)
	return model.Policy{
		ID: model.PolicyID{Kind: model.KindNetworkPolicy, Namespace: "shop", Name: fmt.Sprint("policy", i)}, Tier: model.TierNetworkPolicy, Subject: apply(i),
		Ingress: &model.Rules{{Action: model.Accept, Peers: []model.Peer{{Pods: &from}}, Ports: []model.Port{{Protocol: model.TCP, First: 80, Last: uint16(80 + i%50)}}}},
	}
}

// BenchmarkApply writes the policy of a large cluster, then one more policy, and one more label, with 10,000 pods of
// other nodes, 1,000 policies and 250 local pods.
func BenchmarkApply(b *testing.B) {
	var all engine.Update
	ids := map[string]uint16{}
	for i := range remotePods + localPods {
		all.SetEndpoints = append(all.SetEndpoints, podOf(i, i < localPods))
		if i < localPods {
			ids[podOf(i, true).Key] = uint16(i + 1)
		}
	}
	for i := range policies {
		all.SetPolicies = append(all.SetPolicies, policyOf(i))
	}
	e := engine.New(engine.Config{})
	e.Apply(all)
	maps := newMaps(b)
	apply := func(b *testing.B, w *policymap.Writer, change *engine.Change) {
		if err := w.Apply(e, change, ids); err != nil {
			b.Fatal(err)
		}
	}
	b.Run("everything", func(b *testing.B) {
		for b.Loop() {
			apply(b, policymap.New(maps), nil)
		}
	})
	w := policymap.New(maps)
	apply(b, w, nil)
	b.Run("compare", func(b *testing.B) {
		for b.Loop() {
			if found, err := w.Compare(e, ids); err != nil || len(found) > 0 {
				b.Fatalf("%+v, %v", found, err)
			}
		}
	})
	b.Run("one policy", func(b *testing.B) {
		for i := 0; b.Loop(); i++ {
			one := policyOf(i)
			one.ID.Name = "another"
			change := e.Apply(engine.Update{SetPolicies: []model.Policy{one}})
			apply(b, w, &change)
		}
	})
	b.Run("250 policies", func(b *testing.B) {
		for i := 0; b.Loop(); i++ {
			var set, removed engine.Update
			for n := range 250 {
				one := policyOf(i + n)
				one.ID.Name = fmt.Sprint("more", n)
				set.SetPolicies, removed.RemovePolicies = append(set.SetPolicies, one), append(removed.RemovePolicies, one.ID)
			}
			change := e.Apply(set)
			apply(b, w, &change)
			b.StopTimer()
			change = e.Apply(removed)
			apply(b, w, &change)
			b.StartTimer()
		}
	})
	b.Run("one label of a remote pod", func(b *testing.B) {
		for i := 0; b.Loop(); i++ {
			one := podOf(remotePods, false)
			one.Labels = map[string]string{"app": fmt.Sprint("app", i%apps)}
			change := e.Apply(engine.Update{SetEndpoints: []model.Endpoint{one}})
			apply(b, w, &change)
		}
	})
	b.Run("one local pod", func(b *testing.B) {
		for i := 0; b.Loop(); i++ {
			one := podOf(remotePods+localPods+1, true)
			ids[one.Key] = 3000
			change := e.Apply(engine.Update{SetEndpoints: []model.Endpoint{one}})
			apply(b, w, &change)
			delete(ids, one.Key)
			change = e.Apply(engine.Update{RemoveEndpoints: []string{one.Key}})
			apply(b, w, &change)
		}
	})
}

// BenchmarkMemory counts what stays of the address of a pod of another node: in the agent, and in the kernel's maps
// (Linux 6.4 and later say it).
func BenchmarkMemory(b *testing.B) {
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	size := func(m *ebpf.Map) uint64 {
		info, err := m.Info()
		if err != nil {
			b.Fatal(err)
		}
		bytes, _ := info.Memlock()
		return bytes
	}
	e, maps, ids := engine.New(engine.Config{}), newMaps(b), map[string]uint16{}
	w := policymap.New(maps)
	var local engine.Update
	for i := range localPods {
		local.SetEndpoints = append(local.SetEndpoints, podOf(i, true))
		ids[podOf(i, true).Key] = uint16(i + 1)
	}
	for i := range policies {
		local.SetPolicies = append(local.SetPolicies, policyOf(i))
	}
	e.Apply(local)
	if err := w.Apply(e, nil, ids); err != nil {
		b.Fatal(err)
	}
	local = engine.Update{}
	agent, kernel := heap(), size(maps.Addresses)+size(maps.Tables)+size(maps.Rows)
	for b.Loop() {
		var remote engine.Update
		for i := range remotePods {
			remote.SetEndpoints = append(remote.SetEndpoints, podOf(localPods+i, false))
		}
		change := e.Apply(remote)
		if err := w.Apply(e, &change, ids); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(heap()-agent)/remotePods, "agent-bytes/address")
	b.ReportMetric(float64(size(maps.Addresses)+size(maps.Tables)+size(maps.Rows)-kernel)/remotePods, "map-bytes/address")
	runtime.KeepAlive(w)
	runtime.KeepAlive(e)
}

// TestNoRoom has a policy that does not fit: it is refused, and what was before can be written again.
func TestNoRoom(t *testing.T) {
	maps := newMaps(t)
	small, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Hash, KeySize: 8, ValueSize: 4, MaxEntries: 8, Flags: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { small.Close() })
	maps.Tables = small
	e, w := engine.New(engine.Config{}), policymap.New(maps)
	ids := map[string]uint16{"pod0": 1}
	change := e.Apply(engine.Update{SetEndpoints: []model.Endpoint{podOf(0, true)}})
	if err := w.Apply(e, &change, ids); err != nil {
		t.Fatal(err)
	}
	var u, undo engine.Update
	for i := range 8 {
		one := policyOf(i * apps)
		one.ID.Name = fmt.Sprint("policy", i)
		from := &model.Pods{Namespace: "shop", Labels: model.Selector{{Key: "app", Operator: model.In, Values: []string{fmt.Sprint("app", i)}}}}
		(*one.Ingress)[0].Peers[0].Pods = from
		u.SetPolicies = append(u.SetPolicies, one)
		u.SetEndpoints = append(u.SetEndpoints, podOf(1+i, false))
		undo.RemovePolicies = append(undo.RemovePolicies, one.ID)
	}
	change = e.Apply(u)
	for range 2 {
		if err := w.Apply(e, &change, ids); err == nil {
			t.Fatal("a policy fits that is too large")
		}
	}
	change = e.Apply(undo)
	if err := w.Apply(e, &change, ids); err != nil {
		t.Errorf("what was before: %v", err)
	}
}
