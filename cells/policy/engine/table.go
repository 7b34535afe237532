package engine

import (
	"cmp"
	"encoding/binary"
	"maps"
	"slices"
	"strconv"

	"porin.dev/porin/cells/policy/model"
)

// TableID is the number of a table. It is never used again, and stands for the same policies as long as it exists.
type TableID uint32

// table is what a set of policies says in one direction.
type table struct {
	id         TableID
	key        string
	direction  model.Direction
	unknown    bool // the endpoint's labels are not known
	selected   bool // there are policies
	rules      []compiledRule
	denies     *Rule                  // the first policy that denies by default
	ports      []model.NamedPort      // of the endpoint, for ingress
	named      bool                   // rules ask for named ports of the peers
	kindRules  [model.Pod + 1][]int32 // that match every peer of a kind
	kinds      bool                   // they differ
	icmp       bool                   // rules tell types of ICMP apart
	bySelector map[*selector][]int32
	refs       int

	any  *rowSet
	rows map[*class]*rowSet
	seen map[string]*rowSet // by the rules that match, and the peer's named ports
	work int                // of seen

	layer7s   map[*Layer7]struct{} // that are in rows
	conflicts map[*Rule]struct{}   // whose layer 7 rules are for several protocols, on the same connections
}

// tables are the tables of all local endpoints.
type tables struct {
	config  Config
	byKey   map[string]*table
	last    TableID
	named   map[*table]struct{} // for egress, with named ports in their rules
	ingress map[*table]struct{} // for ingress
	kinds   map[*table]struct{} // whose rules tell kinds apart
	classes *classes
	layer7s *layer7s
	size    *size
}

// update gives changed endpoints their tables, changed classes their rows in the tables that there were, and new
// tables all rows. The classes have the key that they had before.
func (x *tables) update(changed map[*local]struct{}, gone []*local, classes map[*class]classKey) (change Change) {
	changes := map[*table]*TableChange{}
	endpoints := map[string]struct{}{}
	for _, ep := range gone {
		endpoints[ep.Key] = struct{}{}
		for _, t := range ep.tables {
			x.release(t, changes)
		}
	}
	var added []*table
	for ep := range changed {
		for _, d := range []model.Direction{model.Egress, model.Ingress} {
			built, proposed := x.build(ep.endpoint, ep.policies, d)
			ep.proposed[d] = proposed
			t := x.byKey[built.key]
			if t == nil {
				t = built
				x.last++
				t.id = x.last
				x.byKey[t.key] = t
				for sel := range t.bySelector {
					sel.tables[t] = struct{}{}
				}
				if t.named {
					x.named[t] = struct{}{}
				}
				if d == model.Ingress {
					x.ingress[t] = struct{}{}
				}
				if t.kinds {
					x.kinds[t] = struct{}{}
				}
				added = append(added, t)
				changes[t] = &TableChange{Table: t.id, New: true}
			}
			if old := ep.tables[d]; t != old {
				t.refs++
				ep.tables[d] = t
				endpoints[ep.Key] = struct{}{}
				x.release(old, changes)
			}
		}
	}
	for c, before := range classes {
		x.updateClass(c, before, changes)
	}
	for _, t := range added {
		if t.refs > 0 {
			x.compile(t)
		}
	}
	for _, t := range changes {
		slices.SortFunc(t.Classes, func(x, y ClassRows) int { return cmp.Compare(x.Class, y.Class) })
		change.Tables = append(change.Tables, *t)
	}
	slices.SortFunc(change.Tables, func(x, y TableChange) int { return cmp.Compare(x.Table, y.Table) })
	change.Endpoints = slices.Sorted(maps.Keys(endpoints))
	return change
}

// release removes a reference to a table, if there is one.
func (x *tables) release(t *table, changes map[*table]*TableChange) {
	if t == nil {
		return
	}
	if t.refs--; t.refs > 0 {
		return
	}
	delete(x.byKey, t.key)
	x.size.addWork(-t.work)
	for l := range t.layer7s {
		l.tables--
	}
	delete(x.named, t)
	delete(x.ingress, t)
	delete(x.kinds, t)
	for sel := range t.bySelector {
		delete(sel.tables, t)
	}
	if change := changes[t]; change != nil && change.New {
		delete(changes, t)
		return
	}
	changes[t] = &TableChange{Table: t.id, Removed: true}
}

// build returns the table that is in force and, if it differs, the table without audit.
func (x *tables) build(ep *endpoint, policies []*policy, d model.Direction) (inForce, proposed *table) {
	unknown := ep.Kind == model.Init
	all := buildTable(ep, policies, unknown, d)
	switch {
	case ep.Audit || ep.Local && x.config.Audit:
		inForce = buildTable(ep, nil, false, d)
	case slices.ContainsFunc(policies, (*policy).inAudit):
		inForce = buildTable(ep, slices.DeleteFunc(slices.Clone(policies), (*policy).inAudit), unknown, d)
	}
	if inForce == nil || inForce.key == all.key {
		return all, nil
	}
	return inForce, all
}

// buildTable returns a table without rows and number.
func buildTable(ep *endpoint, policies []*policy, unknown bool, d model.Direction) *table {
	t := &table{
		direction: d, unknown: unknown, bySelector: map[*selector][]int32{}, rows: map[*class]*rowSet{}, seen: map[string]*rowSet{},
		layer7s: map[*Layer7]struct{}{}, conflicts: map[*Rule]struct{}{},
	}
	key := strconv.AppendBool([]byte{byte(d)}, t.unknown)
	names := map[string]bool{}
	var rules []compiledRule
	for _, p := range policies {
		if p.Part(d) == nil {
			continue
		}
		t.selected = true
		key = binary.BigEndian.AppendUint64(key, p.serial)
		if t.denies == nil {
			t.denies = p.denies[d]
		}
		rules = append(rules, p.rules[d]...)
	}
	byTurn := func(x, y compiledRule) int { return cmp.Compare(x.turn(), y.turn()) }
	if !slices.IsSortedFunc(rules, byTurn) { // mostly they are
		slices.SortStableFunc(rules, byTurn)
	}
	for _, r := range rules {
		i := int32(len(t.rules))
		t.rules = append(t.rules, r)
		for kind := range t.kindRules {
			if r.any || r.kinds.Has(model.EndpointKind(kind)) {
				t.kindRules[kind] = append(t.kindRules[kind], i)
			}
		}
		t.kinds = t.kinds || !r.any && r.kinds != 0
		for _, sel := range r.selectors {
			t.bySelector[sel] = append(t.bySelector[sel], i)
		}
		for _, p := range r.ports {
			t.icmp = t.icmp || p.Protocol.IsICMP()
			if p.Name != "" {
				names[p.Name] = true
			}
		}
	}
	if d == model.Egress {
		t.named = len(names) > 0
	} else {
		for _, p := range ep.ports {
			if names[p.Name] {
				t.ports = append(t.ports, p)
			}
		}
	}
	t.key = string(key) + portsKey(t.ports)
	return t
}

// updateClass brings a class that had another key before up to date in the tables that were compiled. A new class has
// the zero key before.
func (x *tables) updateClass(c *class, before classKey, changes map[*table]*TableChange) {
	exists := x.classes.byKey[c.key] == c
	affected := map[*table]struct{}{}
	if exists && before.labels != nil && before.ports == c.key.ports && before.kind == c.key.kind {
		// Only selectors that match one of the two keys tell them apart.
		xs, ys := before.uses(), c.key.uses()
		for _, sel := range slices.Concat(xs, ys) {
			if !slices.Contains(xs, sel) || !slices.Contains(ys, sel) {
				maps.Copy(affected, sel.tables)
			}
		}
	} else {
		x.mentioning(before, affected)
		x.mentioning(c.key, affected)
	}
	for t := range affected {
		if t.any == nil || x.size.exceeded {
			continue // new
		}
		rows := t.rows[c]
		if exists {
			x.setRows(t, c)
		} else {
			delete(t.rows, c)
		}
		if t.rows[c] == rows {
			continue
		}
		if changes[t] == nil {
			changes[t] = &TableChange{Table: t.id}
		}
		own := ClassRows{Class: c.id, Gone: !exists}
		if set := t.rows[c]; set != nil {
			own.Rows = set.rows
		}
		changes[t].Classes = append(changes[t].Classes, own)
	}
}

// mentioning adds the tables that may have rows of their own for a class with the key.
func (x *tables) mentioning(key classKey, found map[*table]struct{}) {
	if key.labels == nil {
		return // of no class
	}
	for _, sel := range key.uses() {
		maps.Copy(found, sel.tables)
	}
	if key.ports != "" {
		maps.Copy(found, x.named)
	}
	if key.kind != model.Pod {
		maps.Copy(found, x.kinds)
	}
	if key.kind == model.Host || key.kind == model.Unmanaged {
		maps.Copy(found, x.ingress)
	}
}

// compile gives a table its rows.
func (x *tables) compile(t *table) {
	t.any = x.rowsFor(t, t.kindRules[model.Pod], nil)
	done := map[*class]struct{}{}
	set := func(classes map[*class]struct{}) {
		for c := range classes {
			if _, ok := done[c]; !ok && !x.size.exceeded {
				done[c] = struct{}{}
				x.setRows(t, c)
			}
		}
	}
	for sel := range t.bySelector {
		for s := range sel.sets {
			set(s.classes)
		}
	}
	if t.named {
		set(x.classes.withPorts)
	}
	for kind, classes := range x.classes.byKind {
		isFree := kind == int(model.Host) || kind == int(model.Unmanaged)
		if t.kinds || t.direction == model.Ingress && isFree {
			set(classes)
		}
	}
}

// setRows gives a class rows of its own if it differs from any other one.
func (x *tables) setRows(t *table, c *class) {
	rows := t.any
	if free := t.freeFor(x.config, c); free != nil {
		rows = free
	} else if rules := t.matching(c); t.kinds && c.key.kind != model.Pod || len(rules) > len(t.kindRules[model.Pod]) || t.named && len(c.ports) > 0 {
		rows = x.rowsFor(t, rules, c.ports)
	}
	if rows == t.any || rows != hostRows && rows != unmanagedRows && rows.equal(t.any) {
		delete(t.rows, c)
		return
	}
	t.rows[c] = rows
}

// freeFor returns the rows of a class that reaches this node's pods whatever policies say, nil for any other class.
func (t *table) freeFor(config Config, c *class) *rowSet {
	switch {
	case t.direction != model.Ingress:
	case c.key.kind == model.Host && !config.HostPolicy && (t.selected || t.unknown):
		return hostRows
	case c.key.kind == model.Unmanaged && config.AllowUnmanaged && t.selected && !t.unknown:
		return unmanagedRows
	}
	return nil
}

// matching returns the rules that match a class, in their order.
func (t *table) matching(c *class) []int32 {
	found := t.kindRules[c.key.kind]
	owned := false
	for _, selectors := range [][]*selector{c.key.labels.selectors, c.key.blocks.selectors} {
		for _, sel := range selectors {
			if rules, ok := t.bySelector[sel]; ok && sel.covers(c.key.kind) {
				if !owned {
					found, owned = slices.Clone(found), true
				}
				found = append(found, rules...)
			}
		}
	}
	if owned {
		slices.Sort(found)
		found = slices.Compact(found)
	}
	return found
}
