package endpointmanager

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"porin.dev/porin/internal/fault"
)

// undoTimeout bounds the undo of an ADD, which runs when its caller's time is over.
const undoTimeout = 10 * time.Second

// Create implements [Manager].
func (m *manager) Create(ctx context.Context, spec Spec, namespace *Namespace) (Endpoint, error) {
	if namespace != nil {
		defer namespace.Close() // bringUp returns when nothing of the creation runs any more
		spec.NetNSCookie = namespace.Cookie()
	}
	if err := spec.Validate(); err != nil {
		return Endpoint{}, fmt.Errorf("create endpoint: %w", err)
	}
	spec.Began = m.since(spec.Began)
	ep, err := m.bringUp(ctx, spec, namespace)
	if err != nil {
		return Endpoint{}, fmt.Errorf("create endpoint %s: %w", spec.Attachment, err)
	}
	return ep, nil
}

// bringUp takes its turn after the life that the attachment has now, and ends that unless it is what spec asks for, and
// after that of an older container in the same place of the pod. A creation that has begun is waited for, as it ends soon
// after ctx does.
func (m *manager) bringUp(ctx context.Context, spec Spec, namespace *Namespace) (Endpoint, error) {
	defer m.announce(spec.Attachment)()
	type outcome struct {
		ep  Endpoint
		err error
	}
	watch, done := startWatchSince(Add, m.boot()-spec.Began), make(chan outcome, 1)
	creation := func(w *worker) {
		ep, err := m.create(ctx, w, namespace, watch)
		trace := watch.finish(ep, err)
		m.observe(trace)
		done <- outcome{ep, trace.Err}
	}
	if errs := m.endUnnamed(ctx, spec.Attachment, DeleteConfig{Began: spec.Began}); len(errs) > 0 {
		return Endpoint{}, fault.Wrap(fault.Unavailable, fmt.Errorf("take down the link it had before: %w", errs[0]))
	}
	for waited := false; ; waited = true {
		if waited {
			m.turn("resume", spec.Attachment)
		}
		w, elders, fresh, err := m.claim(spec, creation)
		if err != nil {
			return Endpoint{}, err
		}
		if fresh {
			created := <-done
			return created.ep, created.err
		}
		if len(elders) > 0 {
			if err := m.supersede(ctx, spec, elders); err != nil {
				return Endpoint{}, err
			}
			continue
		}
		ep, gone, err := await(ctx, w)
		switch {
		case err != nil:
			return Endpoint{}, err
		case gone:
			continue
		case ep.State == Ready && ep.Spec.same(spec):
			renewed, ok, err := m.renew(ctx, w, spec)
			if ok || err != nil {
				return renewed, err
			}
			continue
		}
		if err := m.makeRoom(ctx, w, spec); err != nil {
			return Endpoint{}, err
		}
	}
}

// announce lets others know of a creation until it is over.
func (m *manager) announce(a Attachment) (over func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.coming[a]++
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.coming[a]--; m.coming[a] == 0 {
			delete(m.coming, a)
		}
	}
}

// Coming implements [Manager].
func (m *manager) Coming() []Attachment {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Collect(maps.Keys(m.coming))
}

// await returns the endpoint as it is once the events before this call have run, and whether it is gone by then.
func await(ctx context.Context, w *worker) (ep Endpoint, gone bool, err error) {
	seen := make(chan Endpoint, 1)
	if !w.queue.push(func() { seen <- w.ep }) {
		return Endpoint{}, true, w.drained(ctx)
	}
	select {
	case ep := <-seen:
		return ep, w.isGone(), nil
	case <-ctx.Done():
		return Endpoint{}, false, ctx.Err()
	}
}

// renew makes the endpoint that is there the answer to a repeated ADD: a DEL that began before this ADD must not take it
// down. The new start time is on disk when renew returns. It is not ok when the endpoint has changed meanwhile.
func (m *manager) renew(ctx context.Context, w *worker, spec Spec) (ep Endpoint, ok bool, err error) {
	type outcome struct {
		ep  Endpoint
		ok  bool
		err error
	}
	done := make(chan outcome, 1)
	queued := w.queue.push(func() {
		if w.ep.State != Ready || !w.ep.Spec.same(spec) {
			done <- outcome{}
			return
		}
		renewed, err := m.renewInQueue(ctx, w, spec)
		done <- outcome{renewed, err == nil, err}
	})
	if !queued {
		return Endpoint{}, false, w.drained(ctx)
	}
	select {
	case o := <-done:
		return o.ep, o.ok, o.err
	case <-ctx.Done():
		return Endpoint{}, false, ctx.Err()
	}
}

// renewInQueue gives the endpoint the later start time: on disk, with the steps that keep it, and in the table.
func (m *manager) renewInQueue(ctx context.Context, w *worker, spec Spec) (Endpoint, error) {
	renewed := w.ep
	renewed.Spec.Began, renewed.Renewed = max(renewed.Spec.Began, spec.Began), true
	rec := m.recordOf(w, committed, DeleteConfig{})
	rec.Endpoint = renewed
	if err := m.ledger.put(rec); err != nil {
		return Endpoint{}, err
	}
	for _, step := range m.steps {
		if r, ok := step.(Renewer); ok {
			if err := r.Renew(ctx, renewed); err != nil {
				return Endpoint{}, fmt.Errorf("%s: %w", step.Name(), err)
			}
		}
	}
	if err := m.table.put(renewed); err != nil {
		return Endpoint{}, err
	}
	w.ep = renewed
	w.began.Store(int64(renewed.Spec.Began))
	return renewed, nil
}

// makeRoom takes down what an attachment had before, for its next life: unless that has begun later than spec did, which the
// next claim finds.
func (m *manager) makeRoom(ctx context.Context, w *worker, spec Spec) error {
	result := m.deleteWorker(ctx, w, DeleteConfig{Began: spec.Began}, startWatch(Del))
	if len(result.Errors) > 0 { // which the agent goes on trying
		return fault.Wrap(fault.Unavailable, fmt.Errorf("take down the endpoint it had before: %w", result.Errors[0]))
	}
	return nil
}

// create runs in the worker's queue.
func (m *manager) create(ctx context.Context, w *worker, namespace *Namespace, watch *stopwatch) (_ Endpoint, err error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	defer context.AfterFunc(w.life, stop)()

	w.ep.Created = wallTime()
	_ = watch.lap("queue", nil)
	m.become(w, outside, Waiting)
	leave, err := m.admissions.of(w.spec).enter(ctx, m.cfg.laneOf(w.spec.Pod), w.spec.Pod.Namespace)
	if watch.lap("admission", err) != nil {
		err = w.whyEnded(err)
		m.abandon(w)
		return w.ep, err
	}
	defer leave()
	if err := watch.lap("ledger-intent", m.ledger.put(m.recordOf(w, intent, DeleteConfig{}))); err != nil {
		m.abandon(w)
		return w.ep, err
	}
	if err := m.assemble(ctx, w, namespace, watch); err != nil {
		err = w.whyEnded(err)
		m.undo(w, watch)
		return w.ep, err
	}
	m.become(w, builder, Ready)
	m.tellCreated(w)
	m.log.Info("endpoint created", attrs(w.ep), "duration", watch.trace.Duration)
	return w.ep, nil
}

// assemble does what is undone when it fails.
func (m *manager) assemble(ctx context.Context, w *worker, namespace *Namespace, watch *stopwatch) error {
	m.become(w, outside, Queued)
	m.become(w, builder, Regenerating)
	if err := m.attach(ctx, w, namespace, watch); err != nil {
		return err
	}
	if err := watch.lap("ledger-commit", m.ledger.put(m.recordOf(w, committed, DeleteConfig{}))); err != nil {
		return err
	}
	return ctx.Err() // an answer that nobody waits for would be an endpoint that nobody deletes
}

// abandon ends a life that has had no effect.
func (m *manager) abandon(w *worker) {
	m.become(w, outside, Invalid)
	m.retire(w)
}

// whyEnded says of a creation that failed because it was deleted that it was. It is asked before the undo.
func (w *worker) whyEnded(err error) error {
	if w.life.Err() != nil {
		return fmt.Errorf("%w: %w", ErrDeleted, err)
	}
	return err
}

// attach runs the steps in order, as far as they succeed.
func (m *manager) attach(ctx context.Context, w *worker, namespace *Namespace, watch *stopwatch) error {
	for _, step := range m.steps {
		w.ran++ // also what fails is detached: its own way back may have failed as well
		ep, err := step.Attach(ctx, w.ep, namespace)
		if err == nil {
			err = m.take(w, ep)
		}
		if err == nil {
			err = ctx.Err() // nobody waits for the rest
		}
		if err := watch.lap(step.Name(), err); err != nil {
			return fmt.Errorf("%s: %w", step.Name(), err)
		}
	}
	return ctx.Err()
}

// take shows the endpoint with what a step has added, unless another one has its addresses.
func (m *manager) take(w *worker, added Endpoint) error {
	ep := w.ep
	ep.Addresses, ep.Pool, ep.IPAMResult = added.Addresses, added.Pool, added.IPAMResult // all that a step may add
	ep.LinkKind, ep.Host, ep.Container, ep.MTU = added.LinkKind, added.Host, added.Container, added.MTU
	if ep == w.ep {
		return nil
	}
	if err := m.table.put(ep); err != nil {
		return err
	}
	w.ep = ep
	return nil
}

// undo takes down an endpoint that could not be brought up. Its caller is waiting, or gone, so it has a time of its
// own.
func (m *manager) undo(w *worker, watch *stopwatch) {
	ctx, cancel := context.WithTimeout(context.Background(), undoTimeout)
	defer cancel()
	m.become(w, outside, Disconnecting)
	errs := m.detach(ctx, w, DeleteConfig{}, nil)
	errs = append(errs, m.settle(w, DeleteConfig{}, errs)...)
	_ = watch.lap("undo", errors.Join(errs...))
}
