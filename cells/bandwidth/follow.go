package bandwidth

import (
	"context"
	"encoding/binary"
	"fmt"
	"syscall"

	netlinknl "github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/endpointmanager"
	"porin.dev/porin/internal/nl"
)

// Follow repairs limits that other programs remove or change, as soon as the kernel tells of it, until ctx ends.
func (c *Checker) Follow(ctx context.Context) error { return c.follower.Run(ctx) }

// changes is what the kernel tells of limits, as a [reconcile.Source].
type changes struct{ *Checker }

// Watch implements [reconcile.Source].
func (c changes) Watch(ctx context.Context) (<-chan endpoint.Attachment, error) {
	l, err := c.step.limits()
	if err != nil {
		return nil, err
	}
	notifications, err := nl.WatchIn(ctx, l.namespace, unix.NETLINK_ROUTE, unix.RTNLGRP_LINK, unix.RTNLGRP_TC)
	if err != nil {
		return nil, fmt.Errorf("watch limits of bandwidth: %w", err)
	}
	changed := make(chan endpoint.Attachment)
	go func() {
		defer close(changed)
		for m := range notifications {
			name, link := subjectOf(m)
			if name == "" && link == 0 {
				continue
			}
			limited := c.limited("")
			if name == "" && len(limited) > 0 {
				name = l.nameAt(link)
			}
			for _, ep := range limited {
				if name == ep.Host.Name || name == nameOf(ep.Spec.Attachment) {
					changed <- ep.Spec.Attachment
				}
			}
		}
	}()
	return changed, nil
}

// subjectOf returns the name of the device that a notification is about, or the index of the link with the qdisc or
// filter; neither, for all other links.
func subjectOf(m syscall.NetlinkMessage) (name string, link int) {
	if len(m.Data) < unix.SizeofIfInfomsg { // struct tcmsg has the index at the same offset
		return "", 0
	}
	switch m.Header.Type {
	case unix.RTM_NEWLINK, unix.RTM_DELLINK:
		attributes, _ := netlinknl.ParseRouteAttr(m.Data[unix.SizeofIfInfomsg:])
		for _, a := range attributes {
			if text := unix.ByteSliceToString(a.Value); a.Attr.Type == unix.IFLA_IFNAME && deviceName.MatchString(text) {
				return text, 0
			}
		}
	case unix.RTM_NEWQDISC, unix.RTM_DELQDISC, unix.RTM_NEWTFILTER, unix.RTM_DELTFILTER:
		return "", int(int32(binary.NativeEndian.Uint32(m.Data[4:])))
	}
	return "", 0
}

// nameAt returns "" for a link that is gone.
func (k kernel) nameAt(link int) string {
	l, err := k.LinkByIndex(link)
	if err != nil {
		return ""
	}
	return l.Attrs().Name
}

// Owners implements [reconcile.Source].
func (c changes) Owners() (all []endpoint.Attachment) {
	for _, ep := range c.limited("") {
		all = append(all, ep.Spec.Attachment)
	}
	return all
}

// Differs implements [reconcile.Source].
func (c changes) Differs(a endpoint.Attachment) (bool, error) {
	ep, err := c.endpoints.Get(endpoint.ByAttachment(a))
	if err != nil || ep.State != endpoint.Ready {
		return false, nil
	}
	l, err := c.step.limits()
	if err != nil {
		return false, err
	}
	differences, err := l.Compare(ep)
	return len(differences) > 0, err
}

// Repair implements [reconcile.Source].
func (c changes) Repair(ctx context.Context, a endpoint.Attachment) error {
	return endpointmanager.IgnoreNotReady(c.keeper.Repair(ctx, a))
}
