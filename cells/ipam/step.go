package ipam

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"go.uber.org/fx"

	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/endpointmanager"
	"porin.dev/porin/cells/ipam/allocator"
	"porin.dev/porin/cells/ipam/delegate"
	"porin.dev/porin/internal/fault"
)

// Step is ipam's part in an endpoint's life: the first to attach and the last to detach.
type Step struct {
	allocator *allocator.Allocator
	source    *allocator.Source // of the same allocator
	pools     PoolSources
	plugins   *delegate.Plugins // nil when no other IPAM plugin may be named
}

var (
	_ endpoint.Step       = (*Step)(nil)
	_ endpoint.Rememberer = (*Step)(nil)
	_ endpoint.Occupier   = (*Step)(nil)
)

// NewStep returns the step that gives out addresses of a source. The pool sources say which pool is whose that names
// none.
func NewStep(s *allocator.Source, pools ...PoolSource) *Step {
	return &Step{allocator: s.Allocator(), source: s, pools: pools}
}

type stepParams struct {
	fx.In

	Config     Config
	Source     *allocator.Source
	Namespaces []PoolSource `group:"ipam.namespacepools"`
}

func newStep(p stepParams) *Step {
	return NewStep(p.Source, NewPoolSources(p.Config, p.Namespaces...)...)
}

// WithPlugins returns the step that calls the IPAM plugin of an endpoint which names one.
func (s *Step) WithPlugins(plugins *delegate.Plugins) *Step {
	return &Step{s.allocator, s.source, s.pools, plugins}
}

// Name implements endpoint.Step.
func (s *Step) Name() string { return "ipam" }

// Attach gives the endpoint its addresses: its caller's reserved ones, or others of its pool. That pool is the
// endpoint's from then on, whatever the sources say later. Until the ledger has it, it is not needed: an endpoint that
// was half made is taken down by its handle. Addresses of another IPAM are taken as they are, if no other owner has
// them.
func (s *Step) Attach(ctx context.Context, ep endpoint.Endpoint, _ *endpoint.Namespace) (endpoint.Endpoint, error) {
	if ep.Spec.IPAM.Type != "" {
		return s.attachDelegated(ctx, ep)
	}
	if ep.Spec.ExternalIPAM {
		ep.Addresses = ep.Spec.Requested
		if err := s.allocator.Adopt(allocationOf(ep)); err != nil {
			return ep, fmt.Errorf("take an address of another IPAM: %w", err)
		}
		return ep, nil
	}
	pool, otherwise := s.poolFor(ep.Spec)
	got, err := s.source.Allocate(ctx, allocator.Request{
		Owner: handleOf(ep), PodHandle: podHandleOf(ep), Pool: pool, Namespace: ep.Spec.Pod.Namespace,
		Want: ep.Spec.Requested, Reservation: ep.Spec.Reservation,
	})
	switch {
	case errors.Is(err, allocator.ErrUnknownPool):
		return ep, fault.WithHint(err, "create the pool, or "+otherwise)
	case errors.Is(err, allocator.ErrNamespace):
		return ep, fault.WithHint(err, "allow the namespace in the pool, or "+otherwise)
	case err != nil:
		return ep, err
	}
	ep.Addresses, ep.Pool = got.Addresses, got.Pool
	return ep, nil
}

// poolFor returns the pool to ask, and a hint how to choose another pool: the caller's, or the pool that the sources
// name. A reservation has one already.
func (s *Step) poolFor(spec endpoint.Spec) (pool, otherwise string) {
	switch {
	case spec.Reservation != "":
		return spec.Pool, "reserve an address of another pool"
	case spec.Pool != "":
		return spec.Pool, "have the pod name another one"
	}
	return s.pools.PoolFor(spec)
}

// Detach releases all that the attachment has, recorded in ep or not. While another step's part is still there it keeps
// them. After a restart in the middle of a deletion they have no owner, so it takes them over first: to keep them, or
// so that they rest when they are released. Addresses that must not be released are kept; addresses of another IPAM
// never were ours to release or to keep.
func (s *Step) Detach(ctx context.Context, ep endpoint.Endpoint, cfg endpoint.DeleteConfig) error {
	if ep.Addresses != (endpoint.Addresses{}) {
		_ = s.allocator.Adopt(allocationOf(ep)) // addresses with another owner by now stay with it
	}
	if cfg.NoIPRelease && !ep.Spec.ExternalIPAM {
		s.allocator.Keep(handleOf(ep))
		return nil
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
func (s *Step) Restore(_ context.Context, ep endpoint.Endpoint) (replaced []string, err error) {
	if err := s.allocator.Adopt(allocationOf(ep)); err != nil {
		return nil, fmt.Errorf("%w: %w", endpointmanager.ErrAddressNotTaken, err)
	}
	return nil, nil
}

// Occupy takes the endpoint's addresses, so that no other owner gets them before its Detach.
func (s *Step) Occupy(ep endpoint.Endpoint) error {
	if ep.Addresses == (endpoint.Addresses{}) {
		return nil
	}
	return s.allocator.Adopt(allocationOf(ep))
}

// Remember puts into quarantine what was released before the agent started, or kept: no owner is left to take it.
func (s *Step) Remember(deletions []endpoint.Deletion) {
	for _, d := range deletions {
		if d.Endpoint.Spec.ExternalIPAM {
			continue
		}
		for _, addr := range d.Endpoint.Addresses.List() {
			s.allocator.Quarantine(addr, d.At)
		}
	}
}

// allocationOf is what the endpoint has.
func allocationOf(ep endpoint.Endpoint) allocator.Allocation {
	return allocator.Allocation{
		Owner: handleOf(ep), PodHandle: podHandleOf(ep), Pool: poolOf(ep), Addresses: ep.Addresses, Since: ep.Created, External: ep.Spec.ExternalIPAM,
	}
}

// poolOf is the pool of the endpoint's addresses, for people: what counts is in which block they lie. "" is that it is
// not known, as only the endpoint's link is, which has no network's name either.
func poolOf(ep endpoint.Endpoint) string {
	pool := cmp.Or(ep.Pool, ep.Spec.Pool)
	switch {
	case ep.Spec.ExternalIPAM:
		return allocator.ExternalPool
	case pool == "" && ep.Spec.Network != "": // on record by an earlier version
		return allocator.DefaultPool
	}
	return pool
}

func handleOf(ep endpoint.Endpoint) allocator.Handle {
	return allocator.NewHandle(ep.Spec.Network, ep.Spec.Attachment)
}

func podHandleOf(ep endpoint.Endpoint) allocator.Handle {
	return allocator.PodHandle(ep.Spec.Pod.Namespace, ep.Spec.Pod.Name)
}
