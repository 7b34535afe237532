package nodecheck

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"golang.org/x/sys/unix"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/bpf"
	"porin.dev/porin/cells/datapath"
	"porin.dev/porin/internal/rtnl"
)

// kernelDue is what the endpoints have in the node's network namespace.
func (a answers) kernelDue() (items []Item) {
	for _, ep := range a.endpoints {
		index := ep.Host.Index
		items = append(items, linkItem(ep.Host.Name, index, ep.Host.MAC, true))
		for _, p := range a.status.Datapath.Programs {
			items = append(items, filterItem(index, directions[p.Name], p.ID))
		}
		for _, addr := range addresses(ep) {
			items = append(items, routeItem(netip.PrefixFrom(addr, addr.BitLen()), index), neighItem(addr, index, ep.Container.MAC))
		}
	}
	return items
}

// directions says where a program belongs.
var directions = map[string]string{bpf.FromPod: "ingress", bpf.ToPod: "egress"}

func linkItem(name string, index int, mac string, up bool) Item {
	return Item{"link", fmt.Sprintf("%s, index %d, %s, up: %v", name, index, mac, up)}
}

func routeItem(dst netip.Prefix, index int) Item {
	return Item{"route", fmt.Sprintf("%s by link %d", dst, index)}
}

func neighItem(addr netip.Addr, index int, mac string) Item {
	return Item{"neighbour", fmt.Sprintf("%s on link %d at %s", addr, index, mac)}
}

func filterItem(index int, direction string, program uint32) Item {
	return Item{"filter", fmt.Sprintf("%s of link %d: program %d", direction, index, program)}
}

// kernelItems is what the node's network namespace has of Porin's.
func (c *Checker) kernelItems() (items []Item, err error) {
	links, err1 := c.conn.Links()
	routes, err2 := c.conn.Routes(0)
	neighs, err3 := c.conn.Neighs(0)
	ours := map[int]bool{}
	for _, l := range links {
		if strings.HasPrefix(l.Name, v1.HostInterfacePrefix) {
			ours[l.Index] = true
			items = append(items, linkItem(l.Name, l.Index, l.MAC.String(), l.Up()))
		}
	}
	for _, r := range routes {
		if r.Protocol == rtnl.Protocol {
			items = append(items, routeItem(r.Dst, r.Link))
		}
	}
	for _, n := range neighs {
		if n.State&unix.NUD_PERMANENT != 0 && ours[n.Link] && !n.Addr.IsMulticast() {
			items = append(items, neighItem(n.Addr, n.Link, n.MAC.String()))
		}
	}
	filters, err4 := c.filterItems()
	return append(items, filters...), errors.Join(err1, err2, err3, err4)
}

func (c *Checker) filterItems() (items []Item, err error) {
	found, err := c.inspect()
	for _, a := range found.Attachments {
		items = append(items, filterItem(a.IfIndex, a.Direction, a.ProgramID))
	}
	return items, err
}

// inspect reads filters and pins without the agent.
func (c *Checker) inspect() (found datapath.Inspection, err error) {
	err = c.node.Do(func() (err error) {
		found, err = datapath.Inspect(c.node.BPFRoot)
		return err
	})
	return found, err
}
