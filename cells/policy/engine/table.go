package engine

import (
	"cmp"
	"encoding/binary"
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

// build returns the table that is in force and, if it differs, the table without audit.
func (e *Engine) build(ep *endpoint, policies []*policy, d model.Direction) (inForce, proposed *table) {
	unknown := ep.Kind == model.Init
	all := buildTable(ep, policies, unknown, d)
	switch {
	case ep.Audit || ep.Local && e.config.Audit:
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
		t.addRule(r, names)
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

func (t *table) addRule(r compiledRule, names map[string]bool) {
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

// compile gives a table its rows.
func (t *table) compile(e *Engine) {
	t.any = t.rowsFor(e, t.kindRules[model.Pod], nil)
	done := map[*class]struct{}{}
	set := func(classes map[*class]struct{}) {
		for c := range classes {
			if _, ok := done[c]; !ok && !e.size.exceeded {
				done[c] = struct{}{}
				t.setRows(e, c)
			}
		}
	}
	for sel := range t.bySelector {
		for s := range sel.sets {
			set(s.classes)
		}
	}
	if t.named {
		set(e.portClasses)
	}
	for kind, classes := range e.kindClasses {
		if t.kinds || t.frees(model.EndpointKind(kind)) {
			set(classes)
		}
	}
}

// setRows gives a class rows of its own if it differs from any other one.
func (t *table) setRows(e *Engine, c *class) {
	rows := t.any
	if free := t.freeFor(e, c); free != nil {
		rows = free
	} else if rules := t.matching(c); t.kinds && c.key.kind != model.Pod || len(rules) > len(t.kindRules[model.Pod]) || t.named && len(c.ports) > 0 {
		rows = t.rowsFor(e, rules, c.ports)
	}
	if rows == t.any || rows != hostRows && rows != unmanagedRows && rows.equal(t.any) {
		delete(t.rows, c)
		return
	}
	t.rows[c] = rows
}

// frees reports whether addresses of a kind may reach this node's pods whatever policies say.
func (t *table) frees(kind model.EndpointKind) bool {
	return t.direction == model.Ingress && (kind == model.Host || kind == model.Unmanaged)
}

// freeFor returns the rows of a class that reaches this node's pods whatever policies say, nil for any other class.
func (t *table) freeFor(e *Engine, c *class) *rowSet {
	switch {
	case !t.frees(c.key.kind):
	case c.key.kind == model.Host && !e.config.HostPolicy && (t.selected || t.unknown):
		return hostRows
	case c.key.kind == model.Unmanaged && e.config.AllowUnmanaged && t.selected && !t.unknown:
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
