package datapath

import (
	"context"
	"errors"
	"slices"

	"porin.dev/porin/cells/doctor"
	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/endpointmanager"
	"porin.dev/porin/cells/link"
)

// Keeper is what repairs need of the endpoints' manager.
type Keeper interface {
	Repair(ctx context.Context, attachment endpoint.Attachment) error
	Delete(ctx context.Context, attachment endpoint.Attachment, cfg endpoint.DeleteConfig) endpointmanager.DeleteResult
	Creating() []endpoint.Attachment
}

// Checker compares the endpoints with the kernel: the datapath's doctor.Checker.
//
// Endpoints come and go meanwhile. It compares endpoints that were ready before it read the kernel and are the same afterwards.
// An entry counts as stale only if no endpoint of either time owned it, whatever its state. Only entries of an endpoint
// that came and went while it read are found once, and never again.
type Checker struct {
	datapath  *Datapath
	parts     []Part
	endpoints endpointmanager.Lookup
	keeper    Keeper
	remover   link.Remover
}

// NewChecker returns the checker of a datapath.
func NewChecker(d *Datapath, endpoints endpointmanager.Lookup, keeper Keeper, remover link.Remover) *Checker {
	return &Checker{datapath: d, parts: []Part{d.Links(), d.Maps()}, endpoints: endpoints, keeper: keeper, remover: remover}
}

// Owner implements doctor.Checker.
func (*Checker) Owner() string { return "datapath" }

// Examine implements doctor.Checker.
func (c *Checker) Examine(_ context.Context, only string) ([]doctor.Finding, error) {
	before, err := c.list(only)
	if err != nil {
		return nil, err
	}
	compared, err := c.compare(before)
	if err != nil {
		return nil, err
	}
	after, err := c.list(only)
	if err != nil {
		return nil, err
	}
	findings := c.endpointFindings(compared, after)
	if only != "" {
		return findings, nil
	}
	stale, staleErr := c.staleFindings()
	node, nodeErr := c.nodeFindings()
	return slices.Concat(findings, stale, node), errors.Join(staleErr, nodeErr)
}

// list returns all endpoints, or the one of an attachment if it is there.
func (c *Checker) list(only string) ([]endpoint.Endpoint, error) {
	if only == "" {
		return c.endpoints.List(), nil
	}
	attachment, err := endpoint.ParseAttachment(only)
	if err != nil {
		return nil, err
	}
	ep, err := c.endpoints.Get(endpoint.ByAttachment(attachment))
	if errors.Is(err, endpointmanager.ErrNotFound) {
		return nil, nil
	}
	return []endpoint.Endpoint{ep}, err
}

// nodeFindings finds what has to do with no endpoint. It goes on after what could not be read.
func (c *Checker) nodeFindings() ([]doctor.Finding, error) {
	links, pins := &c.datapath.links, &c.datapath.pins
	router := links.router
	if router == nil {
		return nil, ErrNotStarted
	}
	pinFindings, pinsErr := pins.findings()
	programs, programsErr := pins.programFindings(links)
	sysctls, sysctlsErr := router.findings()
	uplinks, uplinksErr := c.datapath.uplinks.findings()
	fromUplinks, fromUplinksErr := c.datapath.fromUplinks.findings()
	blocks, blocksErr := c.datapath.remoteBlocks.findings(pins)
	firewalls, firewallsErr := c.datapath.firewallFindings()
	return slices.Concat(pinFindings, programs, sysctls, uplinks, fromUplinks, blocks, firewalls),
		errors.Join(pinsErr, programsErr, sysctlsErr, uplinksErr, fromUplinksErr, blocksErr, firewallsErr)
}
