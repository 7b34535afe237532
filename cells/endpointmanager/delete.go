package endpointmanager

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/endpointmanager/admission"
	"porin.dev/porin/cells/endpointmanager/ledger"
)

const (
	// undoTimeout bounds the undo of an ADD, which runs when its caller's time is over.
	undoTimeout = 10 * time.Second
	// detachTimeout bounds one try of a deletion. What it does not finish is tried again.
	detachTimeout = 30 * time.Second
	// maxRetryInterval bounds the doubling of Config.RetryInterval.
	maxRetryInterval = time.Minute
)

// deleter takes endpoints down. From the call to the end of an endpoint it goes
//
//	Delete -> removeEndpoint -> deleteWorker -> (queue of the endpoint) takeDown -> detach -> finish -> EndpointDeleted
type deleter struct {
	log           *slog.Logger
	retryInterval time.Duration
	clock         *clock
	gate          *gate
	registry      *registry
	records       *recorder
	steps         *stepRunner
	listeners     *listeners
	queues        *admission.Queues
	held          *heldSet
}

// DeleteResult counts what a deletion did. What is in Errors stays on record and is tried again, but for [ErrStopped]
// and [ErrPending]: after these the caller asks again.
type DeleteResult struct {
	Deleted int
	Skipped int // endpoints that stay: they began after the deletion did, or the agent made them itself
	Errors  []error
	GivenUp []error // failed steps of endpoints that were deleted by force
}

// Delete implements [Manager].
func (d *deleter) Delete(ctx context.Context, attachment endpoint.Attachment, cfg endpoint.DeleteConfig) DeleteResult {
	if err := d.gate.refusal(); err != nil {
		return DeleteResult{Errors: []error{fmt.Errorf("delete endpoint %s: %w", attachment, err)}}
	}
	cfg.Began = d.clock.startTime(cfg.Began)
	return d.removeEndpoint(ctx, attachment, cfg, startWatchSince(endpoint.OperationDel, d.clock.boot()-cfg.Began))
}

// DeleteContainer implements [Manager].
func (d *deleter) DeleteContainer(ctx context.Context, containerID string, cfg endpoint.DeleteConfig) DeleteResult {
	if err := d.gate.refusal(); err != nil {
		return DeleteResult{Errors: []error{fmt.Errorf("delete the endpoints of container %.64s: %w", containerID, err)}}
	}
	cfg.Began = d.clock.startTime(cfg.Began)
	return d.removeContainer(ctx, containerID, cfg)
}

// removeEndpoint takes down the endpoint of the attachment, unless it is of a later life, and remembers the deletion:
// an ADD that began before it may come late. It returns when the endpoint is gone or ctx ends; the deletion goes on.
func (d *deleter) removeEndpoint(ctx context.Context, attachment endpoint.Attachment, cfg endpoint.DeleteConfig, watch *stopwatch) DeleteResult {
	w, swept := d.registry.rememberDelete(attachment, cfg, len(d.steps.list))
	unnamed := d.removeUnnamed(ctx, attachment, cfg)
	var result DeleteResult
	switch {
	case swept: // there was none: whatever is left of the attachment goes
		result = d.deleteWorker(ctx, w, cfg, watch)
		result.Deleted = 0
		result.Errors = append(result.Errors, unnamed...)
		return result
	case w != nil && w.outlives(cfg):
		result.Skipped = 1
	case w != nil:
		w.learn(cfg)
		result = d.deleteWorker(ctx, w, withoutSweep(cfg), watch)
	}
	if !result.isOnRecord() {
		result.addError(d.noteDeletion(attachment, cfg.Began))
	}
	result.Errors = append(result.Errors, unnamed...)
	return result
}

// removeContainer takes down, one after the other, the endpoints of the container that are there now, and remembers that
// the container was deleted: the ADD of another interface may come late. The agent's own endpoints stay.
func (d *deleter) removeContainer(ctx context.Context, containerID string, cfg endpoint.DeleteConfig) (sum DeleteResult) {
	for _, w := range d.registry.rememberContainerDelete(containerID, cfg.Began) {
		if w.isReserved() {
			sum.Skipped++
			continue
		}
		sum.add(d.removeEndpoint(ctx, w.attachment, cfg, startWatch(endpoint.OperationDel)))
	}
	sum.addError(d.noteDeletion(endpoint.Attachment{ContainerID: containerID}, cfg.Began))
	return sum
}

// removeUnnamed takes down what is held under the link of the attachment without being known as it.
func (d *deleter) removeUnnamed(ctx context.Context, a endpoint.Attachment, cfg endpoint.DeleteConfig) []error {
	if w := d.held.unnamedOf(a); w != nil && !w.outlives(cfg) {
		return d.deleteWorker(ctx, w, cfg, startWatch(endpoint.OperationDel)).Errors
	}
	return nil
}

// deleteWorker takes down this very life of an attachment, in its turn.
func (d *deleter) deleteWorker(ctx context.Context, w *worker, cfg endpoint.DeleteConfig, watch *stopwatch) DeleteResult {
	w.end() // a creation that is under way gives up
	done := make(chan DeleteResult, 1)
	queued := w.queue.push(func() { done <- d.takeDown(context.WithoutCancel(ctx), w, cfg, watch) })
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

// takeDown waits for its turn among all endpoints, writes down that the endpoint is to go, and detaches every step. It
// runs in the worker's queue.
func (d *deleter) takeDown(ctx context.Context, w *worker, cfg endpoint.DeleteConfig, watch *stopwatch) DeleteResult {
	if w.isGone() {
		return DeleteResult{}
	}
	if w.ep.State == endpoint.Ready && cfg.Began > 0 && w.outlives(cfg) { // the same ADD has come again, after the deletion began
		return DeleteResult{Skipped: 1}
	}
	_ = watch.lap("queue", nil)
	d.held.remove(w)
	leave := d.enter(w)
	defer leave()
	_ = watch.lap("admission", nil)
	if w.ep.State != endpoint.Disconnecting {
		w.become(outside, endpoint.Disconnecting)
	}
	failed := w.failed.Load() // an address that is not the endpoint's stays another's, whoever asks next
	cfg.NoIPRelease = cfg.NoIPRelease || w.ep.Spec.ExternalIPAM || failed != nil && failed.cfg.NoIPRelease
	_ = watch.lap("ledger-intent", d.putIntent(w, cfg))
	ctx, cancel := context.WithTimeout(ctx, detachTimeout)
	defer cancel()
	errs := d.detach(ctx, w, cfg, watch)
	var givenUp []error
	if cfg.Force {
		givenUp, errs = errs, nil
	}
	unrecorded := d.finish(w, cfg, errs)
	_ = watch.lap("ledger-commit", errors.Join(unrecorded...))
	errs = append(errs, unrecorded...)
	d.listeners.observe(watch.finish(w.ep, errors.Join(errs...)))
	if len(errs) > 0 {
		return DeleteResult{Errors: errs, GivenUp: givenUp}
	}
	if len(givenUp) > 0 {
		d.log.Warn("endpoint deleted by force: parts of it may be left", attrs(w.ep), "error", errors.Join(givenUp...))
	}
	if !cfg.Sweep {
		d.log.Info("endpoint deleted", attrs(w.ep), "duration", watch.trace.Duration)
	}
	return DeleteResult{Deleted: 1, GivenUp: givenUp}
}

// enter waits for the deletion's turn, however long: what is asked for will be done. Those on record need none before the
// agent serves.
func (d *deleter) enter(w *worker) (leave func()) {
	if w.hasDeletionRecord.Load() && d.gate.isStopped() {
		return func() {}
	}
	leave, _ = d.queues.Of(w.ep.Spec).Enter(context.Background(), admission.Deletions, "")
	return leave
}

// putIntent puts a deletion on record before its first effect. When that cannot be written it goes on all the same:
// the worst is that after a crash it begins anew.
func (d *deleter) putIntent(w *worker, cfg endpoint.DeleteConfig) error {
	if w.hasDeletionRecord.Load() {
		return nil // it is, in a file
	}
	err := d.records.putDeleting(w, cfg)
	if err != nil {
		d.log.Warn("deletion is not on record before it begins", attrs(w.ep), "error", err)
	}
	return err
}

// detach runs every step in the reverse order, even when one fails: those after it are told. Each is a phase of watch,
// when there is one.
func (d *deleter) detach(ctx context.Context, w *worker, cfg endpoint.DeleteConfig, watch *stopwatch) []error {
	var errs []error
	for _, step := range slices.Backward(d.steps.list[:w.attached]) {
		err := step.Detach(ctx, w.ep, cfg)
		if watch != nil {
			_ = watch.lap(step.Name(), err)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: detach %s: %w", step.Name(), w.attachment, err))
			cfg.Incomplete = !cfg.Force
		}
	}
	return errs
}

// finish ends a deletion: with a tombstone when every step is detached, else with a record and a timer for the next
// try. It returns what went wrong in doing so: [ErrPending] when the deletion is neither whole nor on record.
func (d *deleter) finish(w *worker, cfg endpoint.DeleteConfig, failed []error) []error {
	if len(failed) > 0 {
		err := d.records.putDeleting(w, cfg)
		d.retryLater(w, cfg, failed)
		switch {
		case err == nil:
			return nil
		case !w.deleting && !w.hasDeletionRecord.Load():
			return []error{fmt.Errorf("%w: %w", ErrPending, err)}
		}
		return []error{err}
	}
	if err := d.records.putTombstone(w, cfg); err != nil {
		failed = []error{err}
		d.retryLater(w, cfg, failed)
		return failed
	}
	w.become(outside, endpoint.Disconnected)
	d.tellDeleted(w, cfg) // before another life of the attachment can begin
	d.registry.remove(w)
	return nil
}

// tellDeleted tells the subscribers, but not of an endpoint whose creation failed: nobody has heard of it.
func (d *deleter) tellDeleted(w *worker, cfg endpoint.DeleteConfig) {
	if !w.told {
		return
	}
	for _, s := range d.listeners.subscribers {
		s.EndpointDeleted(w.ep, cfg)
	}
}

// tellDeletedEarly tells of the end of an endpoint whose deletion has failed and goes on.
func (d *deleter) tellDeletedEarly(w *worker, cfg endpoint.DeleteConfig) {
	w.do(func() {
		if w.isGone() {
			return
		}
		d.tellDeleted(w, cfg)
		w.told = false
		if err := d.records.put(w, ledger.Deleting, cfg); err != nil {
			d.log.Warn("subscribers may hear twice of the end of an endpoint", attrs(w.ep), "error", err)
		}
	})
}

// retryLater tries a deletion again after a while that doubles with each failure.
func (d *deleter) retryLater(w *worker, cfg endpoint.DeleteConfig, failed []error) {
	w.failures++
	wait := min(d.retryInterval<<min(w.failures-1, 16), maxRetryInterval)
	w.failed.Store(&failedDeletion{w.failures, errors.Join(failed...), cfg})
	d.log.Warn("deletion is not whole, trying again", attrs(w.ep), "after", wait, "error", errors.Join(failed...))
	if w.retry != nil {
		w.retry.Stop()
	}
	try := w.failures
	w.retry = time.AfterFunc(wait, func() {
		w.queue.push(func() {
			if w.failures == try { // nobody else has tried since
				d.takeDown(context.Background(), w, cfg, startWatch(endpoint.OperationDel))
			}
		})
	})
}

// undo takes down an endpoint that could not be brought up. Its caller is waiting, or gone, so it has a time of its
// own. It runs in the worker's queue.
func (d *deleter) undo(w *worker, watch *stopwatch) {
	ctx, cancel := context.WithTimeout(context.Background(), undoTimeout)
	defer cancel()
	w.become(outside, endpoint.Disconnecting)
	errs := d.detach(ctx, w, endpoint.DeleteConfig{}, nil)
	errs = append(errs, d.finish(w, endpoint.DeleteConfig{}, errs)...)
	_ = watch.lap("undo", errors.Join(errs...))
}

// noteDeletion puts a deletion on record of which the ledger would know nothing else. When that cannot be written it is a
// success all the same, and known as long as this agent lives: a full disk is no reason to keep a pod from going.
func (d *deleter) noteDeletion(a endpoint.Attachment, began time.Duration) error {
	err := d.records.noteDeletion(a, began)
	if err != nil && d.gate.isStopped() {
		return fmt.Errorf("delete endpoint %s: %w", a, ErrStopped)
	}
	if err != nil {
		d.log.Warn("deletion is remembered until the agent ends, and not on record", "container", a.ContainerID,
			"ifname", a.IfName, "error", err)
	}
	return nil
}

// withoutSweep is the deletion of an endpoint that is known.
func withoutSweep(cfg endpoint.DeleteConfig) endpoint.DeleteConfig {
	cfg.Sweep, cfg.Network, cfg.NetNS, cfg.IPAM = false, "", "", endpoint.IPAMPlugin{}
	return cfg
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

// isOnRecord reports whether the deletion is on record for sure: with a tombstone, or with what is to be tried again.
func (r DeleteResult) isOnRecord() bool { return r.Deleted > 0 || len(r.Errors) > 0 }

func (r *DeleteResult) add(other DeleteResult) {
	r.Deleted += other.Deleted
	r.Skipped += other.Skipped
	r.Errors = append(r.Errors, other.Errors...)
	r.GivenUp = append(r.GivenUp, other.GivenUp...)
}

func (r *DeleteResult) addError(err error) {
	if err != nil {
		r.Errors = append(r.Errors, err)
	}
}
