package datapath

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/cells/doctor"
	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/endpointmanager"
	"porin.dev/porin/cells/link"
	"porin.dev/porin/internal/reconcile"
)

// Keeper is what repairs need of the endpoints' manager.
type Keeper interface {
	Repair(ctx context.Context, attachment endpoint.Attachment) error
	Delete(ctx context.Context, attachment endpoint.Attachment, cfg endpoint.DeleteConfig) endpointmanager.DeleteResult
}

// Checker compares the endpoints with the kernel: the datapath's doctor.Checker. Follow repairs what the kernel tells
// of at once.
//
// Endpoints come and go meanwhile. It compares endpoints that are ready, by the rules of package reconcile. Only an
// entry of an endpoint that came and went while it was read is found once, and never again.
type Checker struct {
	datapath  *Datapath
	parts     []Part
	endpoints endpointmanager.Lookup
	keeper    Keeper
	remover   link.Remover
	follower  *reconcile.Follower[endpoint.Attachment]
}

// NewChecker returns the checker of a datapath.
func NewChecker(d *Datapath, endpoints endpointmanager.Lookup, keeper Keeper, remover link.Remover) *Checker {
	c := &Checker{datapath: d, parts: []Part{d.Links(), d.Maps()}, endpoints: endpoints, keeper: keeper, remover: remover}
	c.follower = reconcile.NewFollower(changes{c}, d.log)
	return c
}

// Owner implements doctor.Checker.
func (*Checker) Owner() string { return "datapath" }

// Examine implements doctor.Checker.
func (c *Checker) Examine(_ context.Context, only string) (findings []doctor.Finding, err error) {
	list := c.endpoints.List
	if only != "" {
		attachment, err := endpoint.ParseAttachment(only)
		if err != nil {
			return nil, err
		}
		list = func() []endpoint.Endpoint {
			ep, err := c.endpoints.Get(endpoint.ByAttachment(attachment))
			if err != nil {
				return nil
			}
			return []endpoint.Endpoint{ep}
		}
	}
	found, err := reconcile.Examine(func() []Entry { return readyOf(list()) }, c.parts...)
	if err != nil {
		return nil, err
	}
	for _, f := range found {
		findings = append(findings, c.endpointFinding(f.Owner, f.Difference))
	}
	if only != "" {
		return findings, nil
	}
	orphans, orphansErr := c.orphanFindings()
	node, nodeErr := c.nodeFindings()
	return slices.Concat(findings, orphans, node), errors.Join(orphansErr, nodeErr)
}

// readyOf are the endpoints that are ready, as they should be in the kernel.
func readyOf(endpoints []endpoint.Endpoint) (entries []Entry) {
	for _, ep := range endpoints {
		if ep.State == endpoint.Ready {
			entries = append(entries, entryOf(ep))
		}
	}
	return entries
}

func (c *Checker) endpointFinding(e Entry, d Difference) doctor.Finding {
	finding := doctor.Finding{
		Kind: d.Kind, Endpoint: e.Attachment.String(), Detail: d.String(),
		Subject: fmt.Sprintf("endpoint %d on link %d: %s", e.ID, e.Link, d.Subject),
	}
	switch d.Kind {
	case linkDiffers: // for a person
	case linkMissing:
		finding.Repair = func(ctx context.Context) error { return c.deleteWithoutLink(ctx, e) }
	default:
		finding.Repair = func(ctx context.Context) error { return c.keeper.Repair(ctx, e.Attachment) }
		if c.follower.IsContested(e.Attachment) {
			finding.Detail += "; " + reconcile.Contested
		}
	}
	return finding
}

// owners are the endpoints, also those whose link is not made yet.
func (c *Checker) owners() []Entry { return entriesOf(c.endpoints.List()) }

// orphanFindings finds objects without an endpoint.
func (c *Checker) orphanFindings() (findings []doctor.Finding, err error) {
	owners := reconcile.Around(c.owners)
	findings, err = c.orphanLinks(owners)
	for _, part := range c.parts {
		orphans, partErr := part.Orphans(owners)
		err = errors.Join(err, partErr)
		for _, orphan := range orphans {
			findings = append(findings, doctor.Finding{
				Kind: orphan.Kind, Subject: orphan.Subject, Detail: orphan.Detail,
				Repair: func(context.Context) error { return orphan.Remove(c.owners) },
			})
		}
	}
	return findings, err
}

// nodeFindings finds what has to do with no endpoint. It goes on after what could not be read.
func (c *Checker) nodeFindings() ([]doctor.Finding, error) {
	router := c.datapath.links.router
	if router == nil {
		return nil, ErrNotStarted
	}
	sysctls, sysctlsErr := router.findings()
	uplinks, uplinksErr := c.datapath.uplinks.findings()
	fromUplinks, fromUplinksErr := c.datapath.fromUplinks.findings()
	firewalls, firewallsErr := c.datapath.firewallFindings()
	return slices.Concat(sysctls, uplinks, fromUplinks, firewalls),
		errors.Join(sysctlsErr, uplinksErr, fromUplinksErr, firewallsErr)
}

// orphanLinks finds host ends, which package link makes and removes. It calls owners after it has read the kernel.
func (c *Checker) orphanLinks(owners func() []Entry) (findings []doctor.Finding, err error) {
	ends, err := c.datapath.links.hostEnds()
	d := DesiredOf(owners())
	for _, l := range ends {
		index, name := l.Attrs().Index, l.Attrs().Name
		if d.Links[index] || d.Names[name] {
			continue
		}
		subject := fmt.Sprintf("link %s, index %d", name, index) // which tells it from a later one of that name
		findings = append(findings, doctor.Finding{
			Kind: linkOrphan, Subject: subject, Endpoint: madeFor(l), Detail: subject + " belongs to no endpoint",
			Repair: func(ctx context.Context) error { return c.removeLink(ctx, index, name) },
		})
	}
	return findings, err
}

// removeLink removes the link unless an endpoint has it by now. An endpoint that comes later never takes a link that is
// there: it makes its own.
func (c *Checker) removeLink(ctx context.Context, index int, name string) error {
	now, err := c.datapath.Links().Link(index)
	switch {
	case errors.Is(err, ErrNoLink):
		return nil
	case err != nil:
		return err
	case now.Attrs().Name != name || !link.IsHostEnd(now):
		return nil
	}
	if d := DesiredOf(c.owners()); d.Links[index] || d.Names[name] {
		return nil
	}
	return c.remover.Remove(ctx, index)
}

// madeFor is the attachment that stands in the link's alias, before a space, or "".
func madeFor(l netlink.Link) string {
	whose, _, _ := strings.Cut(l.Attrs().Alias, " ")
	a, err := endpoint.ParseAttachment(whose)
	if err != nil || v1.HostInterfaceName(a.ContainerID, a.IfName) != l.Attrs().Name {
		return ""
	}
	return whose
}

// deleteWithoutLink deletes an endpoint whose link is gone for good, and not the attachment's next one, which may begin
// meanwhile.
func (c *Checker) deleteWithoutLink(ctx context.Context, e Entry) error {
	ep, err := c.endpoints.Get(endpoint.ByID(e.ID))
	if err != nil || ep.State != endpoint.Ready || entryOf(ep) != e {
		return nil // it is another by now, or on its way
	}
	if _, err := c.datapath.Links().Link(e.Link); !errors.Is(err, ErrNoLink) {
		return err
	}
	cfg := endpoint.DeleteConfig{Began: max(ep.Spec.Began, 1)} // 0 would be now
	result := c.keeper.Delete(ctx, e.Attachment, cfg)
	return errors.Join(result.Errors...)
}
