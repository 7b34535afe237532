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
		u := Update{RemovePolicies: slices.Collect(maps.Keys(e.policies)), RemoveEndpoints: slices.Collect(maps.Keys(e.endpoints))}
		change := e.Apply(u)
		fixed := int(model.Pod) // one for each kind below
		left := 0
		for _, classes := range e.kindClasses {
			left += len(classes)
		}
		for what, n := range map[string]int{
			"policies": len(e.policies), "endpoints": len(e.endpoints), "local endpoints": len(e.local), "selectors but that of all pods": len(e.selectors) - 1,
			"selector sets but the empty one": len(e.selectorSets) - 1, "namespaces": len(e.namespaces), "names": len(e.names), "addresses": e.addresses.Size(),
			"prefixes": e.prefixes.Size(), "classes but the fixed ones": len(e.classes) - fixed, "classes of the empty set": len(e.noSelectors.classes) - fixed,
			"classes of kinds but the fixed ones": left - fixed, "classes with ports": len(e.portClasses), "tables": len(e.tables),
			"layer 7 rules in rows": len(e.Layer7()), "tables with names": len(e.nameTables), "ingress tables": len(e.ingressTables), "tables with kinds": len(e.kindTables),
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
		for _, table := range e.tables {
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
