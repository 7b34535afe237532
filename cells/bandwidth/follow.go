package bandwidth

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"syscall"

	netlinknl "github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/endpointmanager"
	"porin.dev/porin/internal/netns"
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
	notifications, err := c.step.watch(ctx)
	if err != nil {
		return nil, err
	}
	changed := make(chan endpoint.Attachment)
	go func() {
		defer close(changed)
		for m := range notifications {
			name := l.linkOf(m)
			if name == "" {
				continue
			}
			for _, ep := range c.limited("") {
				if name == ep.Host.Name || name == nameOf(ep.Spec.Attachment) {
					changed <- ep.Spec.Attachment
				}
			}
		}
	}()
	return changed, nil
}

// watch returns what the kernel tells of links, qdiscs and filters.
func (s *Step) watch(ctx context.Context) (notifications <-chan syscall.NetlinkMessage, err error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.node == nil {
		return nil, ErrNotStarted
	}
	err = netns.In(int(s.namespace.Fd()), func() error {
		notifications, err = nl.Watch(ctx, unix.NETLINK_ROUTE, unix.RTNLGRP_LINK, unix.RTNLGRP_TC)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("watch limits of bandwidth: %w", err)
	}
	return notifications, nil
}

// linkOf returns the name of the device or host end that has changed, as far as limits go, and "" for anything else.
func (k kernel) linkOf(m syscall.NetlinkMessage) (name string) {
	switch m.Header.Type {
	case unix.RTM_NEWLINK, unix.RTM_DELLINK:
		if len(m.Data) < unix.SizeofIfInfomsg {
			return ""
		}
		attributes, _ := netlinknl.ParseRouteAttr(m.Data[unix.SizeofIfInfomsg:])
		for _, a := range attributes {
			if a.Attr.Type == unix.IFLA_IFNAME {
				name = unix.ByteSliceToString(a.Value)
			}
		}
		if deviceName.MatchString(name) {
			return name
		}
	case unix.RTM_NEWQDISC, unix.RTM_DELQDISC, unix.RTM_NEWTFILTER, unix.RTM_DELTFILTER:
		if len(m.Data) < unix.SizeofIfInfomsg { // struct tcmsg has the index at the same offset
			return ""
		}
		l, err := k.LinkByIndex(int(int32(binary.NativeEndian.Uint32(m.Data[4:]))))
		if err != nil {
			return "" // it is gone
		}
		if name = l.Attrs().Name; strings.HasPrefix(name, v1.HostInterfacePrefix) || deviceName.MatchString(name) {
			return name
		}
	}
	return ""
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
	err := c.keeper.Repair(ctx, a)
	if errors.Is(err, endpointmanager.ErrNotReady) || errors.Is(err, endpointmanager.ErrNotFound) {
		return nil // a DEL was first
	}
	return err
}
