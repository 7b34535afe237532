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

// compiledRule is a rule of a policy, with the selectors of its peers. Policies and tables have theirs in the order of
// evaluation.
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

// turn is when the rule is evaluated: by its tier, and in [model.TierNetworkPolicy] before the rules that accept when
// it denies.
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

// local is an endpoint that policies are enforced for.
type local struct {
	*endpoint
	policies []*policy // that select it, in their order
	tables   [2]*table // by direction
	proposed [2]*table // what tables would be if nothing was in audit, without rows; nil when it is the same
}

// policies are all policies, and the local endpoints that they select.
type policies struct {
	byID      map[model.PolicyID]*policy
	last      uint64
	local     map[string]*local
	selectors *selectors
	names     *portNames

	// In the present update:
	changed map[*local]struct{} // other policies or ports
	removed []*local
}

func (x *policies) set(set model.Policy) {
	old := x.byID[set.ID]
	if old != nil && reflect.DeepEqual(old.Policy, set) {
		return
	}
	x.last++
	p := &policy{Policy: set, serial: x.last}
	for _, d := range []model.Direction{model.Egress, model.Ingress} {
		if set.Part(d) == nil {
			continue
		}
		if set.DeniesByDefault(d) {
			p.denies[d] = &Rule{Policy: set.ID, Direction: d, Index: -1}
		}
		for i, r := range *set.Part(d) {
			compiled := compiledRule{rule: &Rule{Policy: p.ID, Direction: d, Index: i, Name: r.Name}, tier: p.Tier, action: r.Action, ports: r.Ports}
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
					compiled.selectors = append(compiled.selectors, x.selectors.acquire(peer))
				}
			}
			if d == model.Egress {
				x.names.use(r.Ports, 1)
			}
			p.rules[d] = append(p.rules[d], compiled)
		}
	}
	if old != nil {
		x.remove(old)
	}
	x.byID[set.ID] = p
	for _, ep := range x.local {
		if p.selects(ep.endpoint) {
			at, _ := slices.BinarySearchFunc(ep.policies, p, before)
			ep.policies = slices.Insert(ep.policies, at, p)
			x.changed[ep] = struct{}{}
		}
	}
}

func (x *policies) remove(p *policy) {
	delete(x.byID, p.ID)
	for d, rules := range p.rules {
		for _, r := range rules {
			for _, sel := range r.selectors {
				x.selectors.release(sel)
			}
			if model.Direction(d) == model.Egress {
				x.names.use(r.ports, -1)
			}
		}
	}
	for _, ep := range x.local {
		if at := slices.Index(ep.policies, p); at >= 0 {
			ep.policies = slices.Delete(ep.policies, at, at+1)
			x.changed[ep] = struct{}{}
		}
	}
}

// setLocal enforces policies for the endpoint, by its present labels.
func (x *policies) setLocal(ep *endpoint) {
	own := x.local[ep.Key]
	if own == nil {
		own = &local{endpoint: ep}
		x.local[ep.Key] = own
	}
	own.policies = x.of(ep)
	x.changed[own] = struct{}{}
}

func (x *policies) removeLocal(key string) {
	if own := x.local[key]; own != nil {
		delete(x.local, key)
		delete(x.changed, own)
		x.removed = append(x.removed, own)
	}
}

// of returns the policies that select the endpoint, in the order of evaluation.
func (x *policies) of(ep *endpoint) []*policy {
	var found []*policy
	for _, p := range x.byID {
		if p.selects(ep) {
			found = append(found, p)
		}
	}
	slices.SortFunc(found, before)
	return found
}
