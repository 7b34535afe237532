package datapath

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"golang.org/x/sys/unix"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/bpf"
	"porin.dev/porin/cells/doctor"
	"porin.dev/porin/cells/endpointmanager"
	"porin.dev/porin/internal/rtnl"
)

// ofNobody finds what belongs to no endpoint and to no part of this agent.
func (c *Checker) ofNobody(all *inventory, o owners) (findings []doctor.Finding) {
	for _, l := range all.links {
		if !o.hasLink(l.Index, l.Name) {
			findings = append(findings, c.orphanLink(l))
		}
	}
	for _, r := range all.routes {
		if o.wired.staleRoute(r) {
			findings = append(findings, c.orphanRoute(r))
		}
	}
	for _, n := range all.neighs {
		if o.wired.staleNeigh(n) {
			findings = append(findings, c.orphanNeigh(n))
		}
	}
	findings = append(findings, c.orphanEntries(all, o)...)
	return append(findings, c.ofTheNode(all)...)
}

// owners are those of this moment.
func (c *Checker) owners() owners { return ownersOf(c.endpoints.List()) }

func (c *Checker) orphanLink(l rtnl.Link) doctor.Finding {
	link, _ := describe(&l, nil)
	return doctor.Finding{
		Kind: linkOrphan, Subject: link.String(), Endpoint: madeFor(l), Detail: link.String() + " belongs to no endpoint",
		Repair: func(ctx context.Context) error {
			now, err := c.datapath.links.Link(link.Index)
			switch {
			case errors.Is(err, ErrNoLink):
				return nil
			case err != nil:
				return err
			case now.Name != link.Name || !now.Marked() || c.owners().hasLink(link.Index, link.Name):
				return nil
			}
			return c.datapath.links.Remove(ctx, link.Index)
		},
	}
}

// madeFor is the attachment that the plugin wrote on the link, or "".
func madeFor(l rtnl.Link) string {
	a, err := endpointmanager.ParseAttachment(l.Alias)
	if err != nil || v1.HostInterfaceName(a.ContainerID, a.IfName) != l.Name {
		return ""
	}
	return l.Alias
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

func (c *Checker) orphanEntries(all *inventory, o owners) (findings []doctor.Finding) {
	for addr, value := range all.byAddr {
		if o.addrs[addr.IP()] {
			continue
		}
		findings = append(findings, c.orphanEntry(mapEntry(bpf.Endpoints, addr.IP().String()), entryValue(value),
			func(o owners) bool { return o.addrs[addr.IP()] },
			func(m *pinnedMaps) error { return deleteSame(m.endpoints, addr, value) }))
	}
	for index, value := range all.byLink {
		if o.hasIndex(index) {
			continue
		}
		findings = append(findings, c.orphanEntry(mapEntry(bpf.Links, strconv.Itoa(int(index))), entryValue(value),
			func(o owners) bool { return o.hasIndex(index) },
			func(m *pinnedMaps) error { return deleteSame(m.links, index, value) }))
	}
	for id := range all.counters {
		if o.ids[id] {
			continue
		}
		findings = append(findings, c.orphanEntry(mapEntry(bpf.Traffic, strconv.Itoa(int(id))), "counters",
			func(o owners) bool { return o.ids[id] },
			func(m *pinnedMaps) error { return gone(m.traffic.Delete(id)) }))
	}
	return findings
}

func (c *Checker) orphanEntry(subject, value string, owned func(owners) bool, remove func(*pinnedMaps) error) doctor.Finding {
	return doctor.Finding{
		Kind: mapEntryOrphan, Subject: subject, Detail: fmt.Sprintf("%s: %s, and there is no such endpoint", subject, value),
		Repair: func(context.Context) error {
			puts := c.datapath.maps.puts.Load() // before the look: who comes after it is noticed
			if owned(c.owners()) {
				return nil
			}
			return c.datapath.maps.unlessPut(puts, remove)
		},
	}
}
