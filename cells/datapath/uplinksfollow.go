package datapath

import (
	"context"
	"encoding/binary"
	"errors"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"porin.dev/porin/internal/nl"
)

// Devices are reconciled when the kernel notifies of a change, and all together at an interval. It does not notify when
// another program takes a program off TCX.
const (
	uplinksInterval  = time.Minute
	attachedInterval = time.Second // for the devices that have the program
	uplinksPause     = time.Second // before the next try, after following has failed
)

// run attaches the program to new devices while it is required, until ctx ends.
func (u *uplinks) run(ctx context.Context) error {
	for ctx.Err() == nil {
		var retry <-chan time.Time
		if required, _ := u.isRequired(); required {
			if err := u.follow(ctx); err != nil && ctx.Err() == nil {
				u.log.Warn("cannot follow the devices of the node; trying again", "prog", u.side.Program, "in", uplinksPause, "error", err)
				retry = time.After(uplinksPause)
			}
		}
		select {
		case <-ctx.Done():
		case <-retry:
		case <-u.wake:
		}
	}
	return ctx.Err()
}

// follow watches the devices. It returns nil when the program is not required any more.
func (u *uplinks) follow(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	notifications, err := u.subscribe(ctx)
	if err != nil {
		cancel()
		return err
	}
	defer func() {
		cancel()
		for range notifications { // to its end
		}
	}()
	if err := u.reconcileAll(); err != nil { // after the subscription, so that no device is missed
		return err
	}
	tick := time.NewTicker(uplinksInterval)
	defer tick.Stop()
	check := time.NewTicker(attachedInterval)
	defer check.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-u.wake:
			if required, _ := u.isRequired(); !required {
				return nil
			}
		case m, open := <-notifications:
			if !open {
				return errors.New("the kernel has dropped notifications")
			}
			err = u.handleNotification(m)
		case <-check.C:
			err = u.checkAttached()
		case <-tick.C:
			err = u.reconcileAll()
		}
		if err != nil {
			return err
		}
	}
}

// subscribe asks for notifications of devices, and of qdiscs and filters.
func (u *uplinks) subscribe(ctx context.Context) (<-chan syscall.NetlinkMessage, error) {
	u.netlink.Lock()
	defer u.netlink.Unlock()
	if u.handle == nil {
		return nil, ErrNotStarted
	}
	return nl.WatchIn(ctx, u.hook.Namespace, unix.NETLINK_ROUTE, unix.RTNLGRP_LINK, unix.RTNLGRP_TC)
}

// handleNotification handles one notification. Most are of pods' host ends, and cost nothing more.
func (u *uplinks) handleNotification(m syscall.NetlinkMessage) error {
	// struct ifinfomsg and struct tcmsg both begin with the family, and have the index of the device at the same
	// offset. AF_BRIDGE is for ports of a bridge.
	if len(m.Data) < unix.SizeofIfInfomsg || m.Data[0] != unix.AF_UNSPEC {
		return nil
	}
	index := int(int32(binary.NativeEndian.Uint32(m.Data[4:])))
	switch m.Header.Type {
	case unix.RTM_DELLINK:
		u.remove(index)
	case unix.RTM_DELQDISC, unix.RTM_DELTFILTER:
		if u.isAttached(index) {
			return u.reconcileIndex(index)
		}
	case unix.RTM_NEWLINK:
		header := unix.NlMsghdr(m.Header)
		if l, err := netlink.LinkDeserialize(&header, m.Data); err == nil && isUplink(l) && !u.isAttached(index) {
			return u.reconcileLink(l)
		}
	}
	return nil
}

// checkAttached attaches the program again to devices that have lost it.
func (u *uplinks) checkAttached() error {
	for _, index := range u.Attached() {
		if err := u.reconcileIndex(index); err != nil {
			return err
		}
	}
	return nil
}

// reconcileIndex is reconcileLink for a device by its index.
func (u *uplinks) reconcileIndex(index int) error {
	u.netlink.Lock()
	defer u.netlink.Unlock()
	if u.handle == nil {
		return ErrNotStarted
	}
	l, err := linkOrErrNoLink(u.handle.LinkByIndex(index))
	if err == nil {
		u.reconcile(l)
	}
	if errors.Is(err, ErrNoLink) {
		u.remove(index)
		return nil
	}
	return err
}
