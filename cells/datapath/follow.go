package datapath

import (
	"context"
	"encoding/binary"
	"net/netip"
	"slices"
	"syscall"

	netlinknl "github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/endpointmanager"
	"porin.dev/porin/internal/nl"
)

// Follow repairs endpoints that other programs take something from, as soon as the kernel tells of it, until ctx ends.
// The kernel tells of links, filters, routes and neighbour entries, and not of map entries.
func (c *Checker) Follow(ctx context.Context) error { return c.follower.Run(ctx) }

// changes is what the kernel tells of endpoints that are ready, as a [reconcile.Source].
type changes struct{ *Checker }

// Watch implements [reconcile.Source].
func (c changes) Watch(ctx context.Context) (<-chan endpoint.Attachment, error) {
	namespace := c.datapath.links.namespace
	if namespace == nil {
		return nil, ErrNotStarted
	}
	notifications, err := nl.WatchIn(ctx, namespace, unix.NETLINK_ROUTE,
		unix.RTNLGRP_LINK, unix.RTNLGRP_TC, unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV6_ROUTE, unix.RTNLGRP_NEIGH)
	if err != nil {
		return nil, err
	}
	changed := make(chan endpoint.Attachment)
	go func() {
		defer close(changed)
		for m := range notifications {
			if ep, ok := c.endpointOf(m); ok {
				changed <- ep.Spec.Attachment
			}
		}
	}()
	return changed, nil
}

// endpointOf finds the endpoint that a notification is about. Of an ADD or a DEL it is not ready.
func (c changes) endpointOf(m syscall.NetlinkMessage) (ep endpoint.Endpoint, ok bool) {
	link, addr := subjectOf(m)
	var err error
	switch {
	case addr.IsValid():
		ep, err = c.endpoints.Get(endpoint.ByAddress(addr))
	case link > 0:
		id, known := c.datapath.maps.endpointOn(link)
		if !known {
			return ep, false
		}
		ep, err = c.endpoints.Get(endpoint.ByID(id))
	default:
		return ep, false
	}
	return ep, err == nil && ep.State == endpoint.Ready
}

// subjectOf returns the link or the address that a notification is about: neither, for most that Porin causes itself.
func subjectOf(m syscall.NetlinkMessage) (link int, addr netip.Addr) {
	data := m.Data
	switch m.Header.Type {
	case unix.RTM_NEWLINK, unix.RTM_DELQDISC, unix.RTM_NEWTFILTER, unix.RTM_DELTFILTER:
		// struct ifinfomsg and struct tcmsg both begin with the family, and have the index of the device at the same
		// offset. AF_BRIDGE is for ports of a bridge.
		if len(data) >= unix.SizeofIfInfomsg && data[0] == unix.AF_UNSPEC {
			link = int(int32(binary.NativeEndian.Uint32(data[4:])))
		}
	case unix.RTM_NEWROUTE, unix.RTM_DELROUTE: // struct rtmsg: a host route in the main table, and none that Porin makes
		if len(data) < unix.SizeofRtMsg || data[1] != 32 && data[1] != 128 || data[4] != unix.RT_TABLE_MAIN ||
			m.Header.Type == unix.RTM_NEWROUTE && data[5] == nl.Protocol {
			return 0, addr
		}
		if dst := attributeAddr(data[unix.SizeofRtMsg:], unix.RTA_DST); dst.BitLen() == int(data[1]) {
			addr = dst
		}
	case unix.RTM_NEWNEIGH, unix.RTM_DELNEIGH:
		if len(data) >= unix.SizeofNdMsg && data[0] != unix.AF_BRIDGE {
			addr = attributeAddr(data[unix.SizeofNdMsg:], unix.NDA_DST)
		}
	}
	return link, addr
}

// attributeAddr returns the address that an attribute has, or the zero one.
func attributeAddr(data []byte, kind uint16) (addr netip.Addr) {
	attributes, _ := netlinknl.ParseRouteAttr(data)
	for _, a := range attributes {
		if a.Attr.Type == kind {
			addr, _ = netip.AddrFromSlice(a.Value)
		}
	}
	return addr
}

// Owners implements [reconcile.Source].
func (c changes) Owners() (all []endpoint.Attachment) {
	for _, e := range readyOf(c.endpoints.List()) {
		all = append(all, e.Attachment)
	}
	return all
}

// Differs implements [reconcile.Source]. A link that is gone, or is another, is for the doctor, as are map entries.
func (c changes) Differs(a endpoint.Attachment) (bool, error) {
	ep, err := c.endpoints.Get(endpoint.ByAttachment(a))
	if err != nil || ep.State != endpoint.Ready {
		return false, nil
	}
	differences, err := c.datapath.links.Compare(entryOf(ep))
	return len(differences) > 0 && !slices.ContainsFunc(differences, isForPerson), err
}

// Repair implements [reconcile.Source].
func (c changes) Repair(ctx context.Context, a endpoint.Attachment) error {
	return endpointmanager.IgnoreNotReady(c.keeper.Repair(ctx, a))
}
