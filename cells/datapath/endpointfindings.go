package datapath

import (
	"context"
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"

	"porin.dev/porin/cells/doctor"
	"porin.dev/porin/cells/endpoint"
)

// compared is an endpoint and what is not as it should be.
type compared struct {
	endpoint    endpoint.Endpoint
	differences []Difference
}

// compare compares the endpoints that are ready.
func (c *Checker) compare(endpoints []endpoint.Endpoint) (all []compared, err error) {
	for _, ep := range endpoints {
		if ep.State != endpoint.Ready {
			continue
		}
		differences, err := c.differences(entryOf(ep))
		if errors.Is(err, netlink.ErrDumpInterrupted) {
			continue // not evidence of anything: the next examination may see more
		}
		if err != nil {
			return nil, fmt.Errorf("examine endpoint %s: %w", ep.Spec.Attachment, err)
		}
		all = append(all, compared{ep, differences})
	}
	return all, nil
}

func (c *Checker) differences(e Entry) (differences []Difference, err error) {
	for _, part := range c.parts {
		one, err := part.Compare(e)
		if err != nil {
			return nil, err
		}
		differences = append(differences, one...)
	}
	return differences, nil
}

// endpointFindings leaves out endpoints that are no longer as they were when they were compared.
func (c *Checker) endpointFindings(before []compared, after []endpoint.Endpoint) (findings []doctor.Finding) {
	now := map[uint16]endpoint.Endpoint{}
	for _, ep := range after {
		now[ep.ID] = ep
	}
	for _, one := range before {
		if now[one.endpoint.ID] != one.endpoint {
			continue
		}
		for _, d := range one.differences {
			findings = append(findings, c.endpointFinding(one.endpoint, d))
		}
	}
	return findings
}

func (c *Checker) endpointFinding(ep endpoint.Endpoint, d Difference) doctor.Finding {
	finding := doctor.Finding{
		Kind: d.Kind, Endpoint: ep.Spec.Attachment.String(), Detail: d.String(),
		Subject: fmt.Sprintf("endpoint %d on link %d: %s", ep.ID, ep.Host.Index, d.Subject),
	}
	switch d.Kind {
	case linkDiffers: // for a person
	case linkMissing:
		finding.Repair = func(ctx context.Context) error { return c.deleteWithoutLink(ctx, ep) }
	default:
		finding.Repair = func(ctx context.Context) error { return c.keeper.Repair(ctx, ep.Spec.Attachment) }
	}
	return finding
}

// deleteWithoutLink deletes an endpoint whose link is gone for good, and not the attachment's next one, which may begin
// meanwhile.
func (c *Checker) deleteWithoutLink(ctx context.Context, ep endpoint.Endpoint) error {
	if now, err := c.endpoints.Get(endpoint.ByID(ep.ID)); err != nil || now != ep {
		return nil // it is another by now, or on its way
	}
	if _, err := c.datapath.Links().Link(ep.Host.Index); !errors.Is(err, ErrNoLink) {
		return err
	}
	cfg := endpoint.DeleteConfig{Began: max(ep.Spec.Began, 1)} // 0 would be now
	result := c.keeper.Delete(ctx, ep.Spec.Attachment, cfg)
	return errors.Join(result.Errors...)
}
