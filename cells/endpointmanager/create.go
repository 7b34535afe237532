package endpointmanager

import (
	"context"
	"fmt"
	"time"
)

// undoTimeout bounds the undo of an ADD, which runs when its caller's time is over.
const undoTimeout = 10 * time.Second

// Create implements [Manager].
func (m *manager) Create(ctx context.Context, spec Spec) (Endpoint, error) {
	if err := spec.Validate(); err != nil {
		return Endpoint{}, fmt.Errorf("create endpoint: %w", err)
	}
	watch := startWatch(Add, spec.Began)
	for {
		w, fresh, err := m.claim(spec)
		if err != nil {
			return Endpoint{}, fmt.Errorf("create endpoint %s: %w", spec.Attachment, err)
		}
		if fresh {
			return m.build(ctx, w, watch)
		}
		ep, gone, err := await(ctx, w)
		if err == nil && !gone && ep.State == Ready && ep.Spec.same(spec) {
			return ep, nil
		}
		if err == nil && !gone {
			err = m.makeRoom(ctx, w)
		}
		if err != nil {
			return Endpoint{}, fmt.Errorf("create endpoint %s: %w", spec.Attachment, err)
		}
	}
}

// await returns the endpoint as it is once the events before this call have run, and whether it is gone by then.
func await(ctx context.Context, w *worker) (ep Endpoint, gone bool, err error) {
	seen := make(chan Endpoint, 1)
	if !w.queue.push(func() { seen <- w.ep }) {
		<-w.queue.done
		return Endpoint{}, true, ctx.Err()
	}
	select {
	case ep := <-seen:
		return ep, w.isGone(), nil
	case <-ctx.Done():
		return Endpoint{}, false, ctx.Err()
	}
}

// makeRoom takes down what an attachment had before, for its next life.
func (m *manager) makeRoom(ctx context.Context, w *worker) error {
	result := m.deleteWorker(ctx, w, DeleteConfig{})
	if len(result.Errors) > 0 {
		return fmt.Errorf("take down the endpoint it had before: %w", result.Errors[0])
	}
	return nil
}

// build runs the creation in the endpoint's queue and waits for its end, which comes soon after the end of ctx.
func (m *manager) build(ctx context.Context, w *worker, watch *stopwatch) (ep Endpoint, err error) {
	done := make(chan struct{})
	queued := w.queue.push(func() {
		defer close(done)
		ep, err = m.create(ctx, w, watch)
		if err != nil {
			err = fmt.Errorf("create endpoint %s: %w", w.attachment, err)
		}
		m.observe(watch.finish(ep, err))
	})
	if !queued {
		return Endpoint{}, fmt.Errorf("create endpoint %s: %w", w.attachment, ErrStopped)
	}
	<-done
	return ep, err
}

// create runs in the worker's queue.
func (m *manager) create(ctx context.Context, w *worker, watch *stopwatch) (_ Endpoint, err error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	defer context.AfterFunc(w.life, stop)()

	w.ep.Created = time.Now()
	_ = watch.lap("queue", nil)
	m.become(w, outside, Waiting)
	if err := watch.lap("ledger-intent", m.ledger.put(m.recordOf(w, intent, DeleteConfig{}))); err != nil {
		m.become(w, outside, Invalid)
		m.retire(w)
		return w.ep, err
	}
	m.become(w, outside, Queued)
	m.become(w, builder, Regenerating)
	err = m.attach(ctx, w, watch)
	if err == nil {
		err = watch.lap("ledger-commit", m.ledger.put(m.recordOf(w, committed, DeleteConfig{})))
	}
	if err != nil {
		m.undo(w, watch)
		return w.ep, err
	}
	m.become(w, builder, Ready)
	m.created(w)
	m.log.Info("endpoint created", attrs(w.ep), "duration", watch.trace.Duration)
	return w.ep, nil
}

// attach runs the steps in order, as far as they succeed.
func (m *manager) attach(ctx context.Context, w *worker, watch *stopwatch) error {
	for _, step := range m.steps {
		ep, err := step.Attach(ctx, w.ep)
		if err == nil {
			w.ran++
			w.ep.Addresses = ep.Addresses // all that a step may add
			err = m.table.put(w.ep)
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

// undo takes down an endpoint that could not be brought up. Its caller is waiting, or gone, so it has a time of its
// own.
func (m *manager) undo(w *worker, watch *stopwatch) {
	ctx, cancel := context.WithTimeout(context.Background(), undoTimeout)
	defer cancel()
	m.become(w, outside, Disconnecting)
	errs := m.detach(ctx, w, DeleteConfig{}, nil)
	errs = append(errs, m.settle(w, DeleteConfig{}, errs)...)
	_ = watch.lap("undo", joinErrors(errs))
}
