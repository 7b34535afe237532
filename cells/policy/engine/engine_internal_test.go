package engine

import (
	"maps"
	"slices"
	"testing"

	"porin.dev/porin/cells/policy/model"
	"porin.dev/porin/cells/policy/oracle"
)

func TestApplyRemovesEverything(t *testing.T) {
	for seed := range uint64(200) {
		r := oracle.NewRandom(seed)
		e := New(Config{})
		for range 4 {
			var u Update
			for range 5 {
				u.SetPolicies = append(u.SetPolicies, r.Policy())
				u.SetEndpoints = append(u.SetEndpoints, r.Endpoint())
			}
			e.Apply(u)
		}
		u := Update{RemovePolicies: slices.Collect(maps.Keys(e.policies.byID)), RemoveEndpoints: slices.Collect(maps.Keys(e.endpoints.byKey))}
		change := e.Apply(u)
		fixed := int(model.Pod) // one for each kind below
		left := 0
		for _, classes := range e.classes.byKind {
			left += len(classes)
		}
		for what, n := range map[string]int{
			"policies": len(e.policies.byID), "endpoints": len(e.endpoints.byKey), "local endpoints": len(e.policies.local), "selectors but that of all pods": len(e.selectors.byKey) - 1,
			"selector sets but the empty one": len(e.selectors.sets) - 1, "namespaces": len(e.endpoints.namespaces), "names": len(e.endpoints.names.rules), "addresses": e.addresses.table.Size(),
			"prefixes": e.addresses.ranges.Size(), "classes but the fixed ones": len(e.classes.byKey) - fixed, "classes of the empty set": len(e.selectors.none.classes) - fixed,
			"classes of kinds but the fixed ones": left - fixed, "classes with ports": len(e.classes.withPorts), "tables": len(e.tables.byKey),
			"layer 7 rules in rows": len(e.Layer7()), "tables with names": len(e.tables.named), "ingress tables": len(e.tables.ingress), "tables with kinds": len(e.tables.kinds),
		} {
			if n != 0 {
				t.Errorf("seed %d: %d %s are left", seed, n, what)
			}
		}
		e.ReleaseLayer7(e.UnusedLayer7())
		if n := len(e.layer7s.byNumber) + len(e.layer7s.byContent); n != 0 || e.size.work != 0 {
			t.Errorf("seed %d: %d layer 7 rules are left, and work %d", seed, n, e.size.work)
		}
		for _, table := range change.Tables {
			if !table.Removed {
				t.Errorf("seed %d: the last change has %+v, want only removed tables", seed, table)
			}
		}
	}
}

func TestRowsAreDisjoint(t *testing.T) {
	for seed := range uint64(300) {
		r := oracle.NewRandom(seed)
		e := New(Config{})
		var u Update
		for range 10 {
			u.SetPolicies = append(u.SetPolicies, r.Policy())
			u.SetEndpoints = append(u.SetEndpoints, r.Endpoint())
		}
		e.Apply(u)
		for _, table := range e.tables.byKey {
			sets := append(slices.Collect(maps.Values(table.rows)), table.any)
			for _, set := range sets {
				checkDisjoint(t, set.rows)
			}
		}
	}
}

func checkDisjoint(t *testing.T, rows []Row) {
	t.Helper()
	if rows[0].Protocol != 0 || rows[0].Bits != 0 {
		t.Errorf("the first row is %+v, want that for all protocols", rows[0])
	}
	for i, x := range rows {
		if x.Bits < 16 && x.Port<<x.Bits != 0 {
			t.Errorf("%+v: bits are set behind the prefix", x)
		}
		for _, y := range rows[i+1:] {
			short := min(x.Bits, y.Bits)
			overlap := x.Protocol == y.Protocol && (x.Port^y.Port)>>(16-short) == 0
			if overlap && (short > 0 || x.Bits == y.Bits) {
				t.Errorf("%+v and %+v match together", x, y)
			}
		}
	}
}
