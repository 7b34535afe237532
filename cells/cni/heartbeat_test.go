package cni

import (
	"errors"
	"log/slog"
	"sync"
	"testing"

	"go.uber.org/fx"

	"porin.dev/porin/cells/server"
	"porin.dev/porin/cells/supervisor"
	"porin.dev/porin/internal/heartbeat"
	"porin.dev/porin/internal/restored"
	"porin.dev/porin/internal/task"
	"porin.dev/porin/internal/testutil"
)

// heartbeatWritten reports whether the cell has written its file, with an API that serves or not. The task has done a
// round by then.
func heartbeatWritten(t *testing.T, serves bool) bool {
	t.Helper()
	dir, log := t.TempDir(), slog.New(slog.DiscardHandler)
	w := newHeartbeat(Config{StateDir: dir}, log)
	one := newHeartbeatTask(w, log)
	app := fx.New(fx.NopLogger, fx.Supply(log, restored.Opened()), supervisor.Module(supervisor.DefaultConfig()),
		server.Watch(func() *heartbeatWriter { return w }), supervisor.Tasks(func() *task.Task { return one }),
		fx.Invoke(fx.Annotate(func(watchers []server.Watcher) {
			for _, watcher := range watchers {
				if serves {
					watcher.Serving()
				}
			}
		}, fx.ParamTags(`group:"server.watchers"`))),
	)
	if err := app.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	testutil.Eventually(t, func() error {
		if one.Status().Runs == 0 {
			return errors.New("the task has not run")
		}
		return nil
	})
	written := heartbeat.Check(dir) == nil
	if err := app.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	return written
}

// TestHeartbeatServing: an agent that fails before it serves, again and again, must not keep STATUS well.
func TestHeartbeatServing(t *testing.T) {
	if heartbeatWritten(t, false) {
		t.Error("the heartbeat is written though the API does not serve")
	}
	if !heartbeatWritten(t, true) {
		t.Error("the API serves, and no heartbeat is written")
	}
}

// TestHeartbeatAtOnce has the agent begin to serve while the task writes.
func TestHeartbeatAtOnce(t *testing.T) {
	w := newHeartbeat(Config{StateDir: t.TempDir()}, slog.New(slog.DiscardHandler))
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 200 {
				if err := w.write(); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
}
