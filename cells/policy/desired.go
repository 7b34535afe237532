package policy

import (
	"maps"
	"net/netip"
	"slices"

	"porin.dev/porin/cells/policy/engine"
	"porin.dev/porin/cells/policy/model"
)

// desiredEndpoint is an endpoint as the engine knows it and, of a local one, its place in the datapath.
type desiredEndpoint struct {
	model.Endpoint
	local Local
}

// update is a set of changes: the new value of each endpoint and policy, nil to remove it. They are in the order of
// their last mention.
type update struct {
	endpoints entries[string, desiredEndpoint]
	policies  entries[model.PolicyID, model.Policy]
	unfit     map[model.PolicyID]error // of policies that are set: why the engine is not to have them
	// unmanaged has the ranges of addresses that are, or with nil are not, of pods of other nodes: see [engine.Update].
	unmanaged entries[netip.Prefix, struct{}]
}

func setEndpoint(ep desiredEndpoint) (u update) {
	u.endpoints.set(ep.Key, &ep)
	return u
}

func removeEndpoint(key string) (u update) {
	u.endpoints.set(key, nil)
	return u
}

func (u *update) add(later update) {
	u.endpoints.add(later.endpoints)
	for _, id := range later.policies.keys {
		delete(u.unfit, id)
	}
	for id, why := range later.unfit {
		u.setUnfit(id, why)
	}
	u.policies.add(later.policies)
	u.unmanaged.add(later.unmanaged)
}

func (u *update) setUnfit(id model.PolicyID, why error) {
	if u.unfit == nil {
		u.unfit = map[model.PolicyID]error{}
	}
	u.unfit[id] = why
}

// domainRules returns the rules for names of the policies that are set.
func (u *update) domainRules() (rules []model.DNSRule) {
	for _, p := range u.policies.values {
		if p != nil {
			rules = append(rules, domainRules(*p)...)
		}
	}
	return rules
}

// entries are values by key, in order.
type entries[K comparable, V any] struct {
	keys   []K
	values map[K]*V
}

func (e *entries[K, V]) set(key K, value *V) {
	if _, again := e.values[key]; again {
		e.keys = slices.DeleteFunc(e.keys, func(k K) bool { return k == key })
	}
	if e.values == nil {
		e.values = map[K]*V{}
	}
	e.keys = append(e.keys, key)
	e.values[key] = value
}

func (e *entries[K, V]) add(later entries[K, V]) {
	for _, key := range later.keys {
		e.set(key, later.values[key])
	}
}

// desired is the engine, and what it was told. The endpoints are in the engine alone: there may be half a million.
type desired struct {
	config    engine.Config
	engine    *engine.Engine
	policies  map[model.PolicyID]model.Policy
	givenUp   map[model.PolicyID]substitute    // of policies that do not fit
	unwritten map[model.PolicyID]*model.Policy // that have changed since the last write, as they were before; nil: they are new
	unmanaged map[netip.Prefix]struct{}
	locals    map[string]Local
}

func newDesired(cfg engine.Config) desired {
	return desired{
		config: cfg, engine: engine.New(cfg), policies: map[model.PolicyID]model.Policy{}, givenUp: map[model.PolicyID]substitute{}, unwritten: map[model.PolicyID]*model.Policy{},
		unmanaged: map[netip.Prefix]struct{}{}, locals: map[string]Local{},
	}
}

// apply changes the engine. anew is true when the engine was replaced, because the update was too large for it.
func (d *desired) apply(u update, domains []engine.DomainChange) (change engine.Change, anew bool) {
	told := engine.Update{Domains: domains}
	var moved []string
	for _, id := range u.policies.keys {
		d.recordChange(id)
		if policy := u.policies.values[id]; policy != nil {
			d.policies[id] = *policy
			if why := u.unfit[id]; why != nil {
				d.substitute(id, why)
			}
			p, _ := d.told(id)
			told.SetPolicies = append(told.SetPolicies, p)
		} else {
			told.RemovePolicies = append(told.RemovePolicies, id)
			delete(d.policies, id)
		}
	}
	for _, key := range u.endpoints.keys {
		was, set := d.endpoint(key), u.endpoints.values[key]
		delete(d.locals, key)
		if set == nil {
			told.RemoveEndpoints = append(told.RemoveEndpoints, key)
			continue
		}
		told.SetEndpoints = append(told.SetEndpoints, set.Endpoint)
		if set.Local {
			d.locals[key] = set.local
		}
		if was != nil && was.local != set.local {
			moved = append(moved, key)
		}
	}
	for _, cidr := range u.unmanaged.keys {
		if u.unmanaged.values[cidr] != nil {
			told.SetUnmanaged = append(told.SetUnmanaged, cidr)
			d.unmanaged[cidr] = struct{}{}
		} else {
			told.RemoveUnmanaged = append(told.RemoveUnmanaged, cidr)
			delete(d.unmanaged, cidr)
		}
	}
	change = d.engine.Apply(told)
	if d.engine.Exceeded() {
		d.shrink()
		return change, true
	}
	for _, key := range moved {
		if !slices.Contains(change.Endpoints, key) {
			change.Endpoints = append(change.Endpoints, key)
		}
	}
	return change, false
}

// recordChange is called before a policy changes.
func (d *desired) recordChange(id model.PolicyID) {
	if _, again := d.unwritten[id]; !again {
		d.unwritten[id] = nil
		if was, ok := d.told(id); ok && !d.givenUp[id].denies {
			d.unwritten[id] = &was
		}
	}
	delete(d.givenUp, id)
}

// everything is all that the engine was told.
func (d *desired) everything() engine.Update {
	u := engine.Update{SetUnmanaged: slices.Collect(maps.Keys(d.unmanaged))}
	for id := range d.policies {
		p, _ := d.told(id)
		u.SetPolicies = append(u.SetPolicies, p)
	}
	for s := range d.engine.Endpoints() {
		s.Addresses = slices.DeleteFunc(slices.Clone(s.Addresses), func(a netip.Addr) bool { return d.engine.End(a).Endpoint != s.Key }) // the order of endpoints is lost
		u.SetEndpoints = append(u.SetEndpoints, s)
	}
	for rule, addresses := range d.engine.Domains() {
		u.Domains = append(u.Domains, engine.DomainChange{Rule: rule, Add: addresses})
	}
	return u
}

// domainRules returns the rules for names that the engine was told.
func (d *desired) domainRules() map[model.DNSRule]struct{} {
	rules := map[model.DNSRule]struct{}{}
	for id := range d.policies {
		p, _ := d.told(id)
		for _, rule := range domainRules(p) {
			rules[rule] = struct{}{}
		}
	}
	return rules
}

// endpoint returns nil when the engine does not know the endpoint.
func (d *desired) endpoint(key string) *desiredEndpoint {
	ep, ok := d.engine.Endpoint(key)
	if !ok {
		return nil
	}
	return &desiredEndpoint{Endpoint: ep, local: d.locals[key]}
}
