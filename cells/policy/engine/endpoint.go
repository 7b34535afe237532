package engine

import (
	"iter"
	"net/netip"
	"slices"

	"porin.dev/porin/cells/policy/model"
)

// endpoint is a [model.Endpoint] in little memory, as there may be half a million: it shares all but its name and addresses with others.
type endpoint struct {
	Key, Name string
	Addresses []netip.Addr
	*labelSet
}

// local is an endpoint that policies are enforced for.
type local struct {
	*endpoint
	policies []*policy // that select it, in their order
	tables   [2]*table // by direction
	proposed [2]*table // what tables would be if nothing was in audit, without rows; nil when it is the same
}

// model is the endpoint as it was set, without labels that selectors for its kind do not look at.
func (ep *endpoint) model() model.Endpoint {
	l := ep.labelSet
	return model.Endpoint{
		Key: ep.Key, Name: ep.Name, Kind: l.Kind, Local: l.Local, Audit: l.Audit, Addresses: ep.Addresses, NamedPorts: l.ports,
		Namespace: l.namespace.name, NamespaceLabels: l.namespace.labels, Labels: l.labels,
	}
}

// subject reports whether policies apply to the endpoint.
func (ep *endpoint) subject() bool { return ep.Kind == model.Pod || ep.Kind == model.Init }

func (tx *transaction) setEndpoint(set model.Endpoint) {
	e := tx.e
	ep, p := e.endpoints[set.Key], e.labelSetOf(set)
	var before []netip.Addr
	if ep == nil {
		ep = &endpoint{}
		e.endpoints[set.Key] = ep
	} else {
		ep.Name = set.Name
		if ep.labelSet == p && slices.Equal(ep.Addresses, set.Addresses) && e.ownsAll(ep) {
			return
		}
		before = ep.Addresses
	}
	ep.Key, ep.Name, ep.Addresses = set.Key, set.Name, set.Addresses
	if p != ep.labelSet {
		p.endpoints = append(p.endpoints, ep)
		if ep.labelSet != nil {
			e.leave(ep)
		}
		ep.labelSet = p
	}
	tx.setAddresses(ep, before)
	if !ep.Local || !ep.subject() {
		tx.dropLocal(ep.Key)
		return
	}
	own := e.local[ep.Key]
	if own == nil {
		own = &local{endpoint: ep}
		e.local[ep.Key] = own
	}
	own.policies = e.policiesOf(ep)
	tx.changed[own] = struct{}{}
}

func (tx *transaction) removeEndpoint(ep *endpoint) {
	e := tx.e
	delete(e.endpoints, ep.Key)
	before := ep.Addresses
	ep.Addresses = nil
	tx.setAddresses(ep, before)
	e.leave(ep)
	tx.dropLocal(ep.Key)
}

// dropLocal ends that policies are enforced for an endpoint, if they are.
func (tx *transaction) dropLocal(key string) {
	ep := tx.e.local[key]
	if ep == nil {
		return
	}
	delete(tx.e.local, key)
	delete(tx.changed, ep)
	tx.endpoints[key] = struct{}{}
	for _, t := range ep.tables {
		if t != nil {
			tx.releaseTable(t)
		}
	}
}

func (tx *transaction) setAddresses(ep *endpoint, before []netip.Addr) {
	e := tx.e
	for addr, m := range e.owned(ep, before) {
		if !slices.ContainsFunc(ep.Addresses, func(stays netip.Addr) bool { return single(stays) == addr }) {
			e.addresses.Delete(addr)
			tx.quit(place{cidr: addr}, m)
		}
	}
	for _, addr := range ep.Addresses {
		p := place{cidr: single(addr)}
		if m, _ := e.memberAt(p); m.owner != ep {
			e.setMember(p, member{ep, m.class})
		}
		tx.dirty(p)
	}
}

// owned returns the addresses that no other endpoint was set with later.
func (e *Engine) owned(ep *endpoint, addresses []netip.Addr) iter.Seq2[netip.Prefix, member] {
	return func(yield func(netip.Prefix, member) bool) {
		for _, addr := range addresses {
			if m, ok := e.addresses.Get(single(addr)); ok && m.owner == ep && !yield(single(addr), m) {
				return
			}
		}
	}
}

func (e *Engine) ownsAll(ep *endpoint) bool {
	n := 0
	for range e.owned(ep, ep.Addresses) {
		n++
	}
	return n == len(ep.Addresses)
}

func (tx *transaction) dirtyAddresses(ep *endpoint) {
	for addr := range tx.e.owned(ep, ep.Addresses) {
		tx.dirty(place{cidr: addr})
	}
}

func single(addr netip.Addr) netip.Prefix {
	addr = addr.Unmap()
	return netip.PrefixFrom(addr, addr.BitLen())
}
