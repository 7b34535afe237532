package engine

import (
	"fmt"
	"slices"

	"porin.dev/porin/cells/policy/model"
)

// Reason says why traffic is allowed or denied in one direction.
type Reason uint8

// The reasons.
const (
	ReasonRule           Reason = iota // a rule accepts or denies it
	ReasonDefaultDeny                  // NetworkPolicies select the pod, and none accepts it
	ReasonNoPolicy                     // no policy for the direction selects the pod
	ReasonNoRule                       // policies select the pod, none decides
	ReasonNoSubject                    // this end is no pod
	ReasonSelf                         // a pod reaches itself
	ReasonHost                         // the node reaches its pods
	ReasonUnknownLabels                // the labels of the pod are not known
	ReasonUnmanaged                    // pods that nothing is known of reach this node's
	ReasonLayer7Conflict               // rules accept it for several protocols of layer 7
	ReasonOtherNode                    // no policy of this node selects the pod, which is of another node: that one decides
)

func (r Reason) String() string {
	return [...]string{
		"rule", "default deny", "no policy selects the pod", "no rule matches", "not a pod", "the pod itself", "this node", "the pod's labels are not known",
		"a pod that nothing is known of", "rules for HTTP and for DNS meet", "decided by the pod's node",
	}[r]
}

// Decision is the answer for a connection in one direction, by the policies of one of its ends.
type Decision struct {
	Allowed bool
	Reason  Reason
	Rule    *Rule    // of ReasonRule, ReasonDefaultDeny and ReasonLayer7Conflict
	Passed  [2]*Rule // the rules of the admin and of the baseline tier that passed it on
	Layer7  *Layer7  // what the proxy applies to a connection that is allowed; nil: it does not see it
}

func (d Decision) String() string {
	text := "denied"
	if d.Allowed {
		text = "allowed"
	}
	text += ": " + d.Reason.String()
	if d.Rule != nil {
		text += ": " + d.Rule.String()
	}
	if d.Layer7 != nil {
		text += ", through the proxy: " + d.Layer7.Rules.String()
	}
	for _, r := range d.Passed {
		if r != nil {
			text += ", passed on by " + r.String()
		}
	}
	return text
}

// String is "Kind name, ingress rule 2 (name)".
func (r *Rule) String() string {
	switch {
	case r.Index < 0:
		return fmt.Sprintf("%s, %s", r.Policy, r.Direction)
	case r.Name != "":
		return fmt.Sprintf("%s, %s rule %d (%s)", r.Policy, r.Direction, r.Index, r.Name)
	}
	return fmt.Sprintf("%s, %s rule %d", r.Policy, r.Direction, r.Index)
}

// frees reports whether addresses of a kind may reach this node's pods whatever policies say.
func (t *table) frees(kind model.EndpointKind) bool {
	return t.direction == model.Ingress && (kind == model.Host || kind == model.Unmanaged)
}

// freeFor returns the rows of a class that reaches this node's pods whatever policies say, nil for any other class.
func (t *table) freeFor(config Config, c *class) *rowSet {
	switch {
	case !t.frees(c.key.kind):
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

// decide evaluates the rules that match a peer, for one port. Protocol 0 stands for those without ports. The layer 7
// rules are not interned.
func (t *table) decide(matching []int32, ports []model.NamedPort, protocol model.Protocol, port uint16) Decision {
	return t.decideByHits(matching, func(i int) int {
		for i < len(matching) && !t.rules[matching[i]].hits(ports, protocol, port) {
			i++
		}
		return i
	})
}

// decideByHits evaluates the rules that match a peer. Of those, next finds the ones for the port: it returns the index
// of the first from i on, or the length of matching.
func (t *table) decideByHits(matching []int32, next func(i int) int) Decision {
	if t.unknown {
		return Decision{Reason: ReasonUnknownLabels}
	}
	var d Decision
	var asking []*compiledRule // which accept it, and have layer 7 rules
	i := next(0)
	for tier := model.TierAdmin; tier <= model.TierBaseline; tier++ {
		for i < len(matching) && t.rules[matching[i]].tier < tier {
			i = next(i + 1) // passed over
		}
		for i < len(matching) && t.rules[matching[i]].tier == tier {
			r := &t.rules[matching[i]]
			i = next(i + 1)
			if r.layer7 != nil {
				asking = append(asking, r) // another rule may accept all that is asked for
				continue
			}
			if r.action != model.Pass {
				d.Allowed, d.Reason, d.Rule = r.action == model.Accept, ReasonRule, r.rule
				return d
			}
			if tier == model.TierAdmin {
				d.Passed[0] = r.rule
			} else {
				d.Passed[1] = r.rule
			}
			break
		}
		if len(asking) > 0 {
			d.Reason, d.Rule, d.Layer7 = ReasonRule, asking[0].rule, unionOf(asking)
			if d.Allowed = d.Layer7 != nil; !d.Allowed {
				d.Reason = ReasonLayer7Conflict
			}
			return d
		}
		if tier == model.TierNetworkPolicy && t.denies != nil {
			d.Reason, d.Rule = ReasonDefaultDeny, t.denies
			return d
		}
	}
	d.Allowed, d.Reason = true, ReasonNoPolicy
	if t.selected {
		d.Reason = ReasonNoRule
	}
	return d
}

func (r *compiledRule) hits(ports []model.NamedPort, protocol model.Protocol, port uint16) bool {
	if r.layer7 != nil && !r.layer7.concerns(protocol) {
		return false
	}
	if len(r.ports) == 0 {
		return true
	}
	for _, p := range r.ports {
		for first, last := range resolvePort(p, ports, protocol) {
			if first <= port && port <= last {
				return true
			}
		}
	}
	return false
}

// Verdict is the answer for a connection: the decisions of both directions, which both have to allow it.
type Verdict struct {
	From, To        End
	Allowed         bool
	Egress, Ingress Decision
	// AuditEgress and AuditIngress are what the decisions would be if nothing was in audit; nil for the same.
	AuditEgress, AuditIngress *Decision
}
