package proxy

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"porin.dev/porin/internal/task"
)

// use says whether the way into the proxy is there, and needed.
type use struct {
	opened chan struct{} // has a token when the way was opened

	mu        sync.Mutex          // guards the fields below
	numbers   map[uint32]struct{} // of the rules that the listener has
	preparing int                 // calls that wait for it
	open      bool
	removed   bool   // nothing is in the kernel
	idle      bool   // it was not needed at the last look
	accepted  uint64 // connections, at the last look
	err       error  // of the last attempt to open or remove it
}

func (u *use) beginPrepare() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.preparing++
	u.idle = false
}

// endPrepare returns the numbers that had no rules before.
func (u *use) endPrepare(numbers []uint32, err error) (added []uint32) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.preparing--
	if err != nil {
		return nil
	}
	for _, n := range numbers {
		if _, ok := u.numbers[n]; !ok {
			added = append(added, n)
		}
		u.numbers[n] = struct{}{}
	}
	return added
}

func (u *use) release(numbers []uint32) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, n := range numbers {
		delete(u.numbers, n)
	}
}

// rules returns how many sets there are.
func (u *use) rules() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return len(u.numbers)
}

func (u *use) recordOpened(err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.err, u.removed, u.idle = err, false, false
	if u.open = err == nil; !u.open {
		return
	}
	task.Wake(u.opened)
}

func (u *use) recordRemoved(err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.err, u.open, u.removed = err, false, err == nil
}

func (u *use) recordStopped() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.open = false
}

// isOver reports whether the way is there, and was not needed at two looks in a row, without rules and connections.
// accepted is how many of these there were so far.
func (u *use) isOver(connections int, accepted uint64) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.numbers)+u.preparing+connections > 0 || accepted != u.accepted {
		u.idle, u.accepted = false, accepted
		return false
	}
	if !u.idle {
		u.idle = true
		return false
	}
	return !u.removed
}

// state returns whether the way is open, and why it could not be opened or removed.
func (u *use) state() (open bool, err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.open, u.err
}

// unusedInterval: the way into the proxy is removed when it was unused for one to two of them.
const unusedInterval = 15 * time.Second

func newFollowTask(p *Proxy, log *slog.Logger) *task.Task {
	return task.Forever(log, "proxy-follow", p.follow)
}

func newRemoveTask(p *Proxy, log *slog.Logger) *task.Task {
	return task.Every(log, task.Round{Name: "proxy-remove-unused", Run: p.removeUnused, Interval: unusedInterval, Later: true})
}

// follow keeps the way into the proxy as it was opened.
func (p *Proxy) follow(ctx context.Context) error {
	for ctx.Err() == nil {
		_ = p.redirect.Follow(ctx) // which ends with ctx, or when the way is closed
		select {
		case <-ctx.Done():
		case <-p.use.opened:
		}
	}
	return ctx.Err()
}

// removeUnused removes the way into the proxy when there was no rule and no connection since the last round. Leftovers
// of a previous agent are removed, too: kept rules are prepared before the first round.
func (p *Proxy) removeUnused(context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.started || !p.use.isOver(p.listener.Connections()) {
		return nil
	}
	wasOpen := p.listeners != nil
	err := p.redirect.Remove()
	p.listeners = nil
	p.use.recordRemoved(err)
	p.opened(nil)
	if wasOpen && err == nil {
		p.log.Info("no layer 7 rules are left: the way into the proxy is removed")
	}
	return err
}
