package endpointmanager

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// detachTimeout bounds one try of a deletion. What it does not finish is tried again.
const detachTimeout = 30 * time.Second

// maxRetryInterval bounds the doubling of Config.RetryInterval.
const maxRetryInterval = time.Minute

// Delete implements [Manager].
func (m *manager) Delete(ctx context.Context, attachment Attachment, cfg DeleteConfig) DeleteResult {
	if err := m.refusal(); err != nil {
		return DeleteResult{Errors: []error{fmt.Errorf("delete endpoint %s: %w", attachment, err)}}
	}
	cfg.Began = m.since(cfg.Began)
	return m.deleteAttachment(ctx, attachment, cfg, startWatchSince(Del, m.boot()-cfg.Began))
}

func (m *manager) deleteAttachment(ctx context.Context, attachment Attachment, cfg DeleteConfig, watch *stopwatch) DeleteResult {
	m.mu.Lock()
	m.history.noteDeletion(attachment, cfg.Began)
	w, ok := m.roster.byAttachment[attachment]
	swept := false
	if !ok && cfg.Sweep {
		w, swept = m.launchSweep(attachment, cfg)
	}
	m.mu.Unlock()
	unnamed := m.endUnnamed(ctx, attachment, cfg)
	var result DeleteResult
	switch {
	case swept:
		result = m.deleteWorker(ctx, w, cfg, watch)
		result.Deleted = 0 // it was none
		result.Errors = append(result.Errors, unnamed...)
		return result
	case ok && w.outlives(cfg):
		result.Spared = 1
	case ok:
		w.learn(cfg)
		result = m.deleteWorker(ctx, w, cfg.withoutSweep(), watch)
	}
	if !result.buried() {
		result.addError(m.remember(attachment, cfg))
	}
	result.Errors = append(result.Errors, unnamed...)
	return result
}

// outlives tells whether the endpoint is of a life that began after the deletion did: it came late, and is of an
// earlier one.
func (w *worker) outlives(cfg DeleteConfig) bool { return w.beganAt() > cfg.Began }

// buried tells whether the deletion is on record for sure: with a tombstone, or with what is to be tried again.
func (r DeleteResult) buried() bool { return r.Deleted > 0 || len(r.Errors) > 0 }

// remember puts a deletion on record of which the ledger would know nothing else. When that cannot be written it is a
// success all the same, and known as long as this agent lives: a full disk is no reason to keep a pod from going.
func (m *manager) remember(a Attachment, cfg DeleteConfig) error {
	err := m.ledger.note(note{Attachment: a, Began: cfg.Began, Boot: m.boot()})
	if err != nil && m.isStopped() {
		return fmt.Errorf("delete endpoint %s: %w", a, ErrStopped)
	}
	if err != nil {
		m.log.Warn("deletion is remembered until the agent ends, and not on record", "container", a.ContainerID,
			"ifname", a.IfName, "error", err)
	}
	return nil
}

// deletedAt is when the latest deletion of the attachment began; 0 when none is remembered.
func (m *manager) deletedAt(a Attachment) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.history.deleted[a]
}

// deleteWorker takes down this very life of an attachment.
func (m *manager) deleteWorker(ctx context.Context, w *worker, cfg DeleteConfig, watch *stopwatch) DeleteResult {
	w.end() // a creation that is under way gives up
	done := make(chan DeleteResult, 1)
	queued := w.queue.push(func() { done <- m.remove(context.WithoutCancel(ctx), w, cfg, watch) })
	if !queued {
		return afterClose(ctx, w)
	}
	select {
	case result := <-done:
		return result
	case <-ctx.Done():
		return notDeleted(w, fmt.Errorf("%w: %w", ErrPending, ctx.Err()))
	}
}

func notDeleted(w *worker, err error) DeleteResult {
	return DeleteResult{Errors: []error{fmt.Errorf("delete endpoint %s: %w", w.attachment, err)}}
}

// afterClose answers for an endpoint whose queue takes no more events: it is gone, or the agent is stopping.
func afterClose(ctx context.Context, w *worker) DeleteResult {
	switch err := w.drained(ctx); {
	case w.isGone():
		return DeleteResult{}
	case err != nil:
		return notDeleted(w, fmt.Errorf("%w: %w", ErrPending, err))
	}
	return notDeleted(w, ErrStopped)
}

// DeleteContainer implements [Manager].
func (m *manager) DeleteContainer(ctx context.Context, containerID string, cfg DeleteConfig) DeleteResult {
	if err := m.refusal(); err != nil {
		return DeleteResult{Errors: []error{fmt.Errorf("delete the endpoints of container %s: %w", clip(containerID), err)}}
	}
	cfg.Began = m.since(cfg.Began)
	return m.deleteContainer(ctx, containerID, cfg)
}

// deleteContainer takes down, one after the other, the endpoints of the container that are there now, and remembers that
// the container was deleted: the ADD of another interface may come late.
func (m *manager) deleteContainer(ctx context.Context, containerID string, cfg DeleteConfig) (sum DeleteResult) {
	whole := Attachment{ContainerID: containerID}
	m.mu.Lock()
	m.history.noteDeletion(whole, cfg.Began)
	list := m.roster.ofContainer(containerID)
	m.mu.Unlock()
	for _, w := range list {
		if w.outlives(cfg) {
			sum.Spared++
			continue
		}
		sum.add(m.deleteWorker(ctx, w, cfg, startWatch(Del)))
	}
	sum.addError(m.remember(whole, cfg))
	return sum
}

func (r *DeleteResult) add(other DeleteResult) {
	r.Deleted += other.Deleted
	r.Errors = append(r.Errors, other.Errors...)
}

func (r *DeleteResult) addError(err error) {
	if err != nil {
		r.Errors = append(r.Errors, err)
	}
}

// remove takes an endpoint down. It runs in the worker's queue.
func (m *manager) remove(ctx context.Context, w *worker, cfg DeleteConfig, watch *stopwatch) DeleteResult {
	if w.isGone() {
		return DeleteResult{}
	}
	if w.ep.State == Ready && cfg.Began > 0 && w.outlives(cfg) { // the same ADD has come again, after the deletion began
		return DeleteResult{Spared: 1}
	}
	_ = watch.lap("queue", nil)
	m.held.end(w)
	leave := m.admitDeletion(w)
	defer leave()
	_ = watch.lap("admission", nil)
	if w.ep.State != Disconnecting {
		m.become(w, outside, Disconnecting)
	}
	cfg.NoIPRelease = cfg.NoIPRelease || w.ep.Spec.ExternalIPAM
	_ = watch.lap("ledger-intent", m.intendDeletion(w, cfg))
	ctx, cancel := context.WithTimeout(ctx, detachTimeout)
	defer cancel()
	errs := m.detach(ctx, w, cfg, watch)
	errs = append(errs, watchErrors(watch, "ledger-commit", m.settle(w, cfg, errs))...)
	m.observe(watch.finish(w.ep, errors.Join(errs...)))
	if len(errs) > 0 {
		return DeleteResult{Errors: errs}
	}
	if !cfg.Sweep {
		m.log.Info("endpoint deleted", attrs(w.ep), "duration", watch.trace.Duration)
	}
	return DeleteResult{Deleted: 1}
}

// intendDeletion puts a deletion on record before its first effect. When that cannot be written it goes on all the same:
// the worst is that after a crash it begins anew.
func (m *manager) intendDeletion(w *worker, cfg DeleteConfig) error {
	if w.recorded.Load() {
		return nil // it is, in a file
	}
	err := m.putDeleting(w, cfg)
	if err != nil {
		m.log.Warn("deletion is not on record before it begins", attrs(w.ep), "error", err)
	}
	return err
}

func (m *manager) putDeleting(w *worker, cfg DeleteConfig) error {
	err := m.ledger.put(m.recordOf(w, deleting, cfg))
	w.deleting = w.deleting || err == nil
	return err
}

// admitDeletion waits for its turn, however long: what is asked for will be done. Those on record need none before the
// agent serves.
func (m *manager) admitDeletion(w *worker) (leave func()) {
	if w.recorded.Load() && m.isStopped() {
		return func() {}
	}
	leave, _ = m.admissions.of(w.ep.Spec).enter(context.Background(), laneDelete, "")
	return leave
}

func watchErrors(watch *stopwatch, name string, errs []error) []error {
	_ = watch.lap(name, errors.Join(errs...))
	return errs
}

// detach runs every step in the reverse order, even when one fails: those after it are told. Each is a phase of watch,
// when there is one.
func (m *manager) detach(ctx context.Context, w *worker, cfg DeleteConfig, watch *stopwatch) []error {
	var errs []error
	for _, step := range slices.Backward(m.steps[:w.ran]) {
		err := step.Detach(ctx, w.ep, cfg)
		if watch != nil {
			_ = watch.lap(step.Name(), err)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: detach %s: %w", step.Name(), w.attachment, err))
			cfg.Incomplete = true
		}
	}
	return errs
}

// settle ends a deletion: with a tombstone when every step is detached, else with a record and a timer for the next
// try. It returns what went wrong in doing so: [ErrPending] when the deletion is neither whole nor on record.
func (m *manager) settle(w *worker, cfg DeleteConfig, failed []error) []error {
	if len(failed) == 0 {
		if err := m.ledger.bury(m.recordOf(w, buried, cfg)); err != nil {
			failed = []error{err}
			m.retryLater(w, cfg, failed)
			return failed
		}
		m.become(w, outside, Disconnected)
		m.tellDeleted(w, cfg) // before another life of the attachment can begin
		m.retire(w)
		return nil
	}
	err := m.putDeleting(w, cfg)
	m.retryLater(w, cfg, failed)
	switch {
	case err == nil:
		return nil
	case !w.deleting && !w.recorded.Load():
		return []error{fmt.Errorf("%w: %w", ErrPending, err)}
	}
	return []error{err}
}

// retryLater tries a deletion again after a while that doubles with each failure.
func (m *manager) retryLater(w *worker, cfg DeleteConfig, failed []error) {
	w.failures++
	wait := min(m.cfg.RetryInterval<<min(w.failures-1, 16), maxRetryInterval)
	w.failed.Store(&setback{w.failures, errors.Join(failed...), cfg})
	m.log.Warn("deletion is not whole, trying again", attrs(w.ep), "after", wait, "error", errors.Join(failed...))
	if w.retry != nil {
		w.retry.Stop()
	}
	try := w.failures
	w.retry = time.AfterFunc(wait, func() {
		w.queue.push(func() {
			if w.failures == try { // nobody else has tried since
				m.remove(context.Background(), w, cfg, startWatch(Del))
			}
		})
	})
}

// recordOf says of a deletion when the latest of those began that were asked for, whichever of them does it.
func (m *manager) recordOf(w *worker, p phase, cfg DeleteConfig) record {
	if p == deleting || p == buried {
		cfg.Began = max(cfg.Began, m.deletedAt(w.attachment))
	}
	return record{Phase: p, Endpoint: w.ep, Config: cfg, At: wallTime(), Boot: m.boot(), Told: w.born}
}
