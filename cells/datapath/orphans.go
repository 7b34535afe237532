package datapath

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/cells/doctor"
	"porin.dev/porin/cells/endpointmanager"
	"porin.dev/porin/cells/link"
)

// ofNobody finds what belongs to no endpoint.
func (c *Checker) ofNobody() ([]doctor.Finding, error) {
	before := c.endpoints.List()
	w, wiringErr := c.datapath.links.listWiring()
	between := c.endpoints.List()
	entries, entriesErr := c.datapath.maps.takeEntries()
	after := c.endpoints.List()
	findings := append(c.orphanWiring(w, ownersOf(before, between).andOf(c.keeper.Coming())), c.orphanEntries(entries, ownersOf(between, after))...)
	return findings, errors.Join(wiringErr, entriesErr)
}

// owners are those of this moment.
func (c *Checker) owners() owners { return ownersOf(c.endpoints.List()).andOf(c.keeper.Coming()) }

func (c *Checker) orphanWiring(w wiring, o owners) (findings []doctor.Finding) {
	for _, l := range w.links {
		if !o.hasLink(l.Attrs().Index, l.Attrs().Name) {
			findings = append(findings, c.orphanLink(l))
		}
	}
	for _, r := range w.routes {
		if o.wired.staleRoute(r) {
			findings = append(findings, c.orphanRoute(r))
		}
	}
	for _, n := range w.neighs {
		if o.wired.staleNeigh(n) {
			findings = append(findings, c.orphanNeigh(n))
		}
	}
	return findings
}

func (c *Checker) orphanLink(l netlink.Link) doctor.Finding {
	return doctor.Finding{
		Kind: linkOrphan, Subject: linkText(l), Endpoint: madeFor(l), Detail: linkText(l) + " belongs to no endpoint",
		Repair: func(ctx context.Context) error { return c.removeOrphan(ctx, l.Attrs().Index, l.Attrs().Name) },
	}
}

// linkText names the link and tells it from a later one of that name.
func linkText(l netlink.Link) string {
	return fmt.Sprintf("link %s, index %d", l.Attrs().Name, l.Attrs().Index)
}

// removeOrphan removes the link unless an endpoint has it by now. An endpoint that comes later never takes a link that is
// there: it makes its own.
func (c *Checker) removeOrphan(ctx context.Context, index int, name string) error {
	now, err := c.datapath.links.Link(index)
	switch {
	case errors.Is(err, ErrNoLink):
		return nil
	case err != nil:
		return err
	case now.Attrs().Name != name || !link.IsHostEnd(now) || c.owners().hasLink(index, name):
		return nil
	}
	return c.remover.Remove(ctx, index)
}

// madeFor is the attachment that stands in the link's alias, before a space, or "".
func madeFor(l netlink.Link) string {
	whose, _, _ := strings.Cut(l.Attrs().Alias, " ")
	a, err := endpointmanager.ParseAttachment(whose)
	if err != nil || v1.HostInterfaceName(a.ContainerID, a.IfName) != l.Attrs().Name {
		return ""
	}
	return whose
}

func (c *Checker) orphanRoute(r netlink.Route) doctor.Finding {
	return doctor.Finding{
		Kind: routeOrphan, Subject: routeText(r), Detail: "the endpoint on the link does not have this address",
		Repair: func(context.Context) error {
			if !c.owners().wired.staleRoute(r) {
				return nil
			}
			return notThere(c.datapath.links.node.RouteDel(&r))
		},
	}
}

func (c *Checker) orphanNeigh(n netlink.Neigh) doctor.Finding {
	return doctor.Finding{
		Kind: neighOrphan, Subject: neighText(n), Detail: "the endpoint on the link does not have this address",
		Repair: func(context.Context) error {
			if !c.owners().wired.staleNeigh(n) {
				return nil
			}
			return notThere(c.datapath.links.node.NeighDel(&n))
		},
	}
}

// notThere takes "there is none such" for a success.
func notThere(err error) error {
	if errors.Is(err, unix.ESRCH) || errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENODEV) {
		return nil
	}
	return err
}
