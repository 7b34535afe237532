package cni

import (
	"log/slog"
	"sync"
	"time"

	"porin.dev/porin/internal/heartbeat"
)

// Config says where the heartbeat file is.
type Config struct {
	// StateDir is the agent's, which plugins know.
	StateDir string
	// ConfDir has the lists of plugins that the container runtime reads; the empty string when the agent cannot see it.
	ConfDir string
}

// beatInterval is a small part of heartbeat.Fresh.
const beatInterval = 30 * time.Second

// beater writes the heartbeat file while the API serves. It is a server.Watcher.
type beater struct {
	stateDir string
	log      *slog.Logger
	stop     chan struct{}
	loop     sync.WaitGroup
}

func newHeartbeat(cfg Config, log *slog.Logger) *beater {
	return &beater{stateDir: cfg.StateDir, log: log, stop: make(chan struct{})}
}

// Serving implements server.Watcher.
func (b *beater) Serving() {
	b.beat()
	b.loop.Go(func() {
		tick := time.NewTicker(beatInterval)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				b.beat()
			case <-b.stop:
				return
			}
		}
	})
}

// Stopping implements server.Watcher. The file stays: it says when the agent was there last.
func (b *beater) Stopping() {
	b.beat()
	close(b.stop)
	b.loop.Wait()
}

func (b *beater) beat() {
	if err := heartbeat.Beat(b.stateDir); err != nil {
		b.log.Warn("heartbeat not written: STATUS may fail while the agent is restarted", "path", b.stateDir, "error", err)
	}
}
