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

// desired is the expected state of the present endpoints, and the names of the links of coming ones.
func (c *Checker) desired() []Entry {
	var entries []Entry
	for _, a := range c.keeper.Creating() { // before the list: an endpoint that has come meanwhile is in both
		entries = append(entries, Entry{LinkName: a.HostEnd()})
	}
	return append(entries, entriesOf(c.endpoints.List())...)
}

// staleFindings finds objects without an endpoint. Objects that are read between two lists of the endpoints may belong to endpoints of either.
func (c *Checker) staleFindings() (findings []doctor.Finding, err error) {
	latest := c.desired()
	want := func() Desired {
		before := latest
		latest = c.desired()
		return DesiredOf(before, latest)
	}
	findings, err = c.staleLinks(want)
	for _, part := range c.parts {
		stale, partErr := part.Stale(want)
		err = errors.Join(err, partErr)
		for _, s := range stale {
			findings = append(findings, doctor.Finding{
				Kind: s.Kind, Subject: s.Subject, Detail: s.Detail,
				Repair: func(context.Context) error { return s.Remove(c.desiredNow) },
			})
		}
	}
	return findings, err
}

func (c *Checker) desiredNow() Desired { return DesiredOf(c.desired()) }

// staleLinks finds host ends, which package link makes and removes.
func (c *Checker) staleLinks(want Want) (findings []doctor.Finding, err error) {
	ends, err := c.datapath.links.hostEnds()
	d := want()
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
	if d := c.desiredNow(); d.HasLink(index) || d.HasName(name) {
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
