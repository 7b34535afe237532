package ipam

import (
	"context"
	"log/slog"
	"net/netip"
	"time"

	"porin.dev/porin/cells/ipam/allocator"
	"porin.dev/porin/internal/task"
)

// followPause passes before the node's addresses are watched again, after that has failed.
const followPause = time.Second

// Follower tells the allocator which addresses the node has: those at its start, then every change. It reads all of them
// again when one in a prefix of the node comes or goes, which is rare; an allocation waits for nothing.
type Follower struct {
	source    NodeAddresses
	allocator *allocator.Allocator
	log       *slog.Logger
	task      *task.Task
	changes   <-chan netip.Addr // what the watch that Start began tells
	end       context.CancelFunc
}

// NewFollower returns a Follower that is not started.
func NewFollower(source NodeAddresses, a *allocator.Allocator, log *slog.Logger) *Follower {
	f := &Follower{source: source, allocator: a, log: log}
	f.task = task.Forever(log, "ipam-follow-node-addresses", f.run)
	return f
}

// Task is the follower's loop. [Follower.Start] starts it.
func (f *Follower) Task() *task.Task { return f.task }

// Start returns when the allocator knows what the node has now. It is to be called once at the most.
func (f *Follower) Start() error {
	ctx, cancel := context.WithCancel(context.Background())
	changes, err := f.source.Watch(ctx) // before the list, so that no change is between the two
	if err == nil {
		err = f.update()
	}
	if err != nil {
		cancel()
		return err
	}
	f.changes, f.end = changes, cancel
	f.task.Start(nil)
	return nil
}

// Stop ends it.
func (f *Follower) Stop(ctx context.Context) error {
	if f.end != nil {
		f.end()
	}
	return f.task.Stop(ctx)
}

// run follows, and watches again whenever notifications were lost.
func (f *Follower) run(ctx context.Context) error {
	f.follow(ctx, f.changes)
	for pause(ctx, followPause, nil); ctx.Err() == nil; pause(ctx, followPause, nil) {
		changes, err := f.source.Watch(ctx)
		if err == nil {
			err = f.update()
		}
		if err != nil {
			f.log.Warn("cannot follow the addresses of the node; trying again", "in", followPause, "error", err)
		}
		if changes != nil {
			f.follow(ctx, changes)
		}
	}
	return ctx.Err()
}

// follow returns when changes is closed, or ctx ends: the first watch lasts until [Follower.Stop], and the supervisor stops the task before.
func (f *Follower) follow(ctx context.Context, changes <-chan netip.Addr) {
	for {
		select {
		case <-ctx.Done():
			return
		case addr, watched := <-changes:
			if !watched {
				return
			}
			if !f.allocator.Covers(addr) {
				continue
			}
			if err := f.update(); err != nil {
				f.log.Warn("cannot list the addresses of the node; trying again at the next change", "error", err)
			}
		}
	}
}

// update tells the allocator what the node has, and the log what is new of it.
func (f *Follower) update() error {
	ofNode, err := f.source.List()
	if err != nil {
		return err
	}
	for _, a := range f.allocator.SetNodeAddresses(ofNode) {
		if a.Owner != "" {
			f.log.Error("the node has an address of an endpoint: remove it from the interface, or delete the container",
				"ip", a.Addr, "ifname", a.IfName, "owner", a.Owner)
			continue
		}
		f.log.Info("address of the node lies in a prefix of its pods, and is given to none of them", "ip", a.Addr, "ifname", a.IfName)
	}
	return nil
}

// pause returns after a time, or early, or when ctx ends.
func pause(ctx context.Context, wait time.Duration, early <-chan struct{}) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-early:
	case <-timer.C:
	}
}
