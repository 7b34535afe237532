package engine

import (
	"cmp"
	"reflect"
	"slices"

	"porin.dev/porin/cells/policy/model"
)

// Rule names a rule of a policy, for people.
type Rule struct {
	Policy    model.PolicyID
	Direction model.Direction
	Index     int    // in the policy's rules for the direction; -1: none of them, but what the policy denies by selecting the pod
	Name      string // may be empty
}

// policy is a policy with its peers' selectors.
type policy struct {
	model.Policy
	serial uint64 // unique for each content of the policy
	rules  [2][]compiledRule
	denies [2]*Rule // the default denial of a policy of [model.TierNetworkPolicy]
}

// compiledRule is a rule of a policy, with the selectors of its peers. Policies and tables have theirs in the order of evaluation.
type compiledRule struct {
	rule      *Rule
	tier      model.Tier
	action    model.Action
	any       bool
	kinds     model.KindSet
	selectors []*selector
	ports     []model.Port
	layer7    *compiledLayer7 // of a rule that accepts, in [model.TierNetworkPolicy]; nil: everything may be asked for
}

// before orders policies by their evaluation. Equal priorities are decided by kind and name.
func before(x, y *policy) int {
	return cmp.Or(cmp.Compare(x.Tier, y.Tier), cmp.Compare(x.Priority, y.Priority), cmp.Compare(x.ID.Kind, y.ID.Kind),
		cmp.Compare(x.ID.Namespace, y.ID.Namespace), cmp.Compare(x.ID.Name, y.ID.Name), cmp.Compare(x.ID.Part, y.ID.Part))
}

func (tx *transaction) setPolicy(set model.Policy) {
	e := tx.e
	old := e.policies[set.ID]
	if old != nil && reflect.DeepEqual(old.Policy, set) {
		return
	}
	e.lastPolicy++
	p := &policy{Policy: set, serial: e.lastPolicy}
	for _, d := range []model.Direction{model.Egress, model.Ingress} {
		if set.Part(d) == nil {
			continue
		}
		if set.DeniesByDefault(d) {
			p.denies[d] = &Rule{Policy: set.ID, Direction: d, Index: -1}
		}
		for i, r := range *set.Part(d) {
			p.rules[d] = append(p.rules[d], tx.compileRule(r, p, d, i))
		}
	}
	if old != nil {
		tx.removePolicy(old)
	}
	e.policies[set.ID] = p
	for _, ep := range e.local {
		if p.selects(ep.endpoint) {
			at, _ := slices.BinarySearchFunc(ep.policies, p, before)
			ep.policies = slices.Insert(ep.policies, at, p)
			tx.changed[ep] = struct{}{}
		}
	}
}

func (tx *transaction) compileRule(r model.Rule, p *policy, d model.Direction, index int) compiledRule {
	compiled := compiledRule{rule: &Rule{Policy: p.ID, Direction: d, Index: index, Name: r.Name}, tier: p.Tier, action: r.Action, ports: r.Ports}
	if p.Tier == model.TierNetworkPolicy && r.Action == model.Accept {
		compiled.layer7 = compileLayer7(r.Layer7)
	}
	for _, peer := range r.Peers {
		switch {
		case peer.Any:
			compiled.any = true
		case peer.Kinds != 0:
			compiled.kinds |= peer.Kinds
		case peer.Pods != nil || peer.Nodes != nil || peer.Block != nil || isDomain(peer):
			compiled.selectors = append(compiled.selectors, tx.acquire(peer))
		}
	}
	if d == model.Egress {
		tx.useNames(r.Ports, 1)
	}
	return compiled
}

func (tx *transaction) removePolicy(p *policy) {
	delete(tx.e.policies, p.ID)
	for d, rules := range p.rules {
		for _, r := range rules {
			for _, sel := range r.selectors {
				sel.refs--
				tx.deadSelector = tx.deadSelector || sel.refs == 0
			}
			if model.Direction(d) == model.Egress {
				tx.useNames(r.ports, -1)
			}
		}
	}
	for _, ep := range tx.e.local {
		if at := slices.Index(ep.policies, p); at >= 0 {
			ep.policies = slices.Delete(ep.policies, at, at+1)
			tx.changed[ep] = struct{}{}
		}
	}
}

// turn is when the rule is evaluated: by its tier, and in [model.TierNetworkPolicy] before the rules that accept when it denies.
func (r *compiledRule) turn() int {
	turn := 2 * int(r.tier)
	if r.tier == model.TierNetworkPolicy && r.action != model.Deny {
		turn++
	}
	return turn
}

func (p *policy) inAudit() bool { return p.Audit }

// selects reports whether the endpoint is a subject of the policy.
func (p *policy) selects(ep *endpoint) bool {
	return ep.Kind == model.Pod && podsAdmit(&p.Subject, ep.namespace.name, ep.namespace.labels) && matches(p.Subject.Labels, ep.labels)
}

// policiesOf returns what selects the endpoint, in the order of evaluation.
func (e *Engine) policiesOf(ep *endpoint) []*policy {
	var found []*policy
	for _, p := range e.policies {
		if p.selects(ep) {
			found = append(found, p)
		}
	}
	slices.SortFunc(found, before)
	return found
}
