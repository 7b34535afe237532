package endpointmanager

import (
	"context"
	"errors"
	"fmt"

	"porin.dev/porin/internal/fault"
)

// ErrNotReady is that an endpoint is being made or taken down.
var ErrNotReady = fault.New(fault.Conflict, "the endpoint is not ready")

// Repair implements [Manager].
func (m *manager) Repair(ctx context.Context, attachment Attachment) error {
	m.mu.Lock()
	w, ok := m.roster.byAttachment[attachment]
	m.mu.Unlock()
	if !ok {
		return fmt.Errorf("repair endpoint %s: %w", attachment, ErrNotFound)
	}
	done := make(chan error, 1)
	if !w.queue.push(func() { done <- m.repair(ctx, w) }) {
		return fmt.Errorf("repair endpoint %s: %w", attachment, ErrNotReady)
	}
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("repair endpoint %s: %w", attachment, ctx.Err())
	}
}

// repair runs in the worker's queue.
func (m *manager) repair(ctx context.Context, w *worker) error {
	if w.ep.State != Ready {
		return fmt.Errorf("repair endpoint %s: %w", w.attachment, ErrNotReady)
	}
	watch := startWatch(Repair)
	replaced, err := m.restoreSteps(ctx, w, watch)
	err = errors.Join(err, watch.lap("ledger-commit", m.ledger.put(m.recordOf(w, committed, DeleteConfig{}))))
	m.observe(watch.finish(w.ep, err))
	if err == nil && len(replaced) > 0 {
		m.log.Info("endpoint repaired", attrs(w.ep), "replaced", replaced)
	}
	return err
}
