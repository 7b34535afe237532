package nodeaddr

import (
	"context"
	"log/slog"
	"net/netip"
	"time"

	"porin.dev/porin/internal/task"
)

// pause passes before the addresses are watched again, after that has failed.
const pause = time.Second

// Follower calls a function with the node's addresses: at its start, and after every change. It lists all of them each
// time, as changes are rare.
type Follower struct {
	source   Source
	relevant func(netip.Addr) bool
	update   func(map[netip.Addr]string)
	log      *slog.Logger
	task     *task.Task
	changes  <-chan netip.Addr // of the watch that Start began
	end      context.CancelFunc
}

// NewFollower returns a Follower that is not started; name is its task's. update is called with all addresses of
// the source, one call at a time: at the start, and when an address for which relevant is true comes or goes.
func NewFollower(name string, source Source, relevant func(netip.Addr) bool, update func(map[netip.Addr]string), log *slog.Logger) *Follower {
	f := &Follower{source: source, relevant: relevant, update: update, log: log}
	f.task = task.Forever(log, name, f.run)
	return f
}

// Task is the follower's loop. [Follower.Start] starts it.
func (f *Follower) Task() *task.Task { return f.task }

// Start returns after the first call of update. It may be called once.
func (f *Follower) Start() error {
	ctx, cancel := context.WithCancel(context.Background())
	changes, err := f.source.Watch(ctx) // before the list, so that no change is missed
	if err == nil {
		err = f.read()
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

// run follows the first watch, and begins a new one whenever notifications were lost.
func (f *Follower) run(ctx context.Context) error {
	f.follow(ctx, f.changes)
	for task.Sleep(ctx, pause) == nil {
		changes, err := f.source.Watch(ctx)
		if err == nil {
			err = f.read()
		}
		if err != nil {
			f.log.Warn("cannot follow the addresses of the node; trying again", "in", pause, "error", err)
		}
		if changes != nil {
			f.follow(ctx, changes)
		}
	}
	return ctx.Err()
}

// follow returns when changes is closed, or ctx ends: the first watch lasts until [Follower.Stop], and the supervisor
// stops the task before.
func (f *Follower) follow(ctx context.Context, changes <-chan netip.Addr) {
	for {
		select {
		case <-ctx.Done():
			return
		case addr, watched := <-changes:
			if !watched {
				return
			}
			if !f.relevant(addr) {
				continue
			}
			if err := f.read(); err != nil {
				f.log.Warn("cannot list the addresses of the node; trying again at the next change", "error", err)
			}
		}
	}
}

func (f *Follower) read() error {
	all, err := f.source.List()
	if err == nil {
		f.update(all)
	}
	return err
}
