package engine

import (
	"iter"
	"net/netip"
	"reflect"
	"slices"

	"porin.dev/porin/cells/policy/model"
)

type endpoint struct {
	model.Endpoint
	labelSet  *labelSet
	portsKey  string
	*enforced // only of a local endpoint
}

// enforced is what a local endpoint has more.
type enforced struct {
	policies []*policy // that select it, in their order
	tables   [2]*table // by direction
	proposed [2]*table // what tables would be if nothing was in audit, without rows; nil when it is the same
}

// subject reports whether policies apply to the endpoint.
func (ep *endpoint) subject() bool { return ep.Kind == model.Pod || ep.Kind == model.Init }

func (tx *transaction) setEndpoint(set model.Endpoint) {
	e := tx.e
	ep := e.endpoints[set.Key]
	var before []netip.Addr
	if ep == nil {
		ep = &endpoint{}
		e.endpoints[set.Key] = ep
	} else {
		if reflect.DeepEqual(ep.Endpoint, set) && e.ownsAll(ep) {
			return
		}
		before = ep.Addresses
	}
	ep.Endpoint = set
	if p := e.labelSetOf(set); p != ep.labelSet {
		p.endpoints = append(p.endpoints, ep)
		if ep.labelSet != nil {
			e.leave(ep)
		}
		ep.labelSet = p
	}
	e.share(ep)
	tx.setAddresses(ep, before)
	switch isLocal := set.Local && ep.subject(); {
	case isLocal:
		if ep.enforced == nil {
			ep.enforced = &enforced{}
			e.local[set.Key] = ep
		}
		ep.policies = e.policiesOf(ep)
		tx.changed[ep] = struct{}{}
	case ep.enforced != nil:
		tx.dropLocal(ep)
	}
}

// share keeps in memory only once what endpoints of a label set have in common.
func (e *Engine) share(ep *endpoint) {
	if ep.Kind == model.Pod {
		ep.Namespace, ep.NamespaceLabels, ep.Labels = ep.labelSet.namespace.name, ep.labelSet.namespace.labels, ep.labelSet.labels
	}
	first := ep.labelSet.endpoints[0]
	if first != ep && slices.Equal(first.NamedPorts, ep.NamedPorts) {
		ep.NamedPorts, ep.portsKey = first.NamedPorts, first.portsKey
		return // what is out of date in the key, updateNames mends for both
	}
	ep.portsKey = portsKey(e.asked(ep.NamedPorts))
}

func (tx *transaction) removeEndpoint(ep *endpoint) {
	e := tx.e
	delete(e.endpoints, ep.Key)
	before := ep.Addresses
	ep.Addresses = nil
	tx.setAddresses(ep, before)
	e.leave(ep)
	if ep.enforced != nil {
		tx.dropLocal(ep)
	}
}

func (tx *transaction) dropLocal(ep *endpoint) {
	delete(tx.e.local, ep.Key)
	delete(tx.changed, ep)
	tx.endpoints[ep.Key] = struct{}{}
	for _, t := range ep.tables {
		if t != nil {
			tx.releaseTable(t)
		}
	}
	ep.enforced = nil
}

func (tx *transaction) setAddresses(ep *endpoint, before []netip.Addr) {
	e := tx.e
	for m := range e.owned(ep, before) {
		if !slices.ContainsFunc(ep.Addresses, func(addr netip.Addr) bool { return single(addr) == m.prefix }) {
			e.addresses.Delete(m.prefix)
			tx.remove(m)
		}
	}
	for _, addr := range ep.Addresses {
		m, ok := e.addresses.Get(single(addr))
		if !ok {
			m = &member{prefix: single(addr)}
			e.addresses.Insert(m.prefix, m)
		}
		m.owner = ep
		tx.dirty(m)
	}
}

// owned gives those of the addresses that no other endpoint was set with later.
func (e *Engine) owned(ep *endpoint, addresses []netip.Addr) iter.Seq[*member] {
	return func(yield func(*member) bool) {
		for _, addr := range addresses {
			if m, ok := e.addresses.Get(single(addr)); ok && m.owner == ep && !yield(m) {
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
	for m := range tx.e.owned(ep, ep.Addresses) {
		tx.dirty(m)
	}
}

func single(addr netip.Addr) netip.Prefix {
	addr = addr.Unmap()
	return netip.PrefixFrom(addr, addr.BitLen())
}
