package bandwidth

import (
	"context"
	"fmt"

	"porin.dev/porin/cells/doctor"
	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/endpointmanager"
	"porin.dev/porin/internal/reconcile"
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
}

// Checker compares the limits of endpoints with what the kernel has: the doctor.Checker of this cell. Follow repairs
// them as soon as the kernel notifies of a change.
type Checker struct {
	step      *Step
	endpoints endpointmanager.Lookup
	keeper    Keeper
	follower  *reconcile.Follower[endpoint.Attachment]
}

// NewChecker returns the checker of a step.
func NewChecker(step *Step, endpoints endpointmanager.Lookup, keeper Keeper) *Checker {
	c := &Checker{step: step, endpoints: endpoints, keeper: keeper}
	c.follower = reconcile.NewFollower(changes{c}, step.log)
	return c
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
	l, err := c.step.limits()
	if err != nil {
		return nil, err
	}
	found, err := reconcile.Examine(func() []endpoint.Endpoint { return c.limited(only) }, l)
	for _, f := range found {
		attachment := f.Owner.Spec.Attachment
		finding := doctor.Finding{
			Kind: f.Kind, Endpoint: attachment.String(), Detail: f.String(),
			Subject: fmt.Sprintf("endpoint %d on link %d: %s", f.Owner.ID, f.Owner.Host.Index, f.Subject),
			Repair:  func(ctx context.Context) error { return c.keeper.Repair(ctx, attachment) },
		}
		if c.follower.IsContested(attachment) {
			finding.Detail += "; " + reconcile.Contested
		}
		findings = append(findings, finding)
	}
	if only != "" || err != nil {
		return findings, err
	}
	orphans, err := l.Orphans(reconcile.Around(c.endpoints.List))
	for _, orphan := range orphans {
		findings = append(findings, doctor.Finding{
			Kind: orphan.Kind, Subject: orphan.Subject, Detail: orphan.String(),
			Repair: func(context.Context) error { return orphan.Remove(c.endpoints.List) },
		})
	}
	return findings, err
}

// limited are the endpoints with limits that are ready, or the one of them that only names.
func (c *Checker) limited(only string) (list []endpoint.Endpoint) {
	for _, ep := range c.endpoints.List() {
		if ep.State == endpoint.Ready && ep.Spec.IsLimited() && (only == "" || only == ep.Spec.Attachment.String()) {
			list = append(list, ep)
		}
	}
	return list
}
