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
	engine.Verdict
	FromEndpoint, ToEndpoint endpoint.Endpoint // of this node, or the zero Endpoint
	FromNames, ToNames       []string          // which policies select the addresses by
	Datapath                 Datapath
	Proxy                    error // why the proxy does not serve the connection, which goes through it; nil when it does
}

// Datapath is what the kernel decides about a connection by the policies of its ends.
type Datapath struct {
	Egress, Ingress *uint32 // as [Enforcer.Verdict] has it; nil for an end about which it was not asked
	NotAsked        error   // why it was asked about neither
}

// Explain evaluates a connection between two ends, each an address, a reference to an endpoint of this node, or the
// NAMESPACE/NAME of a pod of any. It asks the kernel when no change is being written.
func (p *Policies) Explain(ctx context.Context, endpoints endpointmanager.Lookup, from, to string, protocol model.Protocol, port uint16) (x Explanation, err error) {
	sources, fromEndpoint, err := p.resolve(endpoints, from)
	if err != nil {
		return Explanation{}, fmt.Errorf("from: %w", err)
	}
	destinations, toEndpoint, err := p.resolve(endpoints, to)
	if err != nil {
		return Explanation{}, fmt.Errorf("to: %w", err)
	}
	source, destination, ok := sameFamily(sources, destinations)
	if !ok {
		return Explanation{}, fault.New(fault.Invalid, fmt.Sprintf("%.64s and %.64s have no address of the same family", from, to))
	}
	if err := p.view.lock(ctx); err != nil {
		return Explanation{}, err
	}
	defer p.view.unlock()
	x.FromEndpoint, x.ToEndpoint = fromEndpoint, toEndpoint
	x.Verdict = p.view.Evaluate(source, destination, protocol, port)
	e, names := p.view.engine, p.queue.names
	x.FromNames, x.ToNames = names.namesOf(source, e.DomainsAt(source)), names.namesOf(destination, e.DomainsAt(destination))
	x.Datapath = p.view.askKernelLocked(x.Verdict, protocol, port)
	if x.Egress.Layer7 != nil || x.Ingress.Layer7 != nil {
		x.Proxy = p.queue.layer7.proxy.Healthy()
	}
	return x, nil
}

// resolve returns the addresses that a text stands for, IPv4 first, and their endpoint of this node. An address need
// not be an endpoint's.
func (p *Policies) resolve(endpoints endpointmanager.Lookup, text string) ([]netip.Addr, endpoint.Endpoint, error) {
	ref, err := endpoint.ParseRef(text)
	if err != nil {
		return nil, endpoint.Endpoint{}, err
	}
	ep, err := endpoints.Get(ref)
	if addr, parseErr := netip.ParseAddr(text); parseErr == nil {
		return []netip.Addr{addr.Unmap()}, ep, nil
	}
	if namespace, name, ok := ref.PodName(); ok && fault.KindOf(err) == fault.NotFound {
		if addresses := p.view.remoteNamed(namespace, name); len(addresses) > 0 {
			return addresses, endpoint.Endpoint{}, nil
		}
	}
	return ep.Addresses.List(), ep, err
}

// sameFamily returns the first two addresses of one family.
func sameFamily(sources, destinations []netip.Addr) (source, destination netip.Addr, ok bool) {
	for _, source := range sources {
		for _, destination := range destinations {
			if source.Is4() == destination.Is4() {
				return source, destination, true
			}
		}
	}
	return source, destination, false
}

// The reasons for which the kernel is not asked.
var (
	errNoLocalPod = errors.New("neither end is a pod of this node")
	errNotWritten = errors.New("the agent has not written its policies yet")
	errToNode     = errors.New("what reaches the node itself is decided by nftables")
)

func (v *View) askKernelLocked(verdict engine.Verdict, protocol model.Protocol, port uint16) (d Datapath) {
	from, fromLocal := v.locals[verdict.From.Endpoint]
	to, toLocal := v.locals[verdict.To.Endpoint]
	allowed := engine.ValueAllow
	switch {
	case v.Applied().Revision == 0:
		return Datapath{NotAsked: errNotWritten}
	case fromLocal && from == to: // a pod reaches itself
		return Datapath{Egress: &allowed, Ingress: &allowed}
	case fromLocal && verdict.To.Kind == model.Host:
		return Datapath{NotAsked: errToNode}
	case !fromLocal && !toLocal:
		return Datapath{NotAsked: errNoLocalPod}
	}
	ask := func(question Question) *uint32 {
		question.Protocol, question.Port = protocol, port
		verdict, err := v.enforcer.Verdict(question)
		if err != nil {
			d.NotAsked = err
			return nil
		}
		return &verdict
	}
	if fromLocal {
		d.Egress = ask(Question{Local: from, Direction: model.Egress, Peer: verdict.To.Address})
	}
	if toLocal {
		d.Ingress = ask(Question{Local: to, Direction: model.Ingress, Peer: verdict.From.Address, FromNode: verdict.From.Kind == model.Host})
	}
	return d
}
