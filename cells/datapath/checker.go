package datapath

import (
	"context"
	"errors"

	"porin.dev/porin/cells/doctor"
	"porin.dev/porin/cells/endpointmanager"
)

// Keeper is what repairs need of the endpoints' manager.
type Keeper interface {
	Repair(ctx context.Context, attachment endpointmanager.Attachment) error
	Delete(ctx context.Context, attachment endpointmanager.Attachment, cfg endpointmanager.DeleteConfig) endpointmanager.DeleteResult
}

// Checker compares the endpoints with what the kernel has of them: the datapath's doctor.Checker.
//
// Endpoints come and go while it looks. It judges those that were ready before it looked and are the same afterwards,
// and takes nothing for an orphan that belongs to an endpoint of either time, whatever its state.
type Checker struct {
	datapath  *Datapath
	endpoints endpointmanager.Lookup
	keeper    Keeper
}

// NewChecker returns the checker of a datapath.
func NewChecker(d *Datapath, endpoints endpointmanager.Lookup, keeper Keeper) *Checker {
	return &Checker{datapath: d, endpoints: endpoints, keeper: keeper}
}

// Owner implements doctor.Checker.
func (*Checker) Owner() string { return "datapath" }

// Examine implements doctor.Checker.
func (c *Checker) Examine(_ context.Context, only string) ([]doctor.Finding, error) {
	before, err := c.list(only)
	if err != nil {
		return nil, err
	}
	judged, err := c.datapath.examine(before)
	if err != nil {
		return nil, err
	}
	var all inventory
	var unread error
	if only == "" {
		unread = c.datapath.takeInventory(&all, judged)
	}
	after, err := c.list(only)
	if err != nil {
		return nil, err
	}
	findings := append(c.ofEndpoints(judged, after), c.ofNobody(&all, ownersOf(before, after))...)
	return findings, unread
}

// list returns all endpoints, or the one of an attachment if it is there.
func (c *Checker) list(only string) ([]endpointmanager.Endpoint, error) {
	if only == "" {
		return c.endpoints.List(), nil
	}
	attachment, err := endpointmanager.ParseAttachment(only)
	if err != nil {
		return nil, err
	}
	ep, err := c.endpoints.Get(endpointmanager.ByAttachment(attachment))
	if errors.Is(err, endpointmanager.ErrNotFound) {
		return nil, nil
	}
	return []endpointmanager.Endpoint{ep}, err
}
