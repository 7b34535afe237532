package endpointmanager

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/endpointmanager/admission"
	"porin.dev/porin/cells/endpointmanager/ledger"
	"porin.dev/porin/internal/fault"
)

const (
	// undoTimeout bounds the undo of an ADD. The undo runs when the time of the ADD's caller is over.
	undoTimeout = 10 * time.Second
	// detachTimeout bounds one try of a removal. It is tried again.
	detachTimeout = 30 * time.Second
	// maxRetryInterval bounds the doubling of Config.RetryInterval.
	maxRetryInterval = time.Minute
)

// reconcile makes the endpoint what its goal says: whole, or gone. No other function runs steps of an endpoint, writes
// its record or changes its state. It runs in the endpoint's goroutine.
func (e *managed) reconcile(msg *message) (a answer) {
	if msg.verb == verbAnnounce {
		e.announce(msg.config)
		return answer{}
	}

	// 1. The goal is a whole endpoint.
	isUndo := false
	if e.removal == nil {
		ctx, stop := context.WithCancel(msg.ctx)
		defer stop()
		if msg.verb == verbCreate {
			defer context.AfterFunc(e.life, stop)() // a removal ends a creation, and nothing else
		}
		leave, err := e.enter(ctx, msg)
		defer leave() // an undo keeps the place of its creation
		if err == nil {
			a = e.bringUp(ctx, msg)
			err = a.err
		}
		if msg.verb != verbCreate {
			return a // after a failure the endpoint stays as it was
		}
		if a.ep, a.err = e.ep, err; err != nil && e.life.Err() != nil { // its deletion has ended it
			a.err = fmt.Errorf("%w: %w", ErrDeleted, err)
		}
		if err == nil || e.phase == "" {
			if err != nil { // no step has run, and there is no record
				e.become(outside, endpoint.Invalid)
				e.m.registry.remove(e)
			}
			a.err = e.observe(msg.watch, a.err)
			return a
		}
		e.setGone(endpoint.DeleteConfig{})
		isUndo = true
	}

	// 2. The goal is that nothing is left. A removal goes on whatever its caller does.
	config := e.removal.config
	timeout, lap := undoTimeout, func(string, error) {} // an undo is one phase
	if !isUndo {
		timeout, lap = detachTimeout, func(phase string, err error) { _ = msg.watch.lap(phase, err) }
		config.NoIPRelease = config.NoIPRelease || e.ep.Spec.ExternalIPAM
		lap("queue", nil)
		e.m.registry.withLock(func() { e.held = nil })
		defer e.enterRemoval()()
		lap("admission", nil)
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	if e.ep.State != endpoint.Disconnecting {
		e.become(outside, endpoint.Disconnecting)
	}
	if !isUndo {
		lap("ledger-intent", e.recordRemoval(config))
	}
	var failed, givenUp, unrecorded []error
	for _, step := range slices.Backward(e.m.steps[:e.attached]) {
		err := step.Detach(ctx, e.ep, config)
		lap(step.Name(), err)
		if err != nil {
			failed = append(failed, fmt.Errorf("%s: detach %s: %w", step.Name(), e.attachment, err))
			config.Incomplete = !config.Force
		}
	}
	config.Incomplete = false

	// 3. Record the outcome, then tell the subscribers, then let the next life begin.
	phase := ledger.Tombstone
	if config.Force {
		failed, givenUp = nil, failed
	} else if len(failed) > 0 {
		phase = ledger.Deleting
	}
	if err := e.record(phase, config); err != nil {
		unrecorded = []error{e.mayBePending(phase, err)}
	}
	errs := slices.Concat(failed, unrecorded)
	if len(errs) > 0 {
		e.retryLater(config, errs)
	} else {
		e.become(outside, endpoint.Disconnected)
		e.tellDeleted(config)
		e.m.registry.remove(e)
	}
	if isUndo {
		_ = msg.watch.lap("undo", errors.Join(errs...))
		a.err = e.observe(msg.watch, a.err)
		return a
	}
	lap("ledger-commit", errors.Join(unrecorded...))
	_ = e.observe(msg.watch, errors.Join(errs...))
	if len(errs) > 0 {
		return answer{DeleteResult: DeleteResult{Errors: errs, GivenUp: givenUp}}
	}
	if len(givenUp) > 0 {
		e.m.log.Warn("endpoint deleted by force: parts of it may be left", attrs(e.ep), "error", errors.Join(givenUp...))
	}
	if !e.swept {
		e.m.log.Info("endpoint deleted", attrs(e.ep), "duration", msg.watch.trace.Duration)
	}
	return answer{DeleteResult: DeleteResult{Deleted: 1, GivenUp: givenUp}}
}

// bringUp runs the steps that the message needs, and records what they made.
func (e *managed) bringUp(ctx context.Context, msg *message) answer {
	switch msg.verb {
	case verbCreate:
		if err := msg.watch.lap("ledger-intent", e.record(ledger.Intent, endpoint.DeleteConfig{})); err != nil {
			return answer{err: err}
		}
		e.become(outside, endpoint.Queued)
		e.become(builder, endpoint.Regenerating)
		for _, step := range e.m.steps {
			e.attached++ // a step that fails is detached, too
			added, err := step.Attach(ctx, e.ep, msg.namespace)
			if err == nil {
				err = e.show(withAdded(e.ep, added))
			}
			if err == nil {
				err = ctx.Err() // the caller has left
			}
			if msg.watch.lap(step.Name(), err) != nil {
				return answer{err: fmt.Errorf("%s: %w", step.Name(), err)}
			}
		}
		if err := msg.watch.lap("ledger-commit", e.record(ledger.Committed, endpoint.DeleteConfig{})); err != nil {
			return answer{err: err}
		}
		if err := ctx.Err(); err != nil {
			return answer{err: err} // the caller has left, and would never delete the endpoint
		}
		e.become(builder, endpoint.Ready)
		e.tell(endpoint.Subscriber.EndpointCreated)
		e.m.log.Info("endpoint created", attrs(e.ep), "duration", msg.watch.trace.Duration)

	case verbAdopt:
		e.become(builder, endpoint.Regenerating)
		watch := startWatch(endpoint.OperationRestore)
		replaced, err := e.restoreSteps(ctx, watch)
		_ = e.observe(watch, err)
		if err != nil {
			e.become(builder, endpoint.Restoring)
			return answer{replaced: replaced, err: err}
		}
		e.become(builder, endpoint.Ready)
		e.tell(endpoint.Subscriber.EndpointRestored)
		return answer{ep: e.ep, replaced: replaced}

	case verbRepair:
		watch := startWatch(endpoint.OperationRepair)
		replaced, err := e.restoreSteps(ctx, watch)
		err = errors.Join(err, watch.lap("ledger-commit", e.record(ledger.Committed, endpoint.DeleteConfig{})))
		_ = e.observe(watch, err)
		if err == nil && len(replaced) > 0 {
			e.m.log.Info("endpoint repaired", attrs(e.ep), "replaced", replaced)
		}
		return answer{ep: e.ep, replaced: replaced, err: err}

	case verbRenew:
		changed := e.ep
		changed.Spec.Began, changed.Renewed = max(changed.Spec.Began, msg.spec.Began), true
		return e.change(ctx, changed, msg.spec.Metadata)

	case verbUpdate:
		return e.change(ctx, e.ep, msg.metadata)

	case verbHold:
		for _, step := range e.m.steps {
			if holder, ok := step.(endpoint.Occupier); ok {
				if err := holder.Occupy(e.ep); err != nil {
					e.m.log.Warn("another endpoint has a part of a held attachment", "step", step.Name(), attrs(e.ep), "error", err)
				}
			}
		}
		e.become(outside, endpoint.Held)
		e.m.registry.withLock(func() { e.held = &Held{Endpoint: e.ep, Reason: msg.reason, Detail: msg.detail} })
		if msg.reason == RestoreFailed { // the others are on record already
			rec := e.recordOf(ledger.Held, endpoint.DeleteConfig{})
			rec.Held = string(msg.reason)
			if err := e.m.ledger.Put(rec); err != nil {
				e.m.log.Warn("hold is not on record: the next start decides again", attrs(e.ep), "error", err)
			}
		}
		e.m.log.Warn("attachment is held", attrs(e.ep), "reason", msg.reason, "detail", msg.detail)
	}
	return answer{ep: e.ep}
}

// enter waits for the turn of a creation among all endpoints, in its caller's time.
func (e *managed) enter(ctx context.Context, msg *message) (leave func(), err error) {
	if msg.verb != verbCreate {
		return func() {}, nil
	}
	e.ep.Created = wallTime()
	_ = msg.watch.lap("queue", nil)
	e.become(outside, endpoint.Waiting)
	leave, err = e.m.queues.Of(e.spec).Enter(ctx, e.m.cfg.laneOf(e.spec.Pod), e.spec.Pod.Namespace)
	if msg.watch.lap("admission", err) != nil {
		return func() {}, err
	}
	return leave, nil
}

// laneOf is the lane of a creation.
func (c Config) laneOf(pod endpoint.Pod) admission.Lane {
	if slices.Contains(c.CriticalNamespaces, pod.Namespace) && pod.Namespace != "" ||
		slices.Contains(c.CriticalPriorityClasses, pod.PriorityClass) && pod.PriorityClass != "" {
		return admission.Critical
	}
	return admission.Fair
}

// enterRemoval waits for the turn of a removal, however long. A deletion record needs no turn before the agent serves.
func (e *managed) enterRemoval() (leave func()) {
	isFirst := false
	e.m.registry.withLock(func() { isFirst = e.named && e.m.registry.stopped })
	if isFirst {
		return func() {}
	}
	leave, _ = e.m.queues.Of(e.ep.Spec).Enter(context.Background(), admission.Deletions, "")
	return leave
}

// recordRemoval puts a removal on record before its first effect. A failure does not stop the removal: after a crash it
// begins again at the worst.
func (e *managed) recordRemoval(config endpoint.DeleteConfig) error {
	if e.hasDeletionRecord() {
		return nil // it is on record in a file
	}
	err := e.record(ledger.Deleting, config)
	if err != nil {
		e.m.log.Warn("deletion is not on record before it begins", attrs(e.ep), "error", err)
	}
	return err
}

// mayBePending makes [ErrPending] of a failed write, when a removal is neither done nor on record: its caller has to
// ask again.
func (e *managed) mayBePending(phase ledger.Phase, err error) error {
	if phase == ledger.Deleting && e.phase != ledger.Deleting && !e.hasDeletionRecord() {
		return fmt.Errorf("%w: %w", ErrPending, err)
	}
	return err
}

func (e *managed) hasDeletionRecord() (named bool) {
	e.m.registry.withLock(func() { named = e.named })
	return named
}

// withAdded is the endpoint with everything that a step may add.
func withAdded(ep, added endpoint.Endpoint) endpoint.Endpoint {
	ep.Addresses, ep.Pool, ep.IPAMResult = added.Addresses, added.Pool, added.IPAMResult
	ep.Host, ep.Container, ep.MTU = added.Host, added.Container, added.MTU
	return ep
}

// change makes changed the endpoint, with other metadata: the steps follow, the record is written, and the table shows
// it. When the steps or the record fail, both stay as they were.
func (e *managed) change(ctx context.Context, changed endpoint.Endpoint, metadata string) answer {
	before := e.ep
	var err error
	if changed.Metadata, err = endpoint.ChangeMetadata(before.Metadata, metadata); err != nil {
		return answer{err: err}
	}
	if changed == before {
		return answer{ep: e.ep}
	}
	updated, renewed := changed.Metadata != before.Metadata, changed.Spec != before.Spec
	follow := func(ctx context.Context, ep endpoint.Endpoint) (err error) { // goes on after a failure, for the undo
		if updated {
			err = each(e.m.steps, func(u endpoint.Updater) error { return u.Update(ctx, ep) })
		}
		if renewed {
			err = errors.Join(err, each(e.m.steps, func(r endpoint.Renewer) error { return r.Renew(ctx, ep) }))
		}
		return err
	}
	err = follow(ctx, changed)
	if err == nil {
		rec := e.recordOf(ledger.Committed, endpoint.DeleteConfig{})
		rec.Endpoint = changed
		err = e.m.ledger.Put(rec)
	}
	if err == nil {
		err = e.show(changed)
	}
	if err != nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
		defer cancel()
		if undoErr := follow(ctx, before); undoErr != nil {
			err = errors.Join(err, fmt.Errorf("undo: %w", undoErr))
		}
		return answer{err: fault.Wrap(fault.KindOf(err), err)}
	}
	e.m.registry.withLock(func() { e.began = changed.Spec.Began })
	if updated {
		e.tell(endpoint.Subscriber.EndpointUpdated)
		e.m.log.Info("labels of an endpoint changed", attrs(e.ep))
	}
	return answer{ep: e.ep}
}

// restoreSteps runs the Restore of the steps in order, as far as they succeed.
func (e *managed) restoreSteps(ctx context.Context, watch *stopwatch) (replaced []string, err error) {
	for _, step := range e.m.steps {
		names, err := step.Restore(ctx, e.ep)
		replaced = append(replaced, names...)
		if watch.lap(step.Name(), err) != nil {
			return replaced, fmt.Errorf("restore endpoint %s: %s: %w", e.attachment, step.Name(), err)
		}
	}
	return replaced, nil
}

// each calls do for each step of the kind T, as far as it succeeds.
func each[T any](steps endpoint.Steps, do func(T) error) error {
	for _, step := range steps {
		if s, ok := step.(T); ok {
			if err := do(s); err != nil {
				return fmt.Errorf("%s: %w", step.Name(), err)
			}
		}
	}
	return nil
}

// retryLater sets the timer for the next try of a removal. The wait doubles with each failure.
func (e *managed) retryLater(config endpoint.DeleteConfig, errs []error) {
	e.removal.config = config
	e.removal.failures++
	wait := min(e.m.cfg.RetryInterval<<min(e.removal.failures-1, 16), maxRetryInterval)
	e.removal.retry = time.NewTimer(wait)
	failed := &failedDeletion{e.removal.failures, errors.Join(errs...), config}
	e.m.registry.withLock(func() { e.failed = failed })
	e.m.log.Warn("deletion is not whole, trying again", attrs(e.ep), "after", wait, "error", failed.err)
}
