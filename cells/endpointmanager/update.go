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

// updater changes the metadata of endpoints.
type updater struct {
	log      *slog.Logger
	registry *registry
	records  *recorder
	steps    *stepRunner
	// listeners are told when the table has it.
	listeners *listeners
}

// Update implements [Manager].
func (u *updater) Update(ctx context.Context, attachment endpoint.Attachment, change endpoint.Metadata) (endpoint.Endpoint, error) {
	ep, err := u.update(ctx, attachment, change)
	if err != nil {
		return endpoint.Endpoint{}, fmt.Errorf("update endpoint %s: %w", attachment, err)
	}
	return ep, nil
}

func (u *updater) update(ctx context.Context, attachment endpoint.Attachment, change endpoint.Metadata) (endpoint.Endpoint, error) {
	text, err := change.Encode()
	if err != nil {
		return endpoint.Endpoint{}, err
	}
	w := u.registry.worker(attachment)
	if w == nil {
		return endpoint.Endpoint{}, ErrNotFound
	}
	spec := w.spec
	spec.Metadata = text
	if err := spec.ValidateMetadata(); err != nil {
		return endpoint.Endpoint{}, err
	}
	type outcome struct {
		ep  endpoint.Endpoint
		err error
	}
	done := make(chan outcome, 1)
	if !w.queue.push(func() {
		ep, err := u.updateInQueue(ctx, w, text)
		done <- outcome{ep, err}
	}) {
		return endpoint.Endpoint{}, ErrNotReady
	}
	select {
	case o := <-done:
		return o.ep, o.err
	case <-ctx.Done():
		return endpoint.Endpoint{}, ctx.Err()
	}
}

func (u *updater) updateInQueue(ctx context.Context, w *worker, change string) (endpoint.Endpoint, error) {
	if err := ctx.Err(); err != nil {
		return endpoint.Endpoint{}, err // the caller has left
	}
	if w.ep.State != endpoint.Ready {
		return endpoint.Endpoint{}, ErrNotReady
	}
	changed := w.ep
	var err error
	if changed.Metadata, err = endpoint.ChangeMetadata(w.ep.Metadata, change); err != nil {
		return endpoint.Endpoint{}, err
	}
	if changed == w.ep {
		return w.ep, nil
	}
	if err := u.put(ctx, w, changed); err != nil {
		return endpoint.Endpoint{}, err
	}
	before := w.ep
	if err := w.show(changed); err != nil {
		return endpoint.Endpoint{}, err
	}
	u.listeners.updated(before, w.ep)
	u.log.Info("labels of an endpoint changed", attrs(w.ep))
	return w.ep, nil
}

// put has the steps follow the metadata of the endpoint, when it is another than before, and writes the record; or
// leaves both as they were. It runs in the worker's queue.
func (u *updater) put(ctx context.Context, w *worker, changed endpoint.Endpoint) error {
	updated := changed.Metadata != w.ep.Metadata
	var err error
	if updated {
		err = u.steps.update(ctx, changed)
	}
	if err == nil {
		rec := u.records.recordOf(w, ledger.Committed, endpoint.DeleteConfig{})
		rec.Endpoint = changed
		err = u.records.ledger.Put(rec)
	}
	if err == nil || !updated {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
	defer cancel()
	if undoErr := u.steps.update(ctx, w.ep); undoErr != nil {
		err = errors.Join(err, fmt.Errorf("undo: %w", undoErr))
	}
	return fault.Wrap(fault.KindOf(err), err)
}
