package oracle_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"porin.dev/porin/cells/policy/engine"
	"porin.dev/porin/cells/policy/model"
	"porin.dev/porin/cells/policy/oracle"
)

// TestNameClassesAgainstOracle gives addresses the classes that are reserved for names, as a proxy without an agent does: the rows must say what the oracle says when the
// name has the address.
func TestNameClassesAgainstOracle(t *testing.T) {
	first := *seed
	if first == 0 {
		first = rand.Uint64()
	}
	t.Logf("-seed=%d", first)
	var n nameCounts
	for seed := first; n.asked < *cases/4 && !t.Failed(); seed++ {
		compareNameClasses(t, seed, &n)
	}
	// Of forty runs two had less than a twentieth: the worlds are few.
	if n.decided < n.asked/50 || n.unknown > n.decided/10 {
		t.Errorf("-seed=%d: of %d connections, %d were decided by a reserved class, and for %d there was none", first, n.asked, n.decided, n.unknown)
	}
}

type nameCounts struct{ asked, decided, unknown int }

func compareNameClasses(t *testing.T, seed uint64, n *nameCounts) {
	r := oracle.NewRandom(seed)
	world := oracle.World{Names: map[string][]netip.Addr{}}
	e := engine.New(engine.Config{NameSets: func(rules []model.DNSRule) (sets [][]int) {
		for _, name := range oracle.DomainNames() {
			sets = append(sets, matching(rules, name))
		}
		return sets
	}})
	d := newDatapath(e)
	var history []model.Endpoint
	told := map[model.DNSRule][]netip.Addr{}
	for range 1 + r.IntN(6) {
		u := update(r, &world, &history)
		u.Domains = tellDomains(world, told)
		before := e.NameRevision()
		rules, classes := e.NameClasses()
		if err := d.follow(e.Apply(u)); err != nil {
			t.Fatalf("-seed=%d: %v", seed, err)
		}
		if e.NameRevision() == before {
			newRules, newClasses := e.NameClasses()
			if !slices.Equal(rules, newRules) || !slices.EqualFunc(classes, newClasses, sameClass) {
				t.Fatalf("-seed=%d: other classes under the same revision", seed)
			}
		}
		for range 40 {
			n.asked++
			c := r.Connection(world)
			if r.IntN(2) == 0 {
				c.To = netip.AddrFrom4([4]byte{192, 0, 2, byte(r.IntN(12))})
			}
			if fault := d.compareName(r, world, c, n); fault != "" {
				t.Fatalf("-seed=%d: %s\n%s", seed, fault, describe(world))
			}
		}
	}
}

func sameClass(x, y engine.NameClass) bool {
	return x.Class == y.Class && x.Blocks == y.Blocks && slices.Equal(x.Rules, y.Rules)
}

func matching(rules []model.DNSRule, name string) (set []int) {
	for i, rule := range rules {
		if oracle.NameMatches(rule, name) {
			set = append(set, i)
		}
	}
	return set
}

func (d *datapath) compareName(r oracle.Random, world oracle.World, c oracle.Connection, n *nameCounts) string {
	name := oracle.DomainNames()[r.IntN(len(oracle.DomainNames()))]
	rules, classes := d.e.NameClasses()
	set := matching(rules, name)
	if len(set) == 0 || d.e.End(c.To).Kind != model.World || !d.isLocal(c.From) {
		return ""
	}
	now := slices.IndexFunc(classes, func(x engine.NameClass) bool { return x.Class == d.class(c.To) })
	if now < 0 {
		n.unknown++
		return ""
	}
	want := slices.Compact(slices.Sorted(slices.Values(slices.Concat(classes[now].Rules, set))))
	then := slices.IndexFunc(classes, func(x engine.NameClass) bool { return x.Blocks == classes[now].Blocks && slices.Equal(x.Rules, want) })
	if then < 0 {
		n.unknown++
		return ""
	}
	n.decided++
	cidr := netip.PrefixFrom(c.To, c.To.BitLen())
	was, had := d.prefixes[cidr]
	d.prefixes[cidr] = classes[then].Class
	defer func() {
		if delete(d.prefixes, cidr); had {
			d.prefixes[cidr] = was
		}
	}()
	world.Names = maps.Clone(world.Names)
	world.Names[name] = append(slices.Clone(world.Names[name]), c.To)
	egress, _ := world.Evaluate(c)
	if got, has := d.decide(c.From, c.To, model.Egress, c); has && !same(egress, got) {
		return fmt.Sprintf("%s -> %s %s %d, which %s has: the oracle says %+v, the rows of class %d say %s", c.From, c.To, c.Protocol, c.Port, name, egress,
			classes[then].Class, got)
	}
	return ""
}
