package datapath

import (
	"context"
	"errors"
	"strings"

	"golang.org/x/sys/unix"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/cells/doctor"
	"porin.dev/porin/cells/endpointmanager"
	"porin.dev/porin/internal/rtnl"
)

// ofNobody finds what belongs to no endpoint.
func (c *Checker) ofNobody() ([]doctor.Finding, error) {
	before := c.endpoints.List()
	w, wiringErr := c.datapath.links.takeWiring()
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
		if !o.hasLink(l.Index, l.Name) {
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

func (c *Checker) orphanLink(l rtnl.Link) doctor.Finding {
	link, _ := describe(&l, nil)
	return doctor.Finding{
		Kind: linkOrphan, Subject: link.String(), Endpoint: madeFor(l), Detail: link.String() + " belongs to no endpoint",
		Repair: func(ctx context.Context) error { return c.removeOrphan(ctx, link) },
	}
}

// removeOrphan takes the link down first, while nobody writes map entries: an endpoint that comes before is noticed, and
// one that comes later finds the link down and is refused.
func (c *Checker) removeOrphan(ctx context.Context, link Link) error {
	puts := c.datapath.maps.puts.Load()
	now, err := c.datapath.links.Link(link.Index)
	switch {
	case errors.Is(err, ErrNoLink):
		return nil
	case err != nil:
		return err
	case now.Name != link.Name || !now.Marked() || c.owners().hasLink(link.Index, link.Name):
		return nil
	}
	down := func(*pinnedMaps) error { return notThere(c.datapath.links.do(rtnl.LinkDown(link.Index))) }
	if err := c.datapath.maps.unlessPut(puts, down); err != nil {
		return err
	}
	return c.datapath.links.Remove(ctx, link.Index)
}

// madeFor is the attachment that the plugin wrote on the link, before a space, or "".
func madeFor(l rtnl.Link) string {
	whose, _, _ := strings.Cut(l.Alias, " ")
	a, err := endpointmanager.ParseAttachment(whose)
	if err != nil || v1.HostInterfaceName(a.ContainerID, a.IfName) != l.Name {
		return ""
	}
	return whose
}

func (c *Checker) orphanRoute(r rtnl.Route) doctor.Finding {
	return doctor.Finding{
		Kind: routeOrphan, Subject: routeText(r), Detail: "the endpoint on the link does not have this address",
		Repair: func(context.Context) error {
			if !c.owners().wired.staleRoute(r) {
				return nil
			}
			return notThere(c.datapath.links.do(rtnl.DelRoute(r)))
		},
	}
}

func (c *Checker) orphanNeigh(n rtnl.Neigh) doctor.Finding {
	return doctor.Finding{
		Kind: neighOrphan, Subject: neighText(n), Detail: "the endpoint on the link does not have this address",
		Repair: func(context.Context) error {
			if !c.owners().wired.staleNeigh(n) {
				return nil
			}
			return notThere(c.datapath.links.do(rtnl.DelNeigh(n.Link, n.Addr)))
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
