package policy

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/endpointmanager"
	"porin.dev/porin/cells/policy/engine"
	"porin.dev/porin/cells/policy/model"
	"porin.dev/porin/internal/fault"
)

// Explanation is what the policies say of a connection, and what the kernel decides.
type Explanation struct {
	From, To Peer
	engine.Verdict
	Datapath Datapath
}

// Datapath is what the kernel decides about a connection by the policies of its ends.
type Datapath struct {
	Egress, Ingress *bool // nil for an end about which it was not asked
	NotAsked        error // why it was asked about neither
}

// Peer is one end of a connection.
type Peer struct {
	Address  netip.Addr
	Kind     model.EndpointKind
	Endpoint endpoint.Endpoint // the zero Endpoint when it is none of this node
}

// Explain decides about a connection between two ends, each an address or a reference to an endpoint of this node. It asks the kernel when no change is being written.
func (p *Policies) Explain(ctx context.Context, endpoints endpointmanager.Lookup, from, to string, protocol model.Protocol, port uint16) (x Explanation, err error) {
	if x.From, x.To, err = sameFamily(endpoints, from, to); err != nil {
		return Explanation{}, err
	}
	if err := p.queue.begin(ctx); err != nil {
		return Explanation{}, err
	}
	defer p.queue.end()
	p.queue.view(func(e *engine.Engine) {
		x.From.Kind, x.To.Kind = kindAt(e, x.From), kindAt(e, x.To)
		x.Verdict = e.Evaluate(x.From.Address, x.To.Address, protocol, port)
	})
	x.Datapath = p.queue.askKernel(x, protocol, port)
	return x, nil
}

// sameFamily returns the addresses of two ends, IPv4 if both have one.
func sameFamily(endpoints endpointmanager.Lookup, from, to string) (Peer, Peer, error) {
	sources, err := peersOf(endpoints, from)
	if err != nil {
		return Peer{}, Peer{}, fmt.Errorf("from: %w", err)
	}
	destinations, err := peersOf(endpoints, to)
	if err != nil {
		return Peer{}, Peer{}, fmt.Errorf("to: %w", err)
	}
	for _, source := range sources {
		for _, destination := range destinations {
			if source.Address.Is4() == destination.Address.Is4() {
				return source, destination, nil
			}
		}
	}
	return Peer{}, Peer{}, fault.New(fault.Invalid, fmt.Sprintf("%.64s and %.64s have no address of the same family", from, to))
}

// The reasons for which the kernel is not asked.
var (
	errNoLocalPod = errors.New("neither end is a pod of this node")
	errNotWritten = errors.New("the agent has not written its policies yet")
	errToNode     = errors.New("what reaches the node itself is decided by nftables")
)

// askKernel expects the turn.
func (q *Queue) askKernel(x Explanation, protocol model.Protocol, port uint16) (d Datapath) {
	from, fromLocal := q.locals[q.engine.Endpoint(x.From.Address)]
	to, toLocal := q.locals[q.engine.Endpoint(x.To.Address)]
	allowed := true
	switch {
	case q.Applied().Revision == 0:
		return Datapath{NotAsked: errNotWritten}
	case fromLocal && from == to: // a pod reaches itself
		return Datapath{Egress: &allowed, Ingress: &allowed}
	case fromLocal && x.To.Kind == model.Host:
		return Datapath{NotAsked: errToNode}
	case !fromLocal && !toLocal:
		return Datapath{NotAsked: errNoLocalPod}
	}
	ask := func(question Question) *bool {
		question.Protocol, question.Port = protocol, port
		allows, err := q.enforcer.Allows(question)
		if err != nil {
			d.NotAsked = err
			return nil
		}
		return &allows
	}
	if fromLocal {
		d.Egress = ask(Question{Local: from, Direction: model.Egress, Peer: x.To.Address})
	}
	if toLocal {
		d.Ingress = ask(Question{Local: to, Direction: model.Ingress, Peer: x.From.Address, SentHere: x.From.Kind == model.Host})
	}
	return d
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
