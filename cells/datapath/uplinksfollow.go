package datapath

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"porin.dev/porin/internal/netns"
	"porin.dev/porin/internal/task"
)

// Devices are followed by the kernel's notifications, and compared all together now and then.
const (
	uplinksInterval = time.Minute
	uplinksPause    = time.Second // before they are followed again, after that has failed
)

// FollowUplinks gives devices that come the program while it is required, until ctx ends.
func (d *Datapath) FollowUplinks(ctx context.Context) error {
	u := d.uplinks
	for ctx.Err() == nil {
		var retry <-chan time.Time
		if u.isRequired() {
			if err := u.follow(ctx); err != nil && ctx.Err() == nil {
				u.log.Warn("cannot follow the devices of the node; trying again", "in", uplinksPause, "error", err)
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

func newUplinksTask(d *Datapath, log *slog.Logger) *task.Task {
	return task.Forever(log, "datapath-follow-uplinks", d.FollowUplinks)
}

// follow returns nil when the program is not required any more.
func (u *uplinks) follow(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	updates, err := u.subscribe(ctx)
	if err != nil {
		cancel()
		return err
	}
	defer func() {
		cancel()
		for range updates { // to its end, so that the library's goroutine is not left behind
		}
	}()
	if err := u.compareAll(); err != nil { // after the subscription, so that no device is between the two
		return err
	}
	tick := time.NewTicker(uplinksInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-u.wake:
			if !u.isRequired() {
				return nil
			}
		case update, open := <-updates:
			if !open {
				return errors.New("the kernel has dropped notifications")
			}
			err = u.note(update)
		case <-tick.C:
			err = u.compareAll()
		}
		if err != nil {
			return err
		}
	}
}

func (u *uplinks) subscribe(ctx context.Context) (<-chan netlink.LinkUpdate, error) {
	u.netlink.Lock()
	namespace := u.namespace
	started := u.handle != nil
	u.netlink.Unlock()
	if !started {
		return nil, ErrNotStarted
	}
	updates := make(chan netlink.LinkUpdate, 16)
	err := netns.In(int(namespace.Fd()), func() error { return netlink.LinkSubscribe(updates, ctx.Done()) })
	if err != nil {
		return nil, fmt.Errorf("subscribe to the devices of the node: %w", err)
	}
	return updates, nil
}

// note is for one notification. Those of pods' host ends, which are most, cost nothing more.
func (u *uplinks) note(update netlink.LinkUpdate) error {
	index := int(update.Index)
	switch {
	case update.Family != unix.AF_UNSPEC: // of a bridge's port
		return nil
	case update.Header.Type == unix.RTM_DELLINK:
		u.forget(index)
		return nil
	case !isUplink(update.Link) || u.isDecided(index):
		return nil
	}
	return u.compareOne(update.Link)
}
