package endpointmanager

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/endpointmanager/ledger"
	"porin.dev/porin/internal/fault"
)

// ErrNotReady is returned while the endpoint is being made or taken down.
var ErrNotReady = fault.New(fault.Conflict, "the endpoint is not ready")

// repairer makes anew what an endpoint lacks.
type repairer struct {
	log       *slog.Logger
	registry  *registry
	records   *recorder
	steps     *stepRunner
	listeners *listeners
}

// Repair implements [Manager].
func (r *repairer) Repair(ctx context.Context, attachment endpoint.Attachment) error {
	w := r.registry.worker(attachment)
	if w == nil {
		return fmt.Errorf("repair endpoint %s: %w", attachment, ErrNotFound)
	}
	done := make(chan error, 1)
	if !w.queue.push(func() { done <- r.repair(ctx, w) }) {
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
func (r *repairer) repair(ctx context.Context, w *worker) error {
	if w.ep.State != endpoint.Ready {
		return fmt.Errorf("repair endpoint %s: %w", w.attachment, ErrNotReady)
	}
	watch := startWatch(endpoint.OperationRepair)
	replaced, err := r.steps.restore(ctx, w, watch)
	err = errors.Join(err, watch.lap("ledger-commit", r.records.put(w, ledger.Committed, endpoint.DeleteConfig{})))
	r.listeners.observe(watch.finish(w.ep, err))
	if err == nil && len(replaced) > 0 {
		r.log.Info("endpoint repaired", attrs(w.ep), "replaced", replaced)
	}
	return err
}
