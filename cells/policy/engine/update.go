package engine

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"

	"porin.dev/porin/cells/policy/model"
)

// Update is a set of changes. Removals come first. A policy or endpoint that is set replaces the one of the same ID or key.
type Update struct {
	RemovePolicies  []model.PolicyID
	SetPolicies     []model.Policy
	RemoveEndpoints []string
	SetEndpoints    []model.Endpoint
}

// Change says what an update has changed. The state after it is in the engine.
type Change struct {
	Addresses []netip.Addr   // of endpoints: [Engine.End] says the class, or that no endpoint has the address
	Prefixes  []netip.Prefix // [Engine.Prefixes] has those that still exist
	Endpoints []string       // keys of local ones which have another table in a direction than before, are new, or are gone
	Tables    []TableChange  // in the order of their numbers
}

// TableChange is a change of one table.
type TableChange struct {
	Table   TableID
	New     bool        // all rows are new
	Removed bool        // no endpoint uses it any more
	Classes []ClassRows // of a table that stays: what has changed
}

// ClassRows are the rows that a class has of its own in a table.
type ClassRows struct {
	Class ClassID
	Rows  []Row // nil: it has none any more
	Gone  bool  // nothing is of this class any more
}

// transaction is the state of one update: what it has to look at again, and what it has changed.
type transaction struct {
	e            *Engine
	newSelectors []*selector
	deadSelector bool
	names        map[string]bool // were they in use before?
	blocks       []netip.Prefix
	members      []*member
	emptied      []*class
	classes      map[*class]classChange
	changed      map[*endpoint]struct{} // local endpoints whose policies or ports have changed
	newTables    []*table
	addresses    map[netip.Prefix]struct{}
	prefixes     map[netip.Prefix]struct{}
	tables       map[*table]*TableChange
	endpoints    map[string]struct{}
}

// Apply makes the changes, all together.
func (e *Engine) Apply(u Update) Change {
	tx := &transaction{
		e: e, names: map[string]bool{}, classes: map[*class]classChange{}, changed: map[*endpoint]struct{}{},
		addresses: map[netip.Prefix]struct{}{}, prefixes: map[netip.Prefix]struct{}{},
		tables: map[*table]*TableChange{}, endpoints: map[string]struct{}{},
	}
	for _, id := range u.RemovePolicies {
		if p := e.policies[id]; p != nil {
			tx.removePolicy(p)
		}
	}
	for _, p := range u.SetPolicies {
		tx.setPolicy(p)
	}
	for _, key := range u.RemoveEndpoints {
		if ep := e.endpoints[key]; ep != nil {
			tx.removeEndpoint(ep)
		}
	}
	tx.updateSelectors()
	for _, ep := range u.SetEndpoints {
		tx.setEndpoint(ep)
	}
	tx.updateNames()
	tx.reclassify()
	tx.updateTables()
	return tx.change()
}

func (tx *transaction) moved(m *member) {
	switch {
	case m.owner != nil:
		tx.addresses[m.prefix] = struct{}{}
	default:
		tx.prefixes[m.prefix] = struct{}{}
	}
}

func (tx *transaction) change() Change {
	var c Change
	for _, p := range slices.SortedFunc(maps.Keys(tx.addresses), netip.Prefix.Compare) {
		c.Addresses = append(c.Addresses, p.Addr())
	}
	c.Prefixes = slices.SortedFunc(maps.Keys(tx.prefixes), netip.Prefix.Compare)
	c.Endpoints = slices.Sorted(maps.Keys(tx.endpoints))
	for _, t := range tx.tables {
		slices.SortFunc(t.Classes, func(x, y ClassRows) int { return cmp.Compare(x.Class, y.Class) })
		c.Tables = append(c.Tables, *t)
	}
	slices.SortFunc(c.Tables, func(x, y TableChange) int { return cmp.Compare(x.Table, y.Table) })
	return c
}
