package endpointmanager

import (
	"context"
	"errors"
	"time"

	"porin.dev/porin/internal/deletequeue"
)

// workOff deletes what the plugin was asked to delete while no agent answered. A record whose deletion fails stays in
// the folder for the next time; one that cannot be read is set aside there, and reported.
func (m *manager) workOff(ctx context.Context) {
	done, err := deletequeue.Drain(m.cfg.deletionsPath(), func(rec deletequeue.Record) error {
		result := m.deleteRecorded(ctx, rec)
		return errors.Join(result.Errors...)
	})
	if err != nil {
		m.log.Error("deletion records are left, next try at the next start", "path", m.cfg.deletionsPath(), "error", err)
	}
	if done > 0 {
		m.log.Info("deletion records worked off", "records", done)
	}
}

// deleteRecorded passes over an attachment that began a new life after the recorded deletion did.
func (m *manager) deleteRecorded(ctx context.Context, rec deletequeue.Record) DeleteResult {
	cfg := asked(DeleteConfig{Began: time.Duration(max(rec.Began, 0))})
	return m.deleteAll(ctx, cfg, func(w *worker) bool {
		a := w.attachment
		return a.ContainerID == rec.ContainerID && (a.IfName == rec.IfName || rec.IfName == "") &&
			(rec.Began <= 0 || w.spec.Began <= time.Duration(rec.Began))
	})
}

// latecomers works off the records that a plugin wrote between the first look at them and the moment the API served.
type latecomers struct{ m *manager }

func newLatecomers(m *manager) latecomers { return latecomers{m} }

// Serving implements server.Watcher.
func (l latecomers) Serving() { l.m.workOff(context.Background()) }

// Stopping implements server.Watcher.
func (latecomers) Stopping() {}
