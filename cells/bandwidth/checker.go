package bandwidth

import (
	"context"
	"errors"
	"fmt"

	"porin.dev/porin/cells/doctor"
	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/endpointmanager"
)

// The kinds of disagreement, by the names that programs know them by.
const (
	limitMissing = "bandwidth-limit-missing"
	limitDiffers = "bandwidth-limit-differs"
	limitOrphan  = "bandwidth-device-orphan"
)

// Keeper is what repairs need of the endpoints' manager.
type Keeper interface {
	Repair(ctx context.Context, attachment endpoint.Attachment) error
	Creating() []endpoint.Attachment
}

// Checker compares the limits of endpoints with what the kernel has: the doctor.Checker of this cell. It judges
// endpoints that were ready before it read the kernel and are the same afterwards.
type Checker struct {
	step      *Step
	endpoints endpointmanager.Lookup
	keeper    Keeper
}

// NewChecker returns the checker of a step.
func NewChecker(step *Step, endpoints endpointmanager.Lookup, keeper Keeper) *Checker {
	return &Checker{step, endpoints, keeper}
}

// Owner implements doctor.Checker.
func (*Checker) Owner() string { return "bandwidth" }

// Kinds implements doctor.Checker.
func (*Checker) Kinds() []doctor.Kind {
	return []doctor.Kind{
		{Name: limitMissing, Meaning: "an endpoint has a limit of bandwidth, and the kernel does not keep it", Repair: "it is restored"},
		{Name: limitDiffers, Meaning: "the kernel keeps another limit of bandwidth for an endpoint than it was made with", Repair: "it is restored"},
		{Name: limitOrphan, Meaning: "an ifb device for a pod's egress limit belongs to no endpoint", Repair: "it is removed, if it still has no owner"},
	}
}

// Examine implements doctor.Checker.
func (c *Checker) Examine(_ context.Context, only string) (findings []doctor.Finding, err error) {
	k, err := c.step.kernel()
	if err != nil {
		return nil, err
	}
	for _, ep := range c.endpoints.List() {
		if ep.State != endpoint.Ready || !ep.Spec.IsLimited() || only != "" && only != ep.Spec.Attachment.String() {
			continue
		}
		differences, err := k.compare(ep)
		if err != nil {
			return nil, fmt.Errorf("examine the limits of endpoint %s: %w", ep.Spec.Attachment, err)
		}
		if now, err := c.endpoints.Get(endpoint.ByID(ep.ID)); err != nil || now != ep {
			continue
		}
		for _, d := range differences {
			findings = append(findings, doctor.Finding{
				Kind: d.kind, Endpoint: ep.Spec.Attachment.String(), Detail: d.String(),
				Subject: fmt.Sprintf("endpoint %d on link %d: %s", ep.ID, ep.Host.Index, d.subject),
				Repair:  func(ctx context.Context) error { return c.keeper.Repair(ctx, ep.Spec.Attachment) },
			})
		}
	}
	if only != "" {
		return findings, nil
	}
	orphans, err := c.orphans(k)
	return append(findings, orphans...), err
}

// orphans are the devices that no endpoint had before the list of them, and none has after it.
func (c *Checker) orphans(k kernel) (findings []doctor.Finding, err error) {
	before := c.wanted()
	devices, err := k.devices()
	after := c.wanted()
	for _, device := range devices {
		attrs := device.Attrs()
		if before[attrs.Name] || after[attrs.Name] {
			continue
		}
		findings = append(findings, doctor.Finding{
			Kind: limitOrphan, Subject: subjectOf(attrs), Detail: subjectOf(attrs) + " belongs to no endpoint",
			Repair: func(ctx context.Context) error { return c.removeOrphan(ctx, attrs.Name, attrs.Index) },
		})
	}
	return findings, err
}

// wanted are the names of the devices that endpoints have, or may have soon.
func (c *Checker) wanted() map[string]bool {
	creating := c.keeper.Creating() // before the list: an endpoint that has come meanwhile is in both
	names := devicesOf(c.endpoints.List())
	for _, a := range creating {
		names[nameOf(a)] = true
	}
	return names
}

func (c *Checker) removeOrphan(ctx context.Context, name string, index int) error {
	k, err := c.step.kernel()
	if err != nil {
		return err
	}
	device, err := k.find(name)
	if errors.Is(err, ErrForeign) || err == nil && (device == nil || device.Attrs().Index != index || c.wanted()[name]) {
		return nil
	}
	if err != nil {
		return err
	}
	return c.step.remover.Remove(ctx, index)
}
