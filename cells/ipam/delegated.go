package ipam

import (
	"context"
	"errors"
	"fmt"

	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/ipam/delegate"
	"porin.dev/porin/internal/fault"
)

var errNoPlugins = fault.New(fault.Invalid, "this agent calls no other IPAM plugins")

// attachDelegated takes addresses from the plugin, and refuses addresses that another endpoint or the node has. It
// comes after the ledger's intent: the plugin's addresses are released when the agent dies.
func (s *Step) attachDelegated(ctx context.Context, ep endpoint.Endpoint) (_ endpoint.Endpoint, err error) {
	if s.plugins == nil {
		return ep, errNoPlugins
	}
	addresses, result, err := s.plugins.Add(ctx, delegate.CallOf(ep.Spec))
	if err != nil {
		return ep, err
	}
	ep.Addresses = addresses
	if err := endpoint.ValidateAddresses(addresses); err != nil {
		return ep, fault.Wrap(fault.Invalid, fmt.Errorf("the IPAM plugin %s gave an address that a container cannot have: %w", ep.Spec.IPAM.Type, err))
	}
	if ep.IPAMResult, err = result.Encode(); err != nil {
		return ep, err
	}
	if err := checkNotOwn(ep); err != nil {
		return ep, err
	}
	if err := s.allocator.Adopt(allocationOf(ep)); err != nil {
		return ep, fmt.Errorf("take an address that the IPAM plugin %s gave: %w", ep.Spec.IPAM.Type, err)
	}
	return ep, nil
}

// detachDelegated has the plugin take back what it gave, when the link is gone and nothing uses the addresses.
func (s *Step) detachDelegated(ctx context.Context, ep endpoint.Endpoint) error {
	if ep.Spec.IPAM.Type == "" {
		return nil
	}
	if s.plugins == nil {
		return errNoPlugins
	}
	err := s.plugins.Del(ctx, delegate.CallOf(ep.Spec))
	switch {
	case errors.Is(err, delegate.ErrDHCP):
		return nil // an earlier agent had it lease an address; the lease ends at the server by its time
	case errors.Is(err, delegate.ErrNoPlugin) && ep.Addresses == (endpoint.Addresses{}):
		return nil // it is not installed, so it gave nothing
	}
	return err
}

// checkNotOwn refuses an address of the node itself: the datapath would take the node's packets to the container.
func checkNotOwn(ep endpoint.Endpoint) error {
	uses, err := NewKernel().Uses()
	if err != nil {
		return fmt.Errorf("read the addresses of the node: %w", err)
	}
	for _, use := range uses {
		for _, addr := range ep.Addresses.List() {
			if use.Own && use.Addr == addr {
				return fault.New(fault.Conflict, fmt.Sprintf("the IPAM plugin %s gave the address %s, which the node itself has: "+
					"have it give others (\"ipam\" in the network configuration)", ep.Spec.IPAM.Type, addr))
			}
		}
	}
	return nil
}
