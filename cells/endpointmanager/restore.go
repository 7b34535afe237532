package endpointmanager

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
)

// restore brings back what the ledger holds, unless it speaks of another network namespace of this boot: then it waits for
// [Holder].Confirm.
func (m *manager) restore(ctx context.Context) error {
	here, err := m.here()
	if err != nil {
		return err
	}
	ledger, err := m.ledger.origin()
	if err != nil {
		return err
	}
	relation := relationOf(ledger, here)
	list, err := m.readLedger(relation)
	if err != nil {
		return err
	}
	if relation == undetermined {
		m.suspend(list, ledger, here)
		return nil
	}
	return m.bringAllBack(ctx, list, ledger, here)
}

// bringAllBack has three phases: it checks each record against what was deleted meanwhile and against the kernel, brings back
// what passed, holds what cannot be explained, undoes the rest, and removes what belongs to nobody. Then the ledger is of here.
func (m *manager) bringAllBack(ctx context.Context, list []*revived, ledger, here origin) error {
	began := time.Now()
	if relationOf(ledger, here) != current {
		if err := m.ledger.expire(math.MaxInt64, math.MaxInt64); err != nil { // whose times mean nothing here
			return err
		}
	}
	undo, cancel := context.WithTimeout(ctx, undoTimeAtStart)
	defer cancel()
	list, err := m.check(ctx, undo, list)
	if err != nil {
		return err
	}
	m.tellOfElders(list)
	for _, one := range list {
		if err := m.bringBack(ctx, undo, one); err != nil {
			return err
		}
	}
	if err := m.bringBackAgain(ctx, undo, list); err != nil {
		return err
	}
	if err := m.endFailed(ctx, undo, list); err != nil {
		return err
	}
	m.report.Duration = time.Since(began)
	if err := m.prune(ctx); err != nil { // a leak is no reason to leave the node without an agent
		m.log.Error("what belongs to nobody is left; doctor shows it", "error", err)
	}
	if ctx.Err() == nil && ledger != here {
		return m.ledger.setOrigin(here)
	}
	return ctx.Err()
}

// readLedger makes a worker for each record. Living endpoints come first: a half made one must not find the address of a living
// one free. Of a ledger that is not of here it changes nothing.
func (m *manager) readLedger(relation relation) ([]*revived, error) {
	now := m.boot()
	if relation == current {
		if err := m.ledger.expire(now-m.cfg.TombstoneTTL, now); err != nil {
			return nil, err
		}
		if err := m.recall(); err != nil {
			return nil, err
		}
	}
	records, err := m.ledger.attachments()
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(records, func(a, b record) int { return phaseOrder(a.Phase) - phaseOrder(b.Phase) })
	list, err := m.revive(records, func(r record) bool { return relation != current || r.isFormer(now) })
	if err != nil {
		return nil, err
	}
	findElders(list)
	return list, nil
}

func phaseOrder(p phase) int {
	switch p {
	case committed:
		return 0
	case held:
		return 1
	}
	return 2
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
	former bool       // it is of another boot: it is undone, and nothing explains or refuses anything by its times
	newer  *worker    // of the container that has superseded its own; nil when none has
	lost   error      // what the kernel lacks of it for good; nil when it may be brought back
	reason HoldReason // why it is held; "" when it is not
	failed error      // of the last try of a step's Restore; nil when it was brought back, or not tried

	replaced []string // by all tries
}

// revive makes a worker for each record, with the number it had.
func (m *manager) revive(records []record, isFormer func(record) bool) ([]*revived, error) {
	list := make([]*revived, len(records))
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, rec := range records {
		if !m.ids.reserve(rec.Endpoint.ID) {
			return nil, damaged(m.ledger.path(), fmt.Errorf("endpoint %s: number %d: %w", rec.Endpoint.Spec.Attachment, rec.Endpoint.ID, ErrInUse))
		}
		isFormer := isFormer(rec)
		if isFormer {
			rec = rec.withoutTimes()
		}
		list[i] = m.launchRevived(rec)
		list[i].former = isFormer
		m.history.noteBirth(rec.Endpoint.Spec)
		m.history.noteDeletion(rec.Endpoint.Spec.Attachment, rec.Config.Began)
	}
	return list, nil
}

// launchRevived expects the lock. What was held for the loss of its link is whole if the link is back, and what could not be
// restored is tried again.
func (m *manager) launchRevived(rec record) *revived {
	one := &revived{reason: rec.Held}
	if rec.Held == RestoreFailed { // it is tried again
		one.reason = ""
	}
	if rec.Held == LinkLost || rec.Held == RestoreFailed {
		rec.Phase = committed
	}
	w := newWorker(rec.Endpoint.Spec, rec.Endpoint.ID)
	w.ep, w.ran, w.born, w.found = rec.Endpoint, len(m.steps), rec.Phase == committed || rec.Told, rec.Held == NotOnRecord
	w.deleting = rec.Phase == deleting || rec.Phase == intent // either is detached by any start
	w.ep.State = ""
	m.become(w, outside, Restoring)
	m.launch(w)
	one.worker, one.record = w, rec
	return one
}

// check is the first phase: what is to go is not brought back first, and neither is what the kernel has lost. What is of another
// boot goes before anything of this one is looked at.
func (m *manager) check(ctx, undo context.Context, list []*revived) ([]*revived, error) {
	m.workOffOrWarn(ctx)
	m.undoFormer(undo, list)
	m.survey(ctx, list)
	found, err := m.find(ctx)
	if err != nil {
		return nil, err
	}
	list = m.holdUnexplained(list, found)
	slices.SortStableFunc(list, func(a, b *revived) int { return a.order() - b.order() })
	return list, nil
}

// survey notes which endpoints the kernel has lost.
func (m *manager) survey(ctx context.Context, list []*revived) {
	var eps []Endpoint
	for _, one := range list {
		if one.record.Phase == committed && !one.former {
			eps = append(eps, one.record.Endpoint)
		}
	}
	complete := true
	for _, step := range m.steps {
		surveyor, ok := step.(Surveyor)
		if !ok {
			continue
		}
		lost, err := surveyor.Survey(ctx, eps)
		if err != nil { // each Restore finds out for itself
			m.log.Warn("endpoints are brought back unchecked", "step", step.Name(), "error", err)
			complete = false
		}
		for _, one := range list {
			if err, ok := lost[one.worker.attachment]; ok {
				one.lost = errors.Join(one.lost, fmt.Errorf("%s: %w", step.Name(), err))
			}
		}
	}
	for _, one := range list {
		if complete && one.reason == LinkLost && one.lost == nil {
			one.reason = "" // it is back
		}
	}
}

// order puts those that are brought back or held before those that are undone: their addresses are taken by then.
func (r *revived) order() int {
	switch {
	case r.former || r.newer != nil:
		return 2
	case r.reason != "":
		return 1
	case r.lost != nil:
		return 2
	}
	return phaseOrder(r.record.Phase)
}

// reasonFormer is why an endpoint of another boot is not brought back.
const reasonFormer = "its node has booted since, or the network namespace that it was in is gone"

// undoFormer takes down all that is of another boot, side by side: other IPAM plugins take their addresses back. What fails
// stays on record, and is tried again.
func (m *manager) undoFormer(undo context.Context, list []*revived) {
	var group errgroup.Group
	group.SetLimit(recordsAtOnce)
	for _, one := range list {
		if one.former {
			m.report.undone(one.worker.attachment, reasonFormer)
			group.Go(func() error {
				m.held.end(one.worker)
				one.worker.queue.push(one.worker.forgetIndexes)
				m.deleteWorker(undo, one.worker, one.config(), startWatch(Del))
				return nil
			})
		}
	}
	_ = group.Wait()
}

// reasonDeleted is why an endpoint is not brought back that a deletion record names.
const reasonDeleted = "it was deleted while no agent ran"

// undoTimeAtStart bounds how long a start waits for what it takes down: nobody is answered before, and an IPAM plugin may hang.
// What is not down by then is tried again later.
const undoTimeAtStart = 10 * time.Second

// bringBack waits for one endpoint to be restored or undone, the second phase: the latter until undo ends. Its error is the end
// of the start.
func (m *manager) bringBack(ctx, undo context.Context, one *revived) error {
	w, done := one.worker, make(chan struct{})
	switch {
	case one.former:
		return nil // undone
	case w.recorded.Load(): // its deletion is under way, however long that takes
		m.report.undone(w.attachment, reasonDeleted)
		return nil
	}
	queued := w.queue.push(func() {
		defer close(done)
		switch {
		case w.ep.State != Restoring: // its deletion was on record: it is gone, or will be
			m.report.undone(w.attachment, reasonDeleted)
		case one.newer != nil && one.record.Phase == committed:
			m.report.undone(w.attachment, reasonSuperseded)
			m.remove(undo, w, one.config(), startWatch(Del))
		case one.reason != "":
			m.keep(w, one.reason, one.detailOf())
		case one.record.Phase != committed:
			m.report.undone(w.attachment, halfDone[one.record.Phase])
			m.remove(undo, w, one.config(), startWatch(Del))
		case one.lost != nil:
			m.giveUp(undo, w, one.lost)
		default:
			one.failed = m.adopt(ctx, one)
		}
	})
	if queued {
		<-done
	} else {
		m.report.undone(w.attachment, reasonDeleted)
	}
	return ctx.Err()
}

// giveUp takes down an endpoint that cannot be brought back. When its address was never taken it is not released either.
func (m *manager) giveUp(ctx context.Context, w *worker, why error) {
	m.log.Warn("endpoint cannot be brought back, taking it down", attrs(w.ep), "error", why)
	m.report.undone(w.attachment, why.Error())
	m.remove(ctx, w, DeleteConfig{NoIPRelease: errors.Is(why, ErrAddressNotTaken)}, startWatch(Del))
}

// adopt runs every step's Restore in order, and returns why the endpoint cannot be brought back. It runs in the worker's queue.
func (m *manager) adopt(ctx context.Context, one *revived) error {
	w, watch := one.worker, startWatch(Restore)
	m.become(w, builder, Regenerating)
	replaced, err := m.restoreSteps(ctx, w, watch)
	one.replaced = append(one.replaced, replaced...)
	m.observe(watch.finish(w.ep, err))
	if ctx.Err() != nil {
		return nil // the start is given up: nothing is wrong with the endpoint
	}
	if err != nil {
		m.become(w, builder, Restoring)
		return err
	}
	m.become(w, builder, Ready)
	m.report.adopted(w.attachment, one.replaced)
	m.tellRestored(w.ep)
	return nil
}

// endFailed takes down the endpoints whose Restore has failed. When these are most of those tried, it is not the endpoints that
// are wrong: they are held.
func (m *manager) endFailed(ctx, undo context.Context, list []*revived) error {
	var failed []*revived
	tried := 0
	for _, one := range list {
		if one.isWhole() && one.reason == "" && one.lost == nil {
			tried++
		}
		if one.failed != nil {
			failed = append(failed, one)
		}
	}
	tooMany := isTooMany(len(failed), tried)
	if tooMany {
		m.log.Error("most endpoints cannot be brought back: they are held, as they are, until the next start, a DEL or porin restore accept",
			"failed", len(failed), "tried", tried, "error", failed[0].failed)
	}
	for _, one := range failed {
		w, done := one.worker, make(chan struct{})
		queued := w.queue.push(func() {
			defer close(done)
			switch {
			case w.ep.State != Restoring: // it is deleted already
			case tooMany:
				m.keep(w, RestoreFailed, one.failed.Error())
			default:
				m.giveUp(undo, w, one.failed)
			}
		})
		if queued {
			<-done
		}
	}
	return ctx.Err()
}

// restoreSteps runs every step's Restore in order, as far as they succeed.
func (m *manager) restoreSteps(ctx context.Context, w *worker, watch *stopwatch) (replaced []string, err error) {
	for _, step := range m.steps {
		anew, err := step.Restore(ctx, w.ep)
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
