package datapath

import (
	"context"
	"errors"
	"slices"

	"porin.dev/porin/cells/doctor"
	"porin.dev/porin/cells/endpointmanager"
	"porin.dev/porin/cells/link"
)

// Keeper is what repairs need of the endpoints' manager.
type Keeper interface {
	Repair(ctx context.Context, attachment endpointmanager.Attachment) error
	Delete(ctx context.Context, attachment endpointmanager.Attachment, cfg endpointmanager.DeleteConfig) endpointmanager.DeleteResult
	Coming() []endpointmanager.Attachment
}

// Checker compares the endpoints with what the kernel has of them: the datapath's doctor.Checker.
//
// Endpoints come and go while it looks. It judges those that were ready before it looked and are the same afterwards,
// and takes nothing for an orphan that belongs to an endpoint of either time, whatever its state. Only what an endpoint
// had that came and went while it looked is found once, and never again.
type Checker struct {
	datapath  *Datapath
	endpoints endpointmanager.Lookup
	keeper    Keeper
	remover   link.Remover
}

// NewChecker returns the checker of a datapath.
func NewChecker(d *Datapath, endpoints endpointmanager.Lookup, keeper Keeper, remover link.Remover) *Checker {
	return &Checker{datapath: d, endpoints: endpoints, keeper: keeper, remover: remover}
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
	after, err := c.list(only)
	if err != nil {
		return nil, err
	}
	findings := c.ofEndpoints(judged, after)
	if only != "" {
		return findings, nil
	}
	orphans, orphansErr := c.ofNobody()
	node, nodeErr := c.ofTheNode(judged)
	return slices.Concat(findings, orphans, node), errors.Join(orphansErr, nodeErr)
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
