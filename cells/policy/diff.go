package policy

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/endpointmanager"
	"porin.dev/porin/cells/policy/engine"
	"porin.dev/porin/cells/policy/manifest"
	"porin.dev/porin/cells/policy/model"
	"porin.dev/porin/internal/fault"
)

// Flow is a connection that was seen. Its addresses are as they are after translation, and From has begun it.
type Flow struct {
	From, To netip.Addr
	Protocol model.Protocol
	Port     uint16 // of To
	Count    uint64 // how often it was seen
	LastSeen time.Time
}

// Flows knows the connections that were seen lately. It may be called concurrently.
type Flows interface {
	// Recent returns each once, and since when they were noted.
	Recent() (flows []Flow, since time.Time)
}

var errNoFlows = fault.New(fault.NotFound, "this agent does not note flows")

// Diff lists the flows that proposed policies decide differently from the current policies.
type Diff struct {
	Flows   int // how many were evaluated
	Since   time.Time
	Changes []FlowChange // the most frequent first
}

// FlowChange is a flow that proposed policies allow and current policies deny, or the other way round, or that they
// allow with other layer 7 rules.
type FlowChange struct {
	Flow
	FromEndpoint, ToEndpoint endpoint.Endpoint // of this node, or the zero Endpoint
	Now, Then                engine.Verdict
}

// Diff evaluates the recent flows by the current policies, and as if the policies of all documents in data were put and
// others deleted. It changes nothing. Audit of the node and of pods does not count, audit of policies does. It waits
// for other calls.
func (p *Policies) Diff(ctx context.Context, endpoints endpointmanager.Lookup, flows Flows, data []byte, remove []model.PolicyID) (d Diff, err error) {
	if flows == nil {
		return d, errNoFlows
	}
	proposed, err := manifest.Read(data)
	if err != nil {
		return d, fault.Wrap(fault.Invalid, err)
	}
	var parts []model.Policy
	for _, one := range proposed {
		parts = append(parts, p.references.resolve(one)...)
	}
	var gone []model.PolicyID
	for _, one := range proposed {
		gone = append(gone, p.partsFrom(one.ID, len(one.Parts()))...) // of the present version alone
	}
	for _, id := range remove {
		gone = append(gone, p.partsFrom(id, 0)...)
	}
	proposed = parts
	if len(proposed)+len(remove) == 0 {
		return d, fault.New(fault.Invalid, "no policy: want one document or more, or a policy to delete")
	}
	for _, id := range remove {
		if _, ok := p.Get(id); !ok {
			return d, fmt.Errorf("delete %s: %w", id, ErrNotFound)
		}
	}
	select {
	case p.diff <- struct{}{}:
		defer func() { <-p.diff }()
	case <-ctx.Done():
		return d, fmt.Errorf("wait for other comparisons of policies: %w", ctx.Err())
	}
	seen, since := flows.Recent()
	e := p.view.copyEngine(false)
	now := evaluateAll(e, seen)
	var rules []model.DNSRule
	for _, one := range proposed {
		rules = append(rules, domainRules(one)...)
	}
	if e.Apply(engine.Update{RemovePolicies: gone, SetPolicies: proposed, Domains: p.queue.names.peek(rules)}); e.Exceeded() {
		return d, errTooLarge
	}
	then := evaluateAll(e, seen)
	d.Flows, d.Since = len(seen), since
	for i, flow := range seen {
		if !sameVerdict(now[i], then[i]) {
			d.Changes = append(d.Changes, FlowChange{flow, endpointAt(endpoints, flow.From), endpointAt(endpoints, flow.To), now[i], then[i]})
		}
	}
	slices.SortFunc(d.Changes, func(x, y FlowChange) int {
		return cmp.Or(cmp.Compare(y.Count, x.Count), x.From.Compare(y.From), x.To.Compare(y.To), cmp.Compare(x.Protocol, y.Protocol), cmp.Compare(x.Port, y.Port))
	})
	return d, nil
}

func sameVerdict(x, y engine.Verdict) bool {
	if !x.Allowed || !y.Allowed {
		return x.Allowed == y.Allowed
	}
	return x.Egress.SameLayer7(y.Egress) && x.Ingress.SameLayer7(y.Ingress)
}

func evaluateAll(e *engine.Engine, flows []Flow) []engine.Verdict {
	verdicts := make([]engine.Verdict, len(flows))
	for i, f := range flows {
		verdicts[i] = e.Evaluate(f.From, f.To, f.Protocol, f.Port)
	}
	return verdicts
}

// endpointAt returns the endpoint of this node that has an address, or the zero Endpoint.
func endpointAt(endpoints endpointmanager.Lookup, addr netip.Addr) endpoint.Endpoint {
	ep, err := endpoints.Get(endpoint.ByAddress(addr))
	if err != nil {
		return endpoint.Endpoint{}
	}
	return ep
}
