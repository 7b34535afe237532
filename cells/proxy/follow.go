package proxy

import (
	"context"
	"log/slog"
	"time"

	"porin.dev/porin/internal/task"
)

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
