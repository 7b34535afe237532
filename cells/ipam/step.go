package ipam

import (
	"cmp"
	"context"
	"fmt"

	"porin.dev/porin/cells/endpointmanager"
	"porin.dev/porin/cells/ipam/allocator"
	"porin.dev/porin/cells/ipam/delegate"
	"porin.dev/porin/cells/link"
)

// Step is ipam's part in an endpoint's life: the first to attach and the last to detach.
type Step struct {
	allocator *allocator.Allocator
	pools     PoolSources
	delegated *delegated // nil when no other IPAM plugin may be named
}

var (
	_ endpointmanager.Step       = (*Step)(nil)
	_ endpointmanager.Rememberer = (*Step)(nil)
	_ endpointmanager.Withholder = (*Step)(nil)
)

// NewStep returns the step of an allocator. The sources say which pool is whose that names none.
func NewStep(a *allocator.Allocator, sources ...PoolSource) *Step {
	return &Step{allocator: a, pools: sources}
}

func newStep(cfg Config, a *allocator.Allocator) *Step { return NewStep(a, NewPoolSources(cfg)...) }

// WithPlugins returns the step that calls the IPAM plugin of an endpoint which names one. The opener is for plugins that speak
// over the endpoint's link.
func (s *Step) WithPlugins(plugins *delegate.Plugins, opener link.Opener) *Step {
	return &Step{s.allocator, s.pools, &delegated{plugins, opener}}
}

// Name implements endpointmanager.Step.
func (s *Step) Name() string { return "ipam" }

// Attach gives the endpoint its addresses: those that its caller has reserved, or others of the pool that is chosen for it.
// That pool is the endpoint's from then on, whatever the sources say later. Until the ledger has it nobody needs it: an
// endpoint that was half made is taken down by its handle. Addresses of another IPAM are taken as they are, if nobody else
// has them.
func (s *Step) Attach(ctx context.Context, ep endpointmanager.Endpoint, namespace *endpointmanager.Namespace) (endpointmanager.Endpoint, error) {
	if ep.Spec.IPAM.Type != "" {
		return s.attachDelegated(ctx, ep, namespace)
	}
	if ep.Spec.ExternalIPAM {
		ep.Addresses = ep.Spec.Requested
		if err := s.allocator.Adopt(allocationOf(ep)); err != nil {
			return ep, fmt.Errorf("take an address of another IPAM: %w", err)
		}
		return ep, nil
	}
	got, err := s.allocator.Allocate(ctx, allocator.Request{
		Owner: handleOf(ep), PodHandle: podHandleOf(ep), Pool: s.poolFor(ep.Spec), Namespace: ep.Spec.Pod.Namespace,
		Want: ep.Spec.Requested, Reservation: ep.Spec.Reservation,
	})
	if err != nil {
		return ep, err
	}
	ep.Addresses, ep.Pool = got.Addresses, got.Pool
	return ep, nil
}

// poolFor is the pool that is asked: what the caller names, or what the sources say. What is reserved has one already.
func (s *Step) poolFor(spec endpointmanager.Spec) string {
	if spec.Pool != "" || spec.Reservation != "" {
		return spec.Pool
	}
	return s.pools.PoolFor(spec)
}

// Detach releases all that the attachment has, recorded in ep or not. While another step's part is still there it keeps
// them. After a restart in the middle of a deletion they are nobody's, so it takes them over first: to keep them, or so
// that they rest when they are released. What is not to be released is kept; addresses of another IPAM never were ours
// to release or to keep.
func (s *Step) Detach(ctx context.Context, ep endpointmanager.Endpoint, cfg endpointmanager.DeleteConfig) error {
	if cfg.NoIPRelease && !ep.Spec.ExternalIPAM {
		s.allocator.Keep(handleOf(ep))
		return nil
	}
	if ep.Addresses != (endpointmanager.Addresses{}) {
		_ = s.allocator.Adopt(allocationOf(ep)) // what somebody else has by now is theirs
	}
	if cfg.Incomplete {
		return nil
	}
	if err := s.detachDelegated(ctx, ep); err != nil {
		return err
	}
	s.allocator.Release(handleOf(ep))
	return nil
}

// Restore takes the endpoint's addresses again.
func (s *Step) Restore(_ context.Context, ep endpointmanager.Endpoint) (replaced []string, err error) {
	if err := s.allocator.Adopt(allocationOf(ep)); err != nil {
		return nil, fmt.Errorf("%w: %w", endpointmanager.ErrAddressNotTaken, err)
	}
	return nil, nil
}

// Withhold takes the endpoint's addresses, so that nobody else gets them before its Detach.
func (s *Step) Withhold(ep endpointmanager.Endpoint) error {
	if ep.Addresses == (endpointmanager.Addresses{}) {
		return nil
	}
	return s.allocator.Adopt(allocationOf(ep))
}

// Remember puts into quarantine what was released before the agent started.
func (s *Step) Remember(deletions []endpointmanager.Deletion) {
	for _, d := range deletions {
		if d.Config.NoIPRelease || d.Endpoint.Spec.ExternalIPAM {
			continue
		}
		for _, addr := range d.Endpoint.Addresses.List() {
			s.allocator.Quarantine(addr, d.At)
		}
	}
}

// allocationOf is what the endpoint has. The record of an earlier version has no pool but what the caller asked for.
func allocationOf(ep endpointmanager.Endpoint) allocator.Allocation {
	pool := cmp.Or(ep.Pool, ep.Spec.Pool, allocator.DefaultPool)
	a := allocator.Allocation{Owner: handleOf(ep), PodHandle: podHandleOf(ep), Pool: pool, Addresses: ep.Addresses, Since: ep.Created}
	if ep.Spec.ExternalIPAM {
		a.Pool, a.External = allocator.ExternalPool, true
	}
	return a
}

func handleOf(ep endpointmanager.Endpoint) allocator.Handle {
	return allocator.NewHandle(ep.Spec.Network, ep.Spec.Attachment)
}

func podHandleOf(ep endpointmanager.Endpoint) allocator.Handle {
	return allocator.PodHandle(ep.Spec.Pod.Namespace, ep.Spec.Pod.Name)
}
