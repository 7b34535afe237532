package nodecheck

import (
	"errors"
	"fmt"
	"strings"

	"github.com/vishvananda/netlink"

	v1 "porin.dev/porin/api/v1"
)

// queuePrefix begins the name of a device with the queue of a container's packets; the rest is from the name of its
// host end.
const queuePrefix = "pbw"

// limitsDue is what keeps the limits of an endpoint: a token bucket on the host end for what it gets, and a device with
// another one, to which the host end redirects what it sends.
func limitsDue(ep v1.Endpoint) (items []Item) {
	if ep.Bandwidth.IngressRate != 0 {
		items = append(items, bucketItem(ep.Host.Name))
	}
	if ep.Bandwidth.EgressRate != 0 {
		queue := queuePrefix + strings.TrimPrefix(ep.Host.Name, v1.HostInterfacePrefix)
		items = append(items, Item{"device", queue}, bucketItem(queue), redirectItem(ep.Host.Name))
	}
	return items
}

func bucketItem(link string) Item { return Item{"token bucket", "of " + link} }

func redirectItem(link string) Item { return Item{"redirect", "of " + link} }

// limitItems are the items of a link with Porin's mark. A link that goes meanwhile has none.
func (c *Checker) limitItems(link netlink.Link) (items []Item, err error) {
	name, index := link.Attrs().Name, link.Attrs().Index
	switch {
	case strings.HasPrefix(name, queuePrefix):
		items = append(items, Item{"device", name})
	case !strings.HasPrefix(name, v1.HostInterfacePrefix):
		return nil, nil
	}
	qdiscs, qdiscsErr := c.node.Qdiscs(index)
	for _, q := range qdiscs {
		if q.Type() == "tbf" {
			items = append(items, bucketItem(name))
		}
	}
	filters, filtersErr := c.node.Filters(index, netlink.HANDLE_MIN_INGRESS)
	for _, f := range filters {
		u32, ok := f.(*netlink.U32)
		if !ok {
			continue
		}
		for _, action := range u32.Actions {
			if _, ok := action.(*netlink.MirredAction); ok {
				items = append(items, redirectItem(name))
			}
		}
	}
	if err := errors.Join(qdiscsErr, filtersErr); err != nil {
		return items, fmt.Errorf("limits of %s: %w", name, err)
	}
	return items, nil
}
