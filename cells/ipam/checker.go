package ipam

import (
	"context"
	"errors"
	"slices"

	"porin.dev/porin/cells/doctor"
	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/endpointmanager"
	"porin.dev/porin/cells/ipam/allocator"
)

// The kinds of disagreement, by the names that programs know them by.
const (
	addressMissing = "address-missing"
	addressDiffers = "address-differs"
	addressOrphan  = "address-orphan"
	addressForeign = "address-foreign"
)

// Repairer mends an endpoint: an endpointmanager.Manager does.
type Repairer interface {
	Repair(ctx context.Context, attachment endpoint.Attachment) error
}

// Checker compares the endpoints' addresses with what the allocator says who has, and that with what the node's kernel
// uses: ipam's doctor.Checker. It judges the endpoints that were ready before it looked and are the same afterwards,
// and takes no address for an orphan whose owner is an endpoint at either time, whatever its state.
type Checker struct{ Parts }

// Parts are what a [Checker] looks at.
type Parts struct {
	Allocator *allocator.Allocator
	Kernel    Kernel
	Endpoints endpointmanager.Lookup
	Repairer  Repairer
}

// NewChecker returns the checker of an allocator.
func NewChecker(p Parts) *Checker { return &Checker{p} }

// Owner implements doctor.Checker.
func (*Checker) Owner() string { return "ipam" }

// Kinds implements doctor.Checker.
func (*Checker) Kinds() []doctor.Kind {
	kinds := []doctor.Kind{
		{Name: addressMissing, Meaning: "an endpoint has an address without an owner in the allocator, which may give it to another endpoint", Repair: "the endpoint takes it again"},
		{Name: addressDiffers, Meaning: "the allocator has an endpoint's address as another one's, or the endpoint's as another address", Repair: "delete one of the two containers"},
		{Name: addressOrphan, Meaning: "an address is in use by an attachment that is no endpoint", Repair: "it is released, if that is still so"},
		{Name: addressForeign, Meaning: "the node's kernel uses an address that is not Porin's doing, and that the allocator may give to a container", Repair: "remove it, or take the address out of the pool"},
	}
	for i := range kinds {
		kinds[i].About = doctor.Addresses
	}
	return kinds
}

// Examine implements doctor.Checker.
func (c *Checker) Examine(_ context.Context, only string) ([]doctor.Finding, error) {
	before, err := c.list(only)
	if err != nil {
		return nil, err
	}
	usage := c.Allocator.Usage()
	after, err := c.list(only)
	if err != nil {
		return nil, err
	}
	findings := c.ofEndpoints(before, after, usage.Allocations)
	if only != "" {
		return findings, nil
	}
	uses, err := c.Kernel.Uses()
	return slices.Concat(findings, c.orphans(before, after, usage.Allocations), c.foreign(uses)), err
}

// list returns all endpoints by their handles, or the one of an attachment if it is there.
func (c *Checker) list(only string) (map[allocator.Handle]endpoint.Endpoint, error) {
	found := map[allocator.Handle]endpoint.Endpoint{}
	if only == "" {
		for _, ep := range c.Endpoints.List() {
			found[handleOf(ep)] = ep
		}
		return found, nil
	}
	attachment, err := endpoint.ParseAttachment(only)
	if err != nil {
		return nil, err
	}
	ep, err := c.Endpoints.Get(endpoint.ByAttachment(attachment))
	if errors.Is(err, endpointmanager.ErrNotFound) {
		return found, nil
	}
	found[handleOf(ep)] = ep
	return found, err
}
