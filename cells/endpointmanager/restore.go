package endpointmanager

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// restore brings back what the ledger holds, in three phases: it reads the ledger, checks each record against what was
// deleted meanwhile and against the kernel, and then brings back what passed, undoes the rest, and removes what belongs to
// nobody.
func (m *manager) restore(ctx context.Context) error {
	began := time.Now()
	records, err := m.readLedger()
	if err != nil {
		return err
	}
	workers, err := m.revive(records)
	if err != nil {
		return err
	}
	m.check(ctx, workers)
	m.tellOfElders(workers)
	for _, one := range workers {
		if err := m.bringBack(ctx, one); err != nil {
			return err
		}
	}
	m.report.Duration = time.Since(began)
	if err := m.prune(ctx); err != nil { // a leak is no reason to leave the node without an agent
		m.log.Error("what belongs to nobody is left; doctor shows it", "error", err)
	}
	return ctx.Err()
}

// readLedger is the first phase. Living endpoints come first: a half made one must not find the address of a living one
// free.
func (m *manager) readLedger() ([]record, error) {
	now := m.boot()
	if err := m.ledger.expire(now-m.cfg.TombstoneTTL, now); err != nil {
		return nil, err
	}
	if err := m.recall(); err != nil {
		return nil, err
	}
	records, err := m.ledger.attachments()
	slices.SortStableFunc(records, func(a, b record) int { return phaseOrder(a.Phase) - phaseOrder(b.Phase) })
	return records, err
}

func phaseOrder(p phase) int {
	if p == committed {
		return 0
	}
	return 1
}

// recall reads what was deleted lately, for the history and for the steps that want to know.
func (m *manager) recall() error {
	buried, err := m.ledger.tombstones()
	if err != nil {
		return err
	}
	notes, err := m.ledger.notes()
	if err != nil {
		return err
	}
	now, boot := time.Now(), m.boot()
	deletions := make([]Deletion, len(buried))
	m.mu.Lock()
	for i, rec := range buried {
		m.history.noteDeletion(rec.Endpoint.Spec.Attachment, rec.Config.Began)
		m.history.noteBirth(rec.Endpoint.Spec)
		deletions[i] = Deletion{Endpoint: rec.Endpoint, Config: rec.Config, At: now.Add(rec.Boot - boot)}
	}
	for _, n := range notes {
		m.history.noteDeletion(n.Attachment, n.Began)
	}
	m.mu.Unlock()
	for _, step := range m.steps {
		if r, ok := step.(Rememberer); ok {
			r.Remember(deletions)
		}
	}
	return nil
}

// revived is an endpoint of an earlier life of the agent on its way back.
type revived struct {
	worker *worker
	record record
	newer  *worker // of the container that has superseded its own; nil when none has
	lost   error   // what the kernel lacks of it for good; nil when it may be brought back
}

// revive makes a worker for each record, with the number it had.
func (m *manager) revive(records []record) ([]*revived, error) {
	list := make([]*revived, len(records))
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, rec := range records {
		if !m.ids.reserve(rec.Endpoint.ID) {
			return nil, damaged(m.ledger.path(), fmt.Errorf("endpoint %s: number %d: %w", rec.Endpoint.Spec.Attachment, rec.Endpoint.ID, ErrInUse))
		}
		rec.Endpoint.Spec.Began = min(rec.Endpoint.Spec.Began, m.boot()) // else it is of another boot
		w := newWorker(rec.Endpoint.Spec, rec.Endpoint.ID)
		w.ep, w.ran, w.born = rec.Endpoint, len(m.steps), rec.Phase == committed || rec.Told
		w.ep.State = ""
		m.become(w, outside, Restoring)
		m.history.noteBirth(w.spec)
		m.history.noteDeletion(w.attachment, rec.Config.Began)
		m.launch(w)
		list[i] = &revived{worker: w, record: rec}
	}
	findElders(list)
	return list, nil
}

// check is the second phase: what is to go is not brought back first, and neither is what the kernel has lost.
func (m *manager) check(ctx context.Context, list []*revived) {
	m.workOffOrWarn(ctx)
	var eps []Endpoint
	for _, one := range list {
		if one.record.Phase == committed {
			eps = append(eps, one.record.Endpoint)
		}
	}
	for _, step := range m.steps {
		surveyor, ok := step.(Surveyor)
		if !ok {
			continue
		}
		lost, err := surveyor.Survey(ctx, eps)
		if err != nil { // each Restore finds out for itself
			m.log.Warn("endpoints are brought back unchecked", "step", step.Name(), "error", err)
		}
		for _, one := range list {
			if err, ok := lost[one.worker.attachment]; ok {
				one.lost = errors.Join(one.lost, fmt.Errorf("%s: %w", step.Name(), err))
			}
		}
	}
	slices.SortStableFunc(list, func(a, b *revived) int { return a.order() - b.order() })
}

// order puts those that are brought back before those that are undone: their addresses are taken by then.
func (r *revived) order() int {
	if r.lost != nil || r.newer != nil {
		return 1
	}
	return phaseOrder(r.record.Phase)
}

// bringBack waits for one endpoint to be restored or undone, the third phase. Its error is the end of the start.
func (m *manager) bringBack(ctx context.Context, one *revived) error {
	w, done := one.worker, make(chan struct{})
	queued := w.queue.push(func() {
		defer close(done)
		switch {
		case w.ep.State != Restoring: // its deletion was on record: it is gone, or will be
			m.report.undone(w.attachment, "it was deleted while no agent ran")
		case one.record.Phase != committed:
			m.report.undone(w.attachment, halfDone[one.record.Phase])
			m.remove(ctx, w, one.config(), startWatch(Del))
		case one.newer != nil:
			m.report.undone(w.attachment, reasonSuperseded)
			m.remove(ctx, w, one.config(), startWatch(Del))
		case one.lost != nil:
			m.giveUp(ctx, w, one.lost)
		default:
			m.adopt(ctx, w)
		}
	})
	if queued {
		<-done
	} else {
		m.report.undone(w.attachment, "it was deleted while no agent ran")
	}
	return ctx.Err()
}

// giveUp takes down an endpoint that cannot be brought back. When its address was never taken it is not released either.
func (m *manager) giveUp(ctx context.Context, w *worker, why error) {
	m.log.Warn("endpoint cannot be brought back, taking it down", attrs(w.ep), "error", why)
	m.report.undone(w.attachment, why.Error())
	m.remove(ctx, w, DeleteConfig{NoIPRelease: errors.Is(why, ErrAddressNotTaken)}, startWatch(Del))
}

// adopt runs every step's Restore in order. An endpoint that cannot be brought back is undone alone. It runs in the
// worker's queue.
func (m *manager) adopt(ctx context.Context, w *worker) {
	watch := startWatch(Restore)
	m.become(w, builder, Regenerating)
	replaced, err := m.restoreSteps(ctx, w, watch)
	m.observe(watch.finish(w.ep, err))
	if ctx.Err() != nil {
		return // the start is given up: nothing is wrong with the endpoint
	}
	if err != nil {
		m.giveUp(ctx, w, err)
		return
	}
	m.become(w, builder, Ready)
	m.report.adopted(w.attachment, replaced)
	m.tellRestored(w.ep)
}

// restoreSteps runs every step's Restore in order, as far as they succeed.
func (m *manager) restoreSteps(ctx context.Context, w *worker, watch *stopwatch) (replaced []string, err error) {
	for _, step := range m.steps {
		anew, err := restoreStep(ctx, step, w.ep)
		replaced = append(replaced, anew...)
		if watch.lap(step.Name(), err) != nil {
			return replaced, fmt.Errorf("restore endpoint %s: %s: %w", w.attachment, step.Name(), err)
		}
	}
	return replaced, nil
}

func (m *manager) prune(ctx context.Context) error {
	live := m.table.List()
	var errs []error
	for _, step := range m.steps {
		if p, ok := step.(Pruner); ok {
			removed, err := p.Prune(ctx, live)
			m.report.removed(removed)
			if err != nil {
				errs = append(errs, fmt.Errorf("%s: remove what belongs to nobody: %w", step.Name(), err))
			}
		}
	}
	return errors.Join(errs...)
}
