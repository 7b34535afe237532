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
	// Addresses in these ranges that no endpoint has are, or are not any more, of kind [model.Unmanaged]: unknown pods of other
	// nodes. Ranges do not overlap.
	SetUnmanaged, RemoveUnmanaged []netip.Prefix
	// Domains are changes of the addresses that names have. Changes of a rule that no policy has after the update are ignored, and a rule that
	// a policy gets now begins without addresses.
	Domains []DomainChange
}

// Change says what an update has changed. The state after it is in the engine.
type Change struct {
	Addresses []AddressChange // of endpoints
	Prefixes  []netip.Prefix  // [Engine.Prefixes] has those that still exist
	Endpoints []string        // keys of local endpoints that have another table in a direction than before, are new, or are deleted
	Tables    []TableChange   // in the order of their numbers
}

// AddressChange is an address that has another class than before, or is new or gone. [Engine.End] says which one, or that no endpoint has it.
type AddressChange struct {
	Address netip.Addr
	Before  ClassID // 0: no endpoint had it
}

// TableChange is a change of one table.
type TableChange struct {
	Table   TableID
	New     bool        // all rows are new
	Removed bool        // no endpoint uses it any more
	Classes []ClassRows // of a table that stays: its changes
}

// ClassRows are the rows that a class has of its own in a table.
type ClassRows struct {
	Class ClassID
	Rows  []Row // nil: it has none any more
	Gone  bool  // nothing is of this class any more
}

// transaction is the state of one update: the objects to look at again, and its changes.
type transaction struct {
	e            *Engine
	newSelectors []*selector
	deadSelector bool
	names        map[string]bool // were they in use before?
	blocks       []netip.Prefix
	places       []place // of members to look at again
	dirtyPlaces  map[place]struct{}
	emptied      []*class
	classes      map[*class]classChange
	changed      map[*local]struct{} // whose policies or ports have changed
	newTables    []*table
	addresses    map[netip.Prefix]*class // before; nil: no endpoint had it
	prefixes     map[netip.Prefix]*class // before; nil: it is new
	tables       map[*table]*TableChange
	endpoints    map[string]struct{}
}

// Apply makes the changes, all together.
func (e *Engine) Apply(u Update) Change {
	tx := &transaction{
		e: e, dirtyPlaces: map[place]struct{}{}, names: map[string]bool{}, classes: map[*class]classChange{}, changed: map[*local]struct{}{},
		addresses: map[netip.Prefix]*class{}, prefixes: map[netip.Prefix]*class{},
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
	for _, cidr := range u.RemoveUnmanaged {
		tx.setUnmanaged(cidr, false)
	}
	for _, cidr := range u.SetUnmanaged {
		tx.setUnmanaged(cidr, true)
	}
	for _, d := range u.Domains {
		if sel := e.selectors[domainKey(d.Rule)]; sel != nil {
			tx.changeDomain(sel, d.Add, d.Remove)
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

// moved notes a member that leaves its class, or has had none.
func (tx *transaction) moved(p place, m member) {
	before := tx.addresses
	if p.isRange {
		before = tx.prefixes
	}
	if _, again := before[p.cidr]; !again {
		before[p.cidr] = m.class
	}
}

func (tx *transaction) change() Change {
	var c Change
	for _, p := range slices.SortedFunc(maps.Keys(tx.addresses), netip.Prefix.Compare) {
		c.Addresses = append(c.Addresses, AddressChange{p.Addr(), idOf(tx.addresses[p])})
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
