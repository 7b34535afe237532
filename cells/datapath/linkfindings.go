package datapath

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/vishvananda/netlink"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/cells/doctor"
	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/link"
)

// orphanLinks finds host ends, which package link makes and removes. It calls owners after it has read the kernel.
func (c *Checker) orphanLinks(owners func() []Entry) (findings []doctor.Finding, err error) {
	ends, err := c.datapath.links.hostEnds()
	d := DesiredOf(owners())
	for _, l := range ends {
		index, name := l.Attrs().Index, l.Attrs().Name
		if d.HasLink(index) || d.HasName(name) {
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
	if d := DesiredOf(c.owners()); d.HasLink(index) || d.HasName(name) {
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
