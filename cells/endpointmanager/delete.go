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
	cfg = asked(cfg)
	m.mu.Lock()
	m.noteDeletion(attachment, cfg.Began)
	w, ok := m.workers[attachment]
	m.mu.Unlock()
	if !ok {
		return DeleteResult{}
	}
	return m.deleteWorker(ctx, w, cfg)
}

// asked is the configuration of a deletion that a caller wants, now unless it said since when.
func asked(cfg DeleteConfig) DeleteConfig {
	if cfg.Began == 0 {
		cfg.Began = bootTime()
	}
	return cfg
}

// deleteWorker takes down this very life of an attachment.
func (m *manager) deleteWorker(ctx context.Context, w *worker, cfg DeleteConfig) DeleteResult {
	watch := startWatch(Del, 0)
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
	return m.deleteAll(ctx, asked(cfg), func(w *worker) bool { return w.attachment.ContainerID == containerID })
}

// deleteAll takes down, one after the other, the endpoints that are there now and chosen.
func (m *manager) deleteAll(ctx context.Context, cfg DeleteConfig, chosen func(*worker) bool) DeleteResult {
	m.mu.Lock()
	var list []*worker
	for _, w := range m.workers {
		if chosen(w) {
			m.noteDeletion(w.attachment, cfg.Began)
			list = append(list, w)
		}
	}
	m.mu.Unlock()

	var sum DeleteResult
	for _, w := range list {
		result := m.deleteWorker(ctx, w, cfg)
		sum.Deleted += result.Deleted
		sum.Errors = append(sum.Errors, result.Errors...)
	}
	return sum
}

// remove takes an endpoint down. It runs in the worker's queue.
func (m *manager) remove(ctx context.Context, w *worker, cfg DeleteConfig, watch *stopwatch) DeleteResult {
	if w.isGone() {
		return DeleteResult{}
	}
	_ = watch.lap("queue", nil)
	if w.ep.State != Disconnecting {
		m.become(w, outside, Disconnecting)
	}
	cfg.NoIPRelease = cfg.NoIPRelease || w.ep.Spec.ExternalIPAM
	// When this cannot be written the deletion goes on all the same: the worst is that after a crash it begins anew.
	if err := watch.lap("ledger-intent", m.ledger.put(m.recordOf(w, deleting, cfg))); err != nil {
		m.log.Warn("deletion is not on record before it begins", attrs(w.ep), "error", err)
	}
	ctx, cancel := context.WithTimeout(ctx, detachTimeout)
	defer cancel()
	errs := m.detach(ctx, w, cfg, watch)
	errs = append(errs, watchErrors(watch, "ledger-commit", m.settle(w, cfg, errs))...)
	m.observe(watch.finish(w.ep, joinErrors(errs)))
	if len(errs) > 0 {
		return DeleteResult{Errors: errs}
	}
	m.log.Info("endpoint deleted", attrs(w.ep), "duration", watch.trace.Duration)
	return DeleteResult{Deleted: 1}
}

func watchErrors(watch *stopwatch, name string, errs []error) []error {
	_ = watch.lap(name, joinErrors(errs))
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
// try. It returns what went wrong in doing so.
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
	err := m.ledger.put(m.recordOf(w, deleting, cfg))
	m.retryLater(w, cfg, failed)
	if err != nil {
		return []error{err}
	}
	return nil
}

// retryLater tries a deletion again after a while that doubles with each failure.
func (m *manager) retryLater(w *worker, cfg DeleteConfig, failed []error) {
	w.failures++
	wait := min(m.cfg.RetryInterval<<min(w.failures-1, 16), maxRetryInterval)
	m.log.Warn("deletion is not whole, trying again", attrs(w.ep), "after", wait, "error", joinErrors(failed))
	if w.retry != nil {
		w.retry.Stop()
	}
	try := w.failures
	w.retry = time.AfterFunc(wait, func() {
		w.queue.push(func() {
			if w.failures == try { // nobody else has tried since
				m.remove(context.Background(), w, cfg, startWatch(Del, 0))
			}
		})
	})
}

func (m *manager) recordOf(w *worker, p phase, cfg DeleteConfig) record {
	return record{Phase: p, Endpoint: w.ep, Config: cfg, At: wallTime(), Boot: bootTime(), Told: w.born}
}

func joinErrors(errs []error) error { return errors.Join(errs...) }
