package policymap_test

import (
	"errors"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"porin.dev/porin/bpf/abi"
	"porin.dev/porin/cells/policy/engine"
	"porin.dev/porin/cells/policy/model"
	"porin.dev/porin/cells/policy/oracle"
	"porin.dev/porin/cells/policy/policymap"
)

var webName = model.DNSRule{Name: "www.example"}

// namesWorld has two pods, of which the first reaches port 443 of a name, and nothing else.
func namesWorld(t *testing.T, m policymap.Maps) *world {
	w := newWorld(t, m, 1)
	w.ids = map[string]uint16{"pod0": 1, "pod1": 2}
	p := policyOf(0)
	p.Ingress, p.Egress = nil, &model.Rules{{Peers: []model.Peer{{Domain: webName}}, Ports: []model.Port{{Protocol: model.TCP, First: 443, Last: 443}}}}
	w.apply(t, engine.Update{
		SetPolicies:  []model.Policy{p},
		SetEndpoints: []model.Endpoint{podOf(0, true), podOf(1, true), {Key: "host", Kind: model.Host, Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.1")}}},
		SetUnmanaged: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/24")},
	})
	return w
}

func (w *world) apply(t *testing.T, u engine.Update) {
	t.Helper()
	change := w.e.Apply(u)
	if err := w.writer.Apply(w.e, &change, w.ids); err != nil {
		t.Fatal(err)
	}
}

// classNamed returns the class of an address in the blocks of class now, when the rules select it beside those of now.
func classNamed(e *engine.Engine, now engine.ClassID, matches func(model.DNSRule) bool) (engine.ClassID, bool) {
	rules, classes := e.NameClasses()
	at := slices.IndexFunc(classes, func(c engine.NameClass) bool { return c.Class == now })
	if at < 0 {
		return 0, false
	}
	wanted := slices.Clone(classes[at].Rules)
	for i, rule := range rules {
		if matches(rule) {
			wanted = append(wanted, i)
		}
	}
	slices.Sort(wanted)
	wanted = slices.Compact(wanted)
	for _, c := range classes {
		if c.Blocks == classes[at].Blocks && slices.Equal(c.Rules, wanted) {
			return c.Class, true
		}
	}
	return 0, false
}

func revisionOf(t *testing.T, m policymap.Maps, id uint16) uint32 {
	t.Helper()
	var p abi.Policy
	if err := m.Policies.Lookup(uint32(id), &p); err != nil {
		t.Fatal(err)
	}
	return p.Revision
}

func mapRevision(t testing.TB, m policymap.Maps) uint32 {
	t.Helper()
	revision, err := m.Revision()
	if err != nil {
		t.Fatal(err)
	}
	return revision
}

// TestOnRevision: a revision is announced before the maps have it and when all else is as they will be under it; one in between, of a change that is not complete, is not.
func TestOnRevision(t *testing.T) {
	w := namesWorld(t, newMaps(t))
	w.writer = policymap.New(w.maps)
	announced, last, partial := 0, uint32(0), 0
	addr := netip.MustParseAddr("192.0.2.7")
	w.writer.OnRevision(func(inForce, next uint32) {
		announced++
		now := mapRevision(t, w.maps)
		if now != inForce || next == inForce {
			t.Errorf("the maps have revision %d; %d is said to be in force, and %d to come", now, inForce, next)
		}
		if last != inForce && last != 0 {
			partial++
		}
		if got, err := w.maps.Egress(2, addr, model.TCP, 8443); partial > 0 && (got != engine.ValueAllow || err != nil) {
			t.Errorf("the change is announced before it is written: value %d, %v", got, err)
		}
		last = next
	})
	w.apply(t, engine.Update{}) // a whole copy
	if now := mapRevision(t, w.maps); announced != 1 || now != last {
		t.Fatalf("a copy: announced %d times, revision %d, announced %d", announced, now, last)
	}
	w.apply(t, engine.Update{SetEndpoints: []model.Endpoint{podOf(2, false)}})
	if announced != 1 {
		t.Errorf("a change that has nothing to do with names was announced")
	}
	block := policyOf(1)
	block.Egress = &model.Rules{
		{Peers: []model.Peer{{Domain: webName}}},
		{Peers: []model.Peer{{Block: &model.Block{CIDR: netip.MustParsePrefix("192.0.2.0/24")}}}, Ports: []model.Port{{Protocol: model.TCP, First: 8443, Last: 8443}}},
	}
	w.apply(t, engine.Update{SetPolicies: []model.Policy{block}})
	if now := mapRevision(t, w.maps); announced != 2 || now != last || partial != 1 {
		t.Errorf("a change in place: announced %d times, %d of them from one that was not; revision %d, announced %d", announced, partial, now, last)
	}
}

// TestNameWriter allows an address that was denied, and has the connections of the pod decided anew for which that changes something.
func TestNameWriter(t *testing.T) {
	w := namesWorld(t, newMaps(t))
	names := policymap.NewNameWriter(w.maps)
	for _, addr := range []netip.Addr{netip.MustParseAddr("192.0.2.7"), netip.MustParseAddr("2001:db8::7")} {
		before := [2]uint32{revisionOf(t, w.maps, 1), revisionOf(t, w.maps, 2)}
		class, protected, err := names.Class(mapRevision(t, w.maps), addr)
		to, ok := classNamed(w.e, class, func(model.DNSRule) bool { return true })
		if err != nil || protected || !ok {
			t.Fatalf("class %d, protected %t, reserved %t, %v", class, protected, ok, err)
		}
		if err := names.Move(mapRevision(t, w.maps), []policymap.NameMove{{Address: addr, From: class, To: to}}); err != nil {
			t.Fatal(err)
		}
		for port, want := range map[uint16]uint32{443: engine.ValueAllow, 80: engine.ValueDeny} {
			if got, err := w.maps.Egress(1, addr, model.TCP, port); got != want || err != nil {
				t.Errorf("%s port %d: value %d, %v; want %d", addr, port, got, err, want)
			}
		}
		if got, err := w.maps.Egress(1, addr.Next(), model.TCP, 443); got != engine.ValueDeny || err != nil {
			t.Errorf("the next address: value %d, %v", got, err)
		}
		if now := [2]uint32{revisionOf(t, w.maps, 1), revisionOf(t, w.maps, 2)}; now != [2]uint32{before[0] + 1, before[1]} {
			t.Errorf("revisions %v, before %v; want that of the first pod raised", now, before)
		}
		if again, _, err := names.Class(mapRevision(t, w.maps), addr); again != to || err != nil {
			t.Errorf("class %d, %v, want %d", again, err, to)
		}
	}
	for _, text := range []string{"10.0.0.0", "192.0.2.1", "10.1.0.200"} {
		if _, protected, err := names.Class(mapRevision(t, w.maps), netip.MustParseAddr(text)); !protected || err != nil {
			t.Errorf("%s: protected %t, %v", text, protected, err)
		}
	}
	w.writer = policymap.New(w.maps) // the next agent, which does not know of the addresses
	w.apply(t, engine.Update{})
	w.clean(t)
	w.wantNothing(t, "by the next agent")
}

// TestNameWriterOtherRevision writes nothing when classes may be others by now, and goes on when they are the same.
func TestNameWriterOtherRevision(t *testing.T) {
	addr, pod2 := netip.MustParseAddr("192.0.2.7"), podOf(2, false)
	more := policyOf(1)
	more.Egress = &model.Rules{{Peers: []model.Peer{{Domain: model.DNSRule{Name: "other.example"}}}}}
	for _, row := range []struct {
		name   string
		change func(w *world)
		stale  bool
	}{
		{"another pod", func(w *world) { w.apply(t, engine.Update{SetEndpoints: []model.Endpoint{pod2}}) }, false},
		{"an address of the name", func(w *world) {
			w.apply(t, engine.Update{Domains: []engine.DomainChange{{Rule: webName, Add: []netip.Addr{addr.Next()}}}})
		}, false},
		{"another rule", func(w *world) { w.apply(t, engine.Update{SetPolicies: []model.Policy{more}}) }, true},
		{"another agent", func(w *world) {
			w.writer = policymap.New(w.maps)
			w.apply(t, engine.Update{})
		}, true},
		{"two other agents", func(w *world) {
			for range 2 {
				w.writer = policymap.New(w.maps)
				w.apply(t, engine.Update{})
			}
		}, true},
	} {
		w := namesWorld(t, newMaps(t))
		names, revision := policymap.NewNameWriter(w.maps), mapRevision(t, w.maps)
		to, _ := classNamed(w.e, engine.FixedClass(model.World), func(model.DNSRule) bool { return true })
		row.change(w)
		err := names.Move(revision, []policymap.NameMove{{Address: addr, From: engine.FixedClass(model.World), To: to}})
		if errors.Is(err, policymap.ErrOtherRevision) != row.stale || !row.stale && err != nil {
			t.Errorf("%s: %v, want the revision to be another one: %t", row.name, err, row.stale)
		}
		value, err := w.maps.Egress(1, addr, model.TCP, 443)
		if err != nil || value != engine.ValueDeny != !row.stale {
			t.Errorf("%s: value %d, %v", row.name, value, err)
		}
	}
}

// TestNameWriterRoom leaves the other copy its half of the map.
func TestNameWriterRoom(t *testing.T) {
	small := newMapsOf(t, 16)
	w := namesWorld(t, small)
	names := policymap.NewNameWriter(w.maps)
	to, _ := classNamed(w.e, engine.FixedClass(model.World), func(model.DNSRule) bool { return true })
	written, addr := 0, netip.MustParseAddr("192.0.2.7")
	var err error
	for ; err == nil && written < 20; written++ {
		err = names.Move(mapRevision(t, w.maps), []policymap.NameMove{{Address: addr, From: engine.FixedClass(model.World), To: to}})
		addr = addr.Next()
	}
	if !errors.Is(err, policymap.ErrNoRoom) || written > 8 {
		t.Errorf("%d addresses were written, then %v; want %v when half of the map is full", written, err, policymap.ErrNoRoom)
	}
	w.writer = policymap.New(w.maps)
	w.apply(t, engine.Update{})
}

// TestNameWriterAgainstEngine moves random addresses as a proxy does. The maps must decide as the engine does when it is told of them.
func TestNameWriterAgainstEngine(t *testing.T) {
	m := newMaps(t)
	first := rand.Uint64()
	moved, allowed := 0, 0
	for seed := first; seed < first+40 && !t.Failed(); seed++ {
		w := newWorld(t, m, seed)
		names := policymap.NewNameWriter(m)
		for range 6 {
			w.change(t)
			name := oracle.DomainNames()[w.IntN(len(oracle.DomainNames()))]
			matches := func(rule model.DNSRule) bool { return oracle.NameMatches(rule, name) }
			c := w.Connection(oracle.World{})
			class, protected, err := names.Class(mapRevision(t, w.maps), c.To)
			if err != nil || protected != (w.e.End(c.To).Kind != model.World && w.e.End(c.To).Kind != model.Init || w.e.End(c.To).Endpoint != "") {
				t.Fatalf("seed %d: %s is protected: %t, %v; the engine says %+v", seed, c.To, protected, err, w.e.End(c.To))
			}
			to, ok := classNamed(w.e, class, matches)
			if protected || !ok || to == class {
				continue
			}
			moved++
			if err := names.Move(mapRevision(t, w.maps), []policymap.NameMove{{Address: c.To, From: class, To: to}}); err != nil {
				t.Fatal(err)
			}
			told := engine.Update{}
			for rule := range maps.Collect(w.e.Domains()) {
				if matches(rule) {
					told.Domains = append(told.Domains, engine.DomainChange{Rule: rule, Add: []netip.Addr{c.To}})
				}
			}
			change := w.e.Apply(told)
			for key, id := range w.ids {
				ep, _ := w.e.Endpoint(key)
				if len(ep.Addresses) == 0 || w.e.End(ep.Addresses[0]).Endpoint != key {
					continue
				}
				for range 5 {
					port := w.Port()
					want := w.e.Evaluate(ep.Addresses[0], c.To, model.TCP, port).Egress.Value()
					if got, err := m.Egress(id, c.To, model.TCP, port); got != want || err != nil {
						t.Errorf("seed %d: %s -> %s %d, which is of %s: value %d, %v; want %d", seed, key, c.To, port, name, got, err, want)
					}
					if want == engine.ValueAllow {
						allowed++
					}
				}
			}
			if err := w.writer.Apply(w.e, &change, w.ids); err != nil { // the same agent is there again
				t.Fatal(err)
			}
			w.wantNothing(t, "when the agent was told of it, too")
		}
	}
	if moved < 10 || allowed < 10 {
		t.Errorf("%d addresses were moved, and %d connections allowed: too few", moved, allowed)
	}
}

// BenchmarkNameWriter gives an address of a name another class, with 250 local pods.
func BenchmarkNameWriter(b *testing.B) {
	m := newMaps(b)
	w := policymap.New(m)
	e, ids := engine.New(engine.Config{}), map[string]uint16{}
	var u engine.Update
	for i := range localPods {
		u.SetEndpoints = append(u.SetEndpoints, podOf(i, true))
		p := policyOf(i)
		p.Egress = &model.Rules{{Peers: []model.Peer{{Domain: webName}}}}
		u.SetPolicies, ids[podOf(i, true).Key] = append(u.SetPolicies, p), uint16(i+1)
	}
	e.Apply(u)
	if err := w.Apply(e, nil, ids); err != nil {
		b.Fatal(err)
	}
	to, _ := classNamed(e, engine.FixedClass(model.World), func(model.DNSRule) bool { return true })
	names, addr := policymap.NewNameWriter(m), netip.MustParseAddr("192.0.2.7")
	for i := 0; b.Loop(); i++ {
		moves := []policymap.NameMove{{Address: addr, From: engine.FixedClass(model.World), To: to}}
		if i%2 == 1 {
			moves[0].From, moves[0].To = moves[0].To, moves[0].From
		}
		if i%1000 == 0 {
			names = policymap.NewNameWriter(m) // which counts
		}
		if err := names.Move(mapRevision(b, m), moves); err != nil {
			b.Fatal(err)
		}
	}
}

// TestNameWriterBesideWriter: a writer that has not waited for a proxy finds what it has written of policies, whatever the proxy does meanwhile.
func TestNameWriterBesideWriter(t *testing.T) {
	w := namesWorld(t, newMaps(t))
	to, _ := classNamed(w.e, engine.FixedClass(model.World), func(model.DNSRule) bool { return true })
	revision := mapRevision(t, w.maps)
	stop, stopped := make(chan struct{}), make(chan error, 1)
	go func() {
		names, world := policymap.NewNameWriter(w.maps), engine.FixedClass(model.World)
		var err error
		for i := 0; err == nil; i++ {
			select {
			case <-stop:
				stopped <- errors.Join(err, names.Close())
				return
			default:
			}
			move := policymap.NameMove{Address: netip.MustParseAddr("192.0.2.7"), From: world, To: to}
			if i%2 == 1 {
				move.From, move.To = to, world
			}
			err = names.Move(revision, []policymap.NameMove{move})
		}
		stopped <- errors.Join(err, names.Close())
	}()
	var p abi.Policy
	if err := w.maps.Policies.Lookup(uint32(1), &p); err != nil {
		t.Fatal(err)
	}
	idle := (revision + 1) % abi.PolicyCopies
	for table := range uint32(5000) {
		p.Egress[idle] = table
		if err := w.maps.Policies.Put(uint32(1), p); err != nil {
			t.Fatal(err)
		}
		var now abi.Policy
		for range 3 {
			if err := w.maps.Policies.Lookup(uint32(1), &now); err != nil {
				t.Fatal(err)
			}
			if now.Egress != p.Egress {
				t.Fatalf("tables %v, written %v", now.Egress, p.Egress)
			}
		}
		p.Revision = max(p.Revision, now.Revision)
	}
	close(stop)
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}
