package policy

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"

	"porin.dev/porin/cells/policy/engine"
)

// Enforcer writes into the kernel what the engine says.
type Enforcer interface {
	// Apply writes a change. The first call has everything that the engine knows: until then, what former agents wrote stays in force.
	// locals has the endpoint number of each local endpoint that the engine knows; Apply does not keep it. After an error the next call
	// has this change together with what has changed since, and the kernel may have any part of it until then.
	// It is called from one goroutine at a time, and the engine does not change during a call.
	Apply(e *engine.Engine, change engine.Change, locals map[string]uint16) error
}

// noEnforcer is for a program without a datapath.
type noEnforcer struct{}

func (noEnforcer) Apply(*engine.Engine, engine.Change, map[string]uint16) error { return nil }

// merged is one change in place of two that follow each other.
func merged(a, b engine.Change) engine.Change {
	if isEmpty(a) {
		return b
	}
	return engine.Change{
		Addresses: union(a.Addresses, b.Addresses, netip.Addr.Compare),
		Prefixes:  union(a.Prefixes, b.Prefixes, netip.Prefix.Compare),
		Endpoints: union(a.Endpoints, b.Endpoints, cmp.Compare[string]),
		Tables:    mergedTables(a.Tables, b.Tables),
	}
}

func isEmpty(c engine.Change) bool {
	return len(c.Addresses)+len(c.Prefixes)+len(c.Endpoints)+len(c.Tables) == 0
}

func union[T any](a, b []T, compare func(T, T) int) []T {
	all := slices.Concat(a, b)
	slices.SortFunc(all, compare)
	return slices.CompactFunc(all, func(x, y T) bool { return compare(x, y) == 0 })
}

// mergedTables leaves out no table that is removed: the kernel may have a part of it.
func mergedTables(a, b []engine.TableChange) []engine.TableChange {
	all := map[engine.TableID]engine.TableChange{}
	for _, c := range slices.Concat(a, b) {
		was, ok := all[c.Table]
		switch {
		case !ok || c.Removed:
			all[c.Table] = c
		case !was.New: // of a new one all rows are new
			was.Classes = union(was.Classes, c.Classes, cmp.Compare[engine.ClassID])
			all[c.Table] = was
		}
	}
	return slices.SortedFunc(maps.Values(all), func(x, y engine.TableChange) int { return cmp.Compare(x.Table, y.Table) })
}
