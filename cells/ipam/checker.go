package ipam

import (
	"context"
	"errors"

	"porin.dev/porin/cells/doctor"
	"porin.dev/porin/cells/endpointmanager"
)

// The kinds of disagreement, by the names that programs know them by.
const (
	addressMissing = "address-missing"
	addressDiffers = "address-differs"
	addressOrphan  = "address-orphan"
)

// Repairer mends an endpoint: an endpointmanager.Manager does.
type Repairer interface {
	Repair(ctx context.Context, attachment endpointmanager.Attachment) error
}

// Checker compares the endpoints' addresses with what the allocator says who has: ipam's doctor.Checker. It judges the
// endpoints that were ready before it looked and are the same afterwards, and takes no address for an orphan whose owner
// is an endpoint at either time, whatever its state.
//
// That an address lies in no prefix any more, as the configuration has changed, is no disagreement: its endpoint keeps it
// until it ends.
type Checker struct {
	allocator Allocator
	endpoints endpointmanager.Lookup
	repairer  Repairer
}

// NewChecker returns the checker of an allocator.
func NewChecker(a Allocator, endpoints endpointmanager.Lookup, repairer Repairer) *Checker {
	return &Checker{allocator: a, endpoints: endpoints, repairer: repairer}
}

// Owner implements doctor.Checker.
func (*Checker) Owner() string { return "ipam" }

// Kinds implements doctor.Checker.
func (*Checker) Kinds() []doctor.Kind {
	return []doctor.Kind{
		{Name: addressMissing, Meaning: "an endpoint has an address that is nobody's for the allocator, which may give it to another one", Repair: "the endpoint takes it again"},
		{Name: addressDiffers, Meaning: "the allocator has an endpoint's address as another one's, or the endpoint's as another address", Repair: "delete one of the two containers"},
		{Name: addressOrphan, Meaning: "an address is in use by an attachment that is no endpoint", Repair: "it is released, if that is still so"},
	}
}

// Examine implements doctor.Checker.
func (c *Checker) Examine(_ context.Context, only string) ([]doctor.Finding, error) {
	before, err := c.list(only)
	if err != nil {
		return nil, err
	}
	allocations := c.allocator.List()
	after, err := c.list(only)
	if err != nil {
		return nil, err
	}
	findings := c.ofEndpoints(before, after, allocations)
	if only == "" {
		findings = append(findings, c.orphans(before, after, allocations)...)
	}
	return findings, nil
}

// list returns all endpoints by their handles, or the one of an attachment if it is there.
func (c *Checker) list(only string) (map[Handle]endpointmanager.Endpoint, error) {
	found := map[Handle]endpointmanager.Endpoint{}
	if only == "" {
		for _, ep := range c.endpoints.List() {
			found[handleOf(ep)] = ep
		}
		return found, nil
	}
	attachment, err := endpointmanager.ParseAttachment(only)
	if err != nil {
		return nil, err
	}
	ep, err := c.endpoints.Get(endpointmanager.ByAttachment(attachment))
	if errors.Is(err, endpointmanager.ErrNotFound) {
		return found, nil
	}
	found[handleOf(ep)] = ep
	return found, err
}
