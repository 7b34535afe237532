package endpointmanager

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"porin.dev/porin/internal/fault"
)

// Report says what a start found in the ledger.
type Report struct {
	Adopted  int // endpoints brought back as they were
	Undone   int // attachments that were half made, half deleted, or could not be brought back
	Duration time.Duration
}

// Restored implements [Service].
func (m *manager) Restored() Report { return m.report }

// restore brings back what the ledger holds: first the numbers of all, then the steps of each, then it removes what
// belongs to nobody.
func (m *manager) restore(ctx context.Context) error {
	began := time.Now()
	now := bootTime()
	if err := m.ledger.expire(now-m.cfg.TombstoneTTL, now); err != nil {
		return err
	}
	buried, err := m.ledger.read(tombstones)
	if err != nil {
		return err
	}
	m.remember(buried)
	records, err := m.ledger.read(attachments)
	if err != nil {
		return err
	}
	// Living endpoints first: a half made one must not find the address of a living one free.
	slices.SortStableFunc(records, func(a, b record) int { return phaseOrder(a.Phase) - phaseOrder(b.Phase) })
	workers, err := m.revive(records)
	if err != nil {
		return err
	}
	m.workOff(ctx) // what is to go is not brought back first
	for i, rec := range records {
		if err := m.bringBack(ctx, workers[i], rec); err != nil {
			return err
		}
	}
	m.report.Duration = time.Since(began)
	if err := m.prune(ctx); err != nil { // a leak is no reason to leave the node without an agent
		m.log.Error("what belongs to nobody is left, next try at the next start", "error", err)
	}
	return ctx.Err()
}

func phaseOrder(p phase) int {
	if p == committed {
		return 0
	}
	return 1
}

func (m *manager) remember(buried []record) {
	now, boot := time.Now(), bootTime()
	deletions := make([]Deletion, len(buried))
	m.mu.Lock()
	for i, rec := range buried {
		m.noteDeletion(rec.Endpoint.Spec.Attachment, rec.Config.Began)
		deletions[i] = Deletion{Endpoint: rec.Endpoint, Config: rec.Config, At: now.Add(rec.Boot - boot)}
	}
	m.mu.Unlock()
	for _, step := range m.steps {
		if r, ok := step.(Rememberer); ok {
			r.Remember(deletions)
		}
	}
}

// revive makes a worker for each record, with the number it had.
func (m *manager) revive(records []record) ([]*worker, error) {
	workers := make([]*worker, len(records))
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, rec := range records {
		if !m.ids.reserve(rec.Endpoint.ID) {
			return nil, damaged(m.ledger.db.Path(), fmt.Errorf("endpoint %s: number %d: %w", rec.Endpoint.Spec.Attachment, rec.Endpoint.ID, ErrInUse))
		}
		w := newWorker(rec.Endpoint.Spec, rec.Endpoint.ID)
		w.ep, w.ran, w.born = rec.Endpoint, len(m.steps), rec.Phase == committed || rec.Told
		w.ep.State = ""
		m.become(w, outside, Restoring)
		m.launch(w)
		workers[i] = w
	}
	return workers, nil
}

// bringBack waits for one endpoint to be restored or undone. Its error is the end of the start.
func (m *manager) bringBack(ctx context.Context, w *worker, rec record) error {
	done := make(chan struct{})
	queued := w.queue.push(func() {
		defer close(done)
		if w.ep.State != Restoring {
			return // its deletion was on record: it is gone, or will be
		}
		if rec.Phase == committed {
			m.adopt(ctx, w)
		} else {
			m.report.Undone++
			m.remove(ctx, w, rec.Config, startWatch(Del, 0))
		}
	})
	if queued { // else it is gone already
		<-done
	}
	return ctx.Err()
}

// adopt runs every step's Restore in order. An endpoint that cannot be brought back is undone alone; when its address
// was never taken it is not released either. It runs in the worker's queue.
func (m *manager) adopt(ctx context.Context, w *worker) {
	watch := startWatch(Restore, 0)
	m.become(w, builder, Regenerating)
	for _, step := range m.steps {
		err := watch.lap(step.Name(), restoreStep(ctx, step, w.ep))
		if err == nil {
			continue
		}
		err = fmt.Errorf("restore endpoint %s: %s: %w", w.attachment, step.Name(), err)
		m.observe(watch.finish(w.ep, err))
		if ctx.Err() != nil {
			return // the start is given up: nothing is wrong with the endpoint
		}
		m.log.Warn("endpoint cannot be brought back, taking it down", attrs(w.ep), "error", err)
		m.report.Undone++
		m.remove(ctx, w, DeleteConfig{NoIPRelease: errors.Is(err, ErrAddressNotTaken)}, startWatch(Del, 0))
		return
	}
	m.become(w, builder, Ready)
	m.report.Adopted++
	m.observe(watch.finish(w.ep, nil))
	m.tellRestored(w.ep)
}

// A living endpoint is not given up for a fault that may pass: the kernel short of memory, a list that changed while it
// was read.
const (
	restoreTries = 4
	restoreWait  = 20 * time.Millisecond // after the first try; it doubles
)

// restoreStep tries until the step succeeds, says that it never will, or has failed too often.
func restoreStep(ctx context.Context, step Step, ep Endpoint) (err error) {
	for try := range restoreTries {
		if err = step.Restore(ctx, ep); err == nil || final(err) || try == restoreTries-1 {
			return err
		}
		select {
		case <-time.After(restoreWait << try):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return err
}

// final tells whether the same try again must fail again.
func final(err error) bool {
	switch fault.KindOf(err) {
	case fault.Invalid, fault.NotFound, fault.Conflict, fault.Deadline:
		return true
	}
	return false
}

func (m *manager) prune(ctx context.Context) error {
	live := m.table.List()
	var errs []error
	for _, step := range m.steps {
		if p, ok := step.(Pruner); ok {
			if err := p.Prune(ctx, live); err != nil {
				errs = append(errs, fmt.Errorf("%s: remove what belongs to nobody: %w", step.Name(), err))
			}
		}
	}
	return errors.Join(errs...)
}
