package engine

import (
	"iter"
	"net/netip"
	"slices"

	"porin.dev/porin/cells/policy/model"
)

// End is an address as the policies know it, such as one end of a connection.
type End struct {
	Address  netip.Addr
	Kind     model.EndpointKind
	Class    ClassID // the datapath looks for rows of this class
	Endpoint string  // the key of the endpoint that has the address, or ""
	// Namespace and Name of the pod that has the address.
	Namespace, Name string
}

// End returns what the policies know about an address.
func (e *Engine) End(addr netip.Addr) End {
	c, owner := e.lookup(addr)
	end := End{Address: addr.Unmap(), Kind: c.key.kind, Class: c.id}
	if owner != nil {
		end.Kind, end.Endpoint, end.Namespace, end.Name = owner.Kind, owner.Key, owner.namespace.name, owner.Name
	}
	return end
}

// Addresses gives the addresses of endpoints and their classes.
func (e *Engine) Addresses() iter.Seq2[netip.Addr, ClassID] {
	return func(yield func(netip.Addr, ClassID) bool) {
		for cidr, m := range e.addresses.All() {
			if !yield(cidr.Addr(), m.class.id) {
				return
			}
		}
	}
}

// Prefixes gives the classes of ranges of addresses that are no endpoint's. The longest one decides.
func (e *Engine) Prefixes() iter.Seq2[netip.Prefix, ClassID] {
	return func(yield func(netip.Prefix, ClassID) bool) {
		for cidr, p := range e.prefixes.All() {
			if !yield(cidr, p.class.id) {
				return
			}
		}
	}
}

// Prefix returns the class of a range, and whether the range itself is there: without it, the class is the one of the longest range around it.
func (e *Engine) Prefix(cidr netip.Prefix) (class ClassID, ok bool) {
	if p, ok := e.prefixes.Get(cidr); ok {
		return p.class.id, true
	}
	if p, ok := e.prefixes.LookupPrefix(cidr); ok {
		return p.class.id, false
	}
	return FixedClass(model.World), false
}

// IsUnmanaged reports whether the addresses in a range of [Engine.Prefixes] are of kind [model.Unmanaged].
func (e *Engine) IsUnmanaged(cidr netip.Prefix) bool {
	p, ok := e.prefixes.Get(cidr)
	return ok && p.class.key.kind == model.Unmanaged
}

// HostClasses returns the classes of the node's own addresses; without addresses, the class that they would have.
func (e *Engine) HostClasses() (ids []ClassID) {
	for c := range e.kindClasses[model.Host] {
		if c.id != FixedClass(model.Host) || c.members > 1 { // itself
			ids = append(ids, c.id)
		}
	}
	if len(ids) == 0 {
		ids = append(ids, FixedClass(model.Host))
	}
	slices.Sort(ids)
	return ids
}

func (e *Engine) lookup(addr netip.Addr) (*class, *endpoint) {
	addr = addr.Unmap()
	if m, ok := e.addresses.Lookup(addr); ok {
		return m.class, m.owner
	}
	if p, ok := e.prefixes.Lookup(addr); ok {
		return p.class, nil
	}
	return e.worldClass(), nil
}

// worldClass is the class of addresses that are in no range.
func (e *Engine) worldClass() *class {
	return e.classes[classKey{kind: model.World, labels: e.noSelectors, blocks: e.noSelectors}]
}
