package datapath

import (
	"context"
	"encoding/binary"
	"errors"
	"log/slog"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"porin.dev/porin/internal/netns"
	"porin.dev/porin/internal/nl"
	"porin.dev/porin/internal/task"
)

// Devices are reconciled when the kernel notifies of a change, and all together at an interval. It does not notify when
// another program takes a program off TCX.
const (
	uplinksInterval  = time.Minute
	attachedInterval = time.Second // for the devices that have the program
	uplinksPause     = time.Second // before the next try, after following has failed
)

// FollowUplinks attaches the program to new devices while it is required, until ctx ends.
func (d *Datapath) FollowUplinks(ctx context.Context) error {
	return d.uplinks.run(ctx)
}

// FollowFromUplink is FollowUplinks for the program from_uplink of [Datapath.SetRemoteBlocks].
func (d *Datapath) FollowFromUplink(ctx context.Context) error {
	return d.fromUplinks.run(ctx)
}

func (u *uplinks) run(ctx context.Context) error {
	for ctx.Err() == nil {
		var retry <-chan time.Time
		if required, _ := u.isRequired(); required {
			if err := u.follow(ctx); err != nil && ctx.Err() == nil {
				u.log.Warn("cannot follow the devices of the node; trying again", "prog", u.side.program, "in", uplinksPause, "error", err)
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

func newFromUplinkTask(d *Datapath, log *slog.Logger) *task.Task {
	return task.Forever(log, "datapath-follow-from-uplink", d.FollowFromUplink)
}

func newUplinksTask(d *Datapath, log *slog.Logger) *task.Task {
	return task.Forever(log, "datapath-follow-uplinks", d.FollowUplinks)
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
func (u *uplinks) subscribe(ctx context.Context) (notifications <-chan syscall.NetlinkMessage, err error) {
	u.netlink.Lock()
	defer u.netlink.Unlock()
	if u.handle == nil {
		return nil, ErrNotStarted
	}
	err = netns.In(int(u.namespace.Fd()), func() error {
		notifications, err = nl.Watch(ctx, unix.NETLINK_ROUTE, unix.RTNLGRP_LINK, unix.RTNLGRP_TC)
		return err
	})
	return notifications, err
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
		u.forget(index)
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
		u.forget(index)
		return nil
	}
	return err
}
