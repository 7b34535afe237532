package engine

import (
	"net/netip"

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
