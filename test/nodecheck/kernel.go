package nodecheck

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/bpf"
	"porin.dev/porin/cells/link"
	"porin.dev/porin/cells/node/tunnel"
	"porin.dev/porin/internal/nl"
	"porin.dev/porin/internal/testutil"
)

// kernelDue is what the endpoints have in the node's network namespace.
func (a answers) kernelDue() (items []Item) {
	for _, ep := range a.endpoints {
		index := ep.Host.Index
		items = append(items, linkItem(ep.Host.Name, index, ep.Host.MAC.String(), true))
		for _, p := range a.status.Datapath.Programs {
			if direction := directions[p.Name]; direction != "" {
				items = append(items, filterItem(index, direction, p.ID))
			}
		}
		items = append(items, limitsDue(ep)...)
		for _, addr := range addresses(ep) {
			items = append(items, routeItem(netip.PrefixFrom(addr, addr.BitLen()), index), neighItem(addr, index, ep.Container.MAC.String()))
		}
	}
	if a.hasTunnel() {
		items = append(items, tunnelItem)
	}
	if a.status.Proxy.InUse {
		items = append(items, proxyItems[:]...)
	}
	return items
}

// directions says where a program belongs on the host end of a pod.
var directions = map[string]string{bpf.FromPod: "ingress", bpf.ToPod: "egress"}

var sides = map[string]uint32{"ingress": netlink.HANDLE_MIN_INGRESS, "egress": netlink.HANDLE_MIN_EGRESS}

// tunnelItem is the device of tunnels. The doctor knows its expected state.
var tunnelItem = Item{"link", tunnel.Device}

// proxyItems are the devices of the way into the proxy. The doctor knows their expected state.
var proxyItems = [...]Item{{"link", link.ProxyDevice}, {"link", link.ProxyDevicePeer}}

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
	links, err1 := c.node.Links()
	routes, err2 := c.node.Routes(0)
	neighbours, err3 := c.node.PermanentNeighbours(0)
	ours, errs := map[int]bool{}, []error{err1, err2, err3}
	for _, device := range links {
		l := device.Attrs()
		if item := (Item{"link", l.Name}); item == tunnelItem || slices.Contains(proxyItems[:], item) {
			items = append(items, item)
		} else if strings.HasPrefix(l.Name, v1.HostInterfacePrefix) {
			ours[l.Index] = true
			items = append(items, linkItem(l.Name, l.Index, l.HardwareAddr.String(), testutil.IsUp(device)))
			filters, err := c.filterItems(l.Index)
			items, errs = append(items, filters...), append(errs, err)
		}
		limits, err := c.limitItems(device)
		items, errs = append(items, limits...), append(errs, err)
	}
	for _, r := range routes {
		if r.Protocol == testutil.RouteProtocol {
			items = append(items, routeItem(nl.Prefix(r.Dst), r.LinkIndex))
		}
	}
	for _, n := range neighbours {
		if ours[n.LinkIndex] && !n.IP.IsMulticast() {
			items = append(items, neighItem(nl.Addr(n.IP), n.LinkIndex, n.HardwareAddr.String()))
		}
	}
	return items, errors.Join(errs...)
}

// filterItems are the filters of every kind on both sides of a link. A link that goes meanwhile has none.
func (c *Checker) filterItems(link int) (items []Item, err error) {
	var errs []error
	for direction, side := range sides {
		filters, err := c.node.Filters(link, side)
		errs = append(errs, err)
		for _, filter := range filters {
			if filter.Type() == "u32" { // of a limit
				continue
			}
			program := 0 // of a filter that is none
			if bpf, ok := filter.(*netlink.BpfFilter); ok {
				program = bpf.Id
			}
			items = append(items, filterItem(link, direction, uint32(program)))
		}
	}
	return items, errors.Join(errs...)
}
