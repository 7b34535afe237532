package policy

import (
	"fmt"
	"net/netip"

	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/endpointmanager"
	"porin.dev/porin/cells/policy/engine"
	"porin.dev/porin/cells/policy/model"
	"porin.dev/porin/internal/fault"
)

// Explanation is what the policies say of a connection.
type Explanation struct {
	From, To Peer
	engine.Decision
}

// Peer is one end of a connection.
type Peer struct {
	Address  netip.Addr
	Kind     model.EndpointKind
	Endpoint endpoint.Endpoint // the zero Endpoint when it is none of this node
}

// Explain decides about a connection between two ends, each an address or a reference to an endpoint of this node.
func (p *Policies) Explain(endpoints endpointmanager.Lookup, from, to string, protocol model.Protocol, port uint16) (x Explanation, err error) {
	var ends [2][]Peer
	for i, text := range []string{from, to} {
		if ends[i], err = peersOf(endpoints, text); err != nil {
			return x, fmt.Errorf("%s: %w", []string{"from", "to"}[i], err)
		}
	}
	for _, x.From = range ends[0] {
		for _, x.To = range ends[1] {
			if x.From.Address.Is4() == x.To.Address.Is4() {
				p.queue.view(func(e *engine.Engine) {
					x.From.Kind, x.To.Kind = kindAt(e, x.From), kindAt(e, x.To)
					x.Decision = e.Evaluate(x.From.Address, x.To.Address, protocol, port)
				})
				return x, nil
			}
		}
	}
	return Explanation{}, fault.New(fault.Invalid, fmt.Sprintf("%.64s and %.64s have no address of the same family", from, to))
}

// peersOf returns one for each address, IPv4 first.
func peersOf(endpoints endpointmanager.Lookup, text string) (peers []Peer, err error) {
	ref, err := endpoint.ParseRef(text)
	if err != nil {
		return nil, err
	}
	ep, err := endpoints.Get(ref)
	if addr, parseErr := netip.ParseAddr(text); parseErr == nil {
		return []Peer{{Address: addr.Unmap(), Endpoint: ep}}, nil // anybody may have it
	}
	if err != nil {
		return nil, err
	}
	for _, addr := range ep.Addresses.List() {
		peers = append(peers, Peer{Address: addr, Endpoint: ep})
	}
	return peers, nil
}

func kindAt(e *engine.Engine, p Peer) model.EndpointKind {
	switch id := e.Endpoint(p.Address); id {
	case "":
		return model.World
	case hostID:
		return model.Host
	}
	return model.Pod
}
