package datapath

import (
	"context"
	"errors"
	"fmt"

	"porin.dev/porin/cells/doctor"
	"porin.dev/porin/cells/endpointmanager"
)

// ofEndpoints leaves out what is no longer as it was when it was looked at.
func (c *Checker) ofEndpoints(judged []judgement, after []endpointmanager.Endpoint) (findings []doctor.Finding) {
	now := map[uint16]endpointmanager.Endpoint{}
	for _, ep := range after {
		now[ep.ID] = ep
	}
	for _, j := range judged {
		if now[j.endpoint.ID] != j.endpoint {
			continue
		}
		for _, f := range j.flaws {
			findings = append(findings, c.finding(j.endpoint, f))
		}
	}
	return findings
}

func (c *Checker) finding(ep endpointmanager.Endpoint, f flaw) doctor.Finding {
	finding := doctor.Finding{
		Kind: f.kind, Endpoint: ep.Spec.Attachment.String(), Detail: f.String(),
		Subject: fmt.Sprintf("endpoint %d on link %d: %s", ep.ID, ep.Host.Index, f.what),
	}
	switch f.kind {
	case linkDiffers: // for a person
	case linkMissing:
		finding.Repair = func(ctx context.Context) error { return c.giveUp(ctx, ep) }
	default:
		finding.Repair = func(ctx context.Context) error { return c.keeper.Repair(ctx, ep.Spec.Attachment) }
	}
	return finding
}

// giveUp deletes an endpoint whose link is gone for good, and not the attachment's next life, which may begin meanwhile.
func (c *Checker) giveUp(ctx context.Context, ep endpointmanager.Endpoint) error {
	if now, err := c.endpoints.Get(endpointmanager.ByID(ep.ID)); err != nil || now != ep {
		return nil // it is another by now, or on its way
	}
	if _, err := c.datapath.links.Link(ep.Host.Index); !errors.Is(err, ErrNoLink) {
		return err
	}
	cfg := endpointmanager.DeleteConfig{Began: max(ep.Spec.Began, 1)} // 0 would be now
	result := c.keeper.Delete(ctx, ep.Spec.Attachment, cfg)
	return errors.Join(result.Errors...)
}
