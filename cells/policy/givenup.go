package policy

import (
	"slices"

	"porin.dev/porin/cells/policy/model"
	"porin.dev/porin/internal/fault"
)

// errTooLarge is why a policy is not in force that takes too much time or memory to be compiled.
var errTooLarge = fault.New(fault.Exhausted, "the policies are too large to be compiled: fewer rules with ports and overlapping blocks for the same pods take less")

// maxGivenUp bounds the policies that one change gives up: each takes a compilation.
const maxGivenUp = 16

// substitute is what the engine has in the place of a policy that does not fit.
type substitute struct {
	policy model.Policy
	denies bool // it is no earlier version of the policy, but lets nothing through
	why    error
}

// told is what the engine was told of a policy.
func (d *desired) told(id model.PolicyID) (model.Policy, bool) {
	if s, ok := d.givenUp[id]; ok {
		return s.policy, true
	}
	p, ok := d.policies[id]
	return p, ok
}

// shrink replaces an engine that has exceeded its size. Policies are given up until the rest fits.
func (d *desired) shrink() {
	for range maxGivenUp {
		d.renew() // the engine may have kept unused rows, such as rows for deleted pods
		if !d.engine.Exceeded() || !d.substituteLargest(errTooLarge, false) && !d.substituteLargest(errTooLarge, true) {
			return
		}
	}
	d.renew()
}

// renew tells a new engine the same.
func (d *desired) renew() {
	all := d.everything()
	d.engine = d.engine.Renew()
	d.engine.Apply(all)
}

// substitute tells the engine something else than the policy: its earlier version, or if that is not known, or does not
// fit either, what denies most.
func (d *desired) substitute(id model.PolicyID, why error) {
	_, again := d.givenUp[id]
	if was := d.unwritten[id]; was != nil && !again {
		d.givenUp[id] = substitute{policy: *was, why: why}
	} else {
		d.givenUp[id] = substitute{policy: denying(d.policies[id]), denies: true, why: why}
	}
}

// substituteLargest chooses a substitute for the largest of the policies that were set since the last write, or of all,
// and reports whether there is one. The engine is to be told.
func (d *desired) substituteLargest(why error, ofAll bool) bool {
	var largest model.PolicyID
	size := 0
	for id := range d.policies {
		p, _ := d.told(id)
		_, isNew := d.unwritten[id]
		if n := weight(p); n > size && (ofAll || isNew) && !d.givenUp[id].denies {
			largest, size = id, n
		}
	}
	if size == 0 {
		return false
	}
	d.substitute(largest, why)
	return true
}

// weight is about how much a policy asks of the engine: peers, blocks and ports of its rules.
func weight(p model.Policy) (n int) {
	for _, d := range []model.Direction{model.Egress, model.Ingress} {
		if p.Part(d) == nil {
			continue
		}
		for _, r := range *p.Part(d) {
			peers := 1
			for _, peer := range r.Peers {
				peers++
				if peer.Block != nil {
					peers += len(peer.Block.Except)
				}
			}
			n += peers + len(r.Ports)
		}
	}
	return n
}

// denying is the policy as it denies most: no rule lets anything through, and rules that deny match everything.
func denying(p model.Policy) model.Policy {
	for _, part := range []**model.Rules{&p.Egress, &p.Ingress} {
		if *part == nil {
			continue
		}
		rules := slices.DeleteFunc(slices.Clone(**part), func(r model.Rule) bool { return r.Action != model.Deny })
		if len(rules) > 0 {
			rules = model.Rules{{Name: rules[0].Name, Action: model.Deny, Peers: []model.Peer{{Any: true}}}}
		}
		*part = &rules
	}
	return p
}
