package engine

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"net/netip"
	"slices"

	"porin.dev/porin/cells/policy/model"
)

// End returns what the policies know about an address.
func (e *Engine) End(addr netip.Addr) End {
	c, owner := e.addresses.lookup(addr)
	end := End{Address: addr.Unmap(), Kind: c.key.kind, Class: c.id}
	if owner != nil {
		end.Kind, end.Endpoint, end.Namespace, end.Name = owner.Kind, owner.Key, owner.namespace.name, owner.Name
	}
	return end
}

// Addresses gives the addresses of endpoints and their classes.
func (e *Engine) Addresses() iter.Seq2[netip.Addr, ClassID] {
	return func(yield func(netip.Addr, ClassID) bool) {
		for cidr, m := range e.addresses.table.All() {
			if !yield(cidr.Addr(), m.class.id) {
				return
			}
		}
	}
}

// Prefixes gives the classes of ranges of addresses that are no endpoint's. The longest one decides.
func (e *Engine) Prefixes() iter.Seq2[netip.Prefix, ClassID] {
	return func(yield func(netip.Prefix, ClassID) bool) {
		for cidr, p := range e.addresses.ranges.All() {
			if !yield(cidr, p.class.id) {
				return
			}
		}
	}
}

// Prefix returns the class of a range, and whether the range itself is there: without it, the class is the one of the
// longest range around it.
func (e *Engine) Prefix(cidr netip.Prefix) (class ClassID, ok bool) {
	if p, ok := e.addresses.ranges.Get(cidr); ok {
		return p.class.id, true
	}
	if p, ok := e.addresses.ranges.LookupPrefix(cidr); ok {
		return p.class.id, false
	}
	return FixedClass(model.World), false
}

// IsUnmanaged reports whether the addresses in a range of [Engine.Prefixes] are of kind [model.Unmanaged].
func (e *Engine) IsUnmanaged(cidr netip.Prefix) bool {
	p, ok := e.addresses.ranges.Get(cidr)
	return ok && p.class.key.kind == model.Unmanaged
}

// Classes returns how many classes there are, those with a fixed number included.
func (e *Engine) Classes() int { return len(e.classes.byKey) }

// Domains gives the rules for names that policies have, with the addresses that the engine was told of.
func (e *Engine) Domains() iter.Seq2[model.DNSRule, []netip.Addr] {
	return func(yield func(model.DNSRule, []netip.Addr) bool) {
		for _, sel := range e.selectors.byKey {
			if isDomain(sel.peer) && !yield(sel.peer.Domain, slices.SortedFunc(maps.Keys(sel.addresses), netip.Addr.Compare)) {
				return
			}
		}
	}
}

// DomainsAt returns the rules that select an address by a name.
func (e *Engine) DomainsAt(addr netip.Addr) (rules []model.DNSRule) {
	c, _ := e.addresses.lookup(addr)
	for _, sel := range c.key.blocks.selectors {
		if isDomain(sel.peer) && sel.covers(c.key.kind) {
			rules = append(rules, sel.peer.Domain)
		}
	}
	return rules
}

// Endpoint returns the endpoint with that key, as it was set, but for labels that selectors for its kind do not look
// at.
func (e *Engine) Endpoint(key string) (model.Endpoint, bool) {
	if ep := e.endpoints.byKey[key]; ep != nil {
		return ep.model(), true
	}
	return model.Endpoint{}, false
}

// Endpoints gives all endpoints, as [Engine.Endpoint] does.
func (e *Engine) Endpoints() iter.Seq[model.Endpoint] {
	return func(yield func(model.Endpoint) bool) {
		for _, ep := range e.endpoints.byKey {
			if !yield(ep.model()) {
				return
			}
		}
	}
}

// Selects reports whether the policy is for a local endpoint.
func (e *Engine) Selects(id model.PolicyID) bool {
	for _, own := range e.policies.local {
		if slices.ContainsFunc(own.policies, func(p *policy) bool { return p.ID == id }) {
			return true
		}
	}
	return false
}

// Table returns the rows for a local endpoint.
func (e *Engine) Table(endpoint string, d model.Direction) (Table, bool) {
	ep := e.policies.local[endpoint]
	if ep == nil {
		return Table{}, false
	}
	return Table{ep.tables[d]}, true
}

// InAudit reports whether a local endpoint would be restricted otherwise if nothing was in audit.
func (e *Engine) InAudit(endpoint string) bool {
	ep := e.policies.local[endpoint]
	return ep != nil && ep.proposed != [2]*table{}
}

// Evaluate decides about a connection between two addresses, as they are after translation. It evaluates the rules
// themselves, not the rows of tables, and the policies of remote pods, too. A caller that knows that a connection from
// a node's address is forwarded asks for its original source.
func (e *Engine) Evaluate(from, to netip.Addr, protocol model.Protocol, port uint16) Verdict {
	v := Verdict{From: e.End(from), To: e.End(to)}
	v.Egress, v.AuditEgress = e.evaluate(from, to, model.Egress, protocol, port)
	v.Ingress, v.AuditIngress = e.evaluate(to, from, model.Ingress, protocol, port)
	v.Allowed = v.Egress.Allowed && v.Ingress.Allowed
	return v
}

func (e *Engine) evaluate(subject, peer netip.Addr, d model.Direction, protocol model.Protocol, port uint16) (decision Decision, audit *Decision) {
	_, ep := e.addresses.lookup(subject)
	c, other := e.addresses.lookup(peer)
	switch {
	case ep == nil || !ep.subject():
		return Decision{Allowed: true, Reason: ReasonNoSubject}, nil
	case other == ep:
		return Decision{Allowed: true, Reason: ReasonSelf}, nil
	}
	var inForce, proposed *table
	if own := e.policies.local[ep.Key]; own != nil {
		inForce, proposed = own.tables[d], own.proposed[d]
	} else {
		inForce, proposed = e.tables.build(ep, e.policies.of(ep), d)
	}
	decision = e.decideFor(ep, inForce, c, protocol, port)
	if !ep.Local && decision.Reason == ReasonNoPolicy { // policies may be given to that node alone
		decision.Reason = ReasonOtherNode
	}
	if proposed != nil {
		if would := e.decideFor(ep, proposed, c, protocol, port); !would.equal(decision) {
			audit = &would
		}
	}
	return decision, audit
}

// decideFor is a table's decision about an endpoint and a class.
func (e *Engine) decideFor(ep *endpoint, t *table, c *class, protocol model.Protocol, port uint16) Decision {
	if free := t.freeFor(e.config, c); ep.Local && free != nil {
		return free.rows[0].Decision
	}
	ports := c.ports
	if t.direction == model.Ingress {
		ports = t.ports
	}
	switch {
	case protocol.IsICMP():
		port = protocol.EchoRequest() // a ping is what one asks about
	case !protocol.HasPorts():
		protocol = 0
	}
	decision := t.decide(t.matching(c), ports, protocol, port)
	if decision.Layer7 != nil {
		decision.Layer7 = cmp.Or(e.layer7s.byContent[decision.Layer7.content], decision.Layer7) // as rows have them
	}
	return decision
}

// Reports returns all reports, in the order of evaluation.
func (e *Engine) Reports() (reports []Report) {
	conflicts := map[*Rule]struct{}{}
	for _, t := range e.tables.byKey {
		maps.Copy(conflicts, t.conflicts)
	}
	policies := slices.SortedFunc(maps.Values(e.policies.byID), before)
	for len(policies) > 0 {
		first := policies[0]
		n := slices.IndexFunc(policies, func(p *policy) bool { return p.Tier != first.Tier || p.Priority != first.Priority })
		if n < 0 {
			n = len(policies)
		}
		if n > 1 && first.Tier != model.TierNetworkPolicy {
			r := Report{Text: fmt.Sprintf("equal priority %d in tier %s: evaluated in the order of kind and name", first.Priority, first.Tier)}
			for _, p := range policies[:n] {
				r.Policies = append(r.Policies, p.ID)
			}
			reports = append(reports, r)
		}
		for _, p := range policies[:n] {
			reports = append(reports, e.policies.domainReports(p)...)
			for d, rules := range p.rules {
				for i, r := range rules {
					if _, ok := conflicts[r.rule]; ok {
						reports = append(reports, Report{
							Policies: []model.PolicyID{p.ID},
							Text:     fmt.Sprintf("%s rule %d: rules for HTTP and for DNS accept the same connections, which are denied", model.Direction(d), i),
						})
					}
				}
			}
		}
		policies = policies[n:]
	}
	return reports
}

// Layer7 returns the layer 7 rules that rows have.
func (e *Engine) Layer7() []*Layer7 {
	return e.layer7s.list(func(l *Layer7) bool { return l.tables > 0 })
}

// UnusedLayer7 returns the rules that rows had. Their numbers stand for them until they are released.
func (e *Engine) UnusedLayer7() []*Layer7 {
	return e.layer7s.list(func(l *Layer7) bool { return l.tables == 0 })
}

// KnowsLayer7 reports whether the number of the rules stands for them.
func (e *Engine) KnowsLayer7(l *Layer7) bool { return e.layer7s.byNumber[l.Number] == l }

// Exceeded reports whether an update was too large to be compiled. From then on rows are not to be used, and decisions
// may be wrong: another engine is needed.
func (e *Engine) Exceeded() bool { return e.size.exceeded }

// AllowsHost reports whether this node reaches its own pods whatever policies say: see [Config].
func (e *Engine) AllowsHost() bool { return !e.config.HostPolicy }

// Table is a view of the rows of an endpoint in one direction. It is valid until the next [Engine.Apply].
type Table struct{ t *table }

// ID is shared by endpoints with the same policies.
func (t Table) ID() TableID { return t.t.id }

// Layer7 returns the layer 7 rules that its rows have, in no order.
func (t Table) Layer7() []*Layer7 { return slices.Collect(maps.Keys(t.t.layer7s)) }

// Restricts reports whether rules decide; otherwise everything is allowed.
func (t Table) Restricts() bool { return t.t.selected || t.t.unknown }

// Any returns the rows for all classes without rows of their own.
func (t Table) Any() []Row { return t.t.any.rows }

// RowsOf returns the complete rows for a class.
func (t Table) RowsOf(id ClassID) []Row {
	for c, set := range t.t.rows {
		if c.id == id {
			return set.rows
		}
	}
	return t.Any()
}

// Rows gives the classes that have rows of their own, with these. They are complete.
func (t Table) Rows() iter.Seq2[ClassID, []Row] {
	return func(yield func(ClassID, []Row) bool) {
		for c, set := range t.t.rows {
			if !yield(c.id, set.rows) {
				return
			}
		}
	}
}

// Lookup finds the decision in a class's rows, as a datapath does: of the rows that match, the most exact one.
func Lookup(rows []Row, protocol model.Protocol, port uint16) (Decision, bool) {
	matching := slices.DeleteFunc(slices.Clone(rows), func(r Row) bool {
		return r.Protocol != 0 && (r.Protocol != protocol || (r.Port^port)>>(16-r.Bits) != 0)
	})
	if len(matching) == 0 {
		return Decision{}, false
	}
	best := slices.MaxFunc(matching, func(x, y Row) int {
		return cmp.Or(cmp.Compare(x.Protocol, y.Protocol), cmp.Compare(x.Bits, y.Bits))
	})
	return best.Decision, true
}
