package cni

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"porin.dev/porin/internal/heartbeat"
	"porin.dev/porin/internal/task"
)

// heartbeatInterval is a small part of heartbeat.Fresh.
const heartbeatInterval = 30 * time.Second

// heartbeatWriter writes the heartbeat file while the API serves. It is a server.Watcher.
type heartbeatWriter struct {
	stateDir string
	log      *slog.Logger
	serving  atomic.Bool
	mu       sync.Mutex // held while the file is written, by the task or at the start and the end
}

func newHeartbeat(cfg Config, log *slog.Logger) *heartbeatWriter {
	return &heartbeatWriter{stateDir: cfg.StateDir, log: log}
}

// newHeartbeatTask returns the task that writes the file again and again. An agent that never serves must not look
// alive.
func newHeartbeatTask(w *heartbeatWriter, log *slog.Logger) *task.Task {
	return task.Every(log, task.Round{Name: "cni-heartbeat", Interval: heartbeatInterval, Run: func(context.Context) error {
		if !w.serving.Load() {
			return nil
		}
		return w.write()
	}})
}

// Serving implements server.Watcher.
func (w *heartbeatWriter) Serving() {
	w.serving.Store(true)
	w.writeOrWarn()
}

// Stopping implements server.Watcher. The file stays: it says when the agent was there last.
func (w *heartbeatWriter) Stopping() {
	w.writeOrWarn()
	w.serving.Store(false)
}

func (w *heartbeatWriter) writeOrWarn() {
	if err := w.write(); err != nil {
		w.log.Warn("STATUS may fail while the agent is restarted", "error", err)
	}
}

func (w *heartbeatWriter) write() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := heartbeat.Beat(w.stateDir); err != nil {
		return fmt.Errorf("write the heartbeat: %w", err)
	}
	return nil
}
