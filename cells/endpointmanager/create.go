package endpointmanager

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/endpointmanager/admission"
	"porin.dev/porin/cells/endpointmanager/ledger"
	"porin.dev/porin/internal/fault"
)

// creator makes endpoints. From the call to a ready endpoint it goes
//
//	Create -> bringUp -> (queue of the endpoint) create -> attach: each Step -> EndpointCreated
//
// A failure is undone by [deleter.undo].
type creator struct {
	cfg       Config
	log       *slog.Logger
	clock     *clock
	registry  *registry
	creations *creations
	records   *recorder
	steps     *stepRunner
	listeners *listeners
	queues    *admission.Queues
	deleter   *deleter
	updater   *updater
	sources   []PodSource

	// afterWait is called when a creation that had to wait for another life of its attachment goes on: a simulation
	// decides by it which of several does so first.
	afterWait func(endpoint.Spec)
}

// Create implements [Manager].
func (c *creator) Create(ctx context.Context, spec endpoint.Spec, namespace *endpoint.Namespace) (endpoint.Endpoint, error) {
	if namespace != nil {
		defer namespace.Close() // bringUp returns when nothing of the creation runs any more
		spec.NetNSCookie = namespace.Cookie()
	}
	if err := spec.Validate(); err != nil {
		return endpoint.Endpoint{}, fmt.Errorf("create endpoint: %w", err)
	}
	spec.Began = c.clock.startTime(spec.Began)
	spec, err := withMetadata(ctx, c.sources, spec)
	if err != nil {
		return endpoint.Endpoint{}, fmt.Errorf("create endpoint %s: %w", spec.Attachment, err)
	}
	ep, err := c.bringUp(ctx, spec, namespace)
	if err != nil {
		return endpoint.Endpoint{}, fmt.Errorf("create endpoint %s: %w", spec.Attachment, err)
	}
	return ep, nil
}

// Creating implements [Manager].
func (c *creator) Creating() []endpoint.Attachment { return c.creations.list() }

// created is the outcome of a creation.
type created struct {
	ep  endpoint.Endpoint
	err error
}

// bringUp takes its turn after the life that the attachment has now, and ends that unless it is what spec asks for, and
// after that of an older container in the same place of the pod. A creation that has begun is waited for, as it ends soon
// after ctx does.
func (c *creator) bringUp(ctx context.Context, spec endpoint.Spec, namespace *endpoint.Namespace) (endpoint.Endpoint, error) {
	defer c.creations.begin(spec.Attachment)()
	watch, done := startWatchSince(endpoint.OperationAdd, c.clock.boot()-spec.Began), make(chan created, 1)
	creation := func(w *worker) {
		ep, err := c.create(ctx, w, namespace, watch)
		trace := watch.finish(ep, err)
		c.listeners.observe(trace)
		done <- created{ep, trace.Err}
	}
	if errs := c.deleter.removeUnnamed(ctx, spec.Attachment, endpoint.DeleteConfig{Began: spec.Began}); len(errs) > 0 {
		return endpoint.Endpoint{}, fault.Wrap(fault.Unavailable, fmt.Errorf("take down the link it had before: %w", errs[0]))
	}
	for waited := false; ; waited = true {
		if waited {
			c.afterWait(spec)
		}
		w, older, isNew, err := c.registry.claim(spec, creation)
		if err != nil {
			return endpoint.Endpoint{}, err
		}
		if isNew {
			created := <-done
			return created.ep, created.err
		}
		if len(older) > 0 {
			if err := c.supersede(ctx, spec, older); err != nil {
				return endpoint.Endpoint{}, err
			}
			continue
		}
		ep, gone, err := await(ctx, w)
		switch {
		case err != nil:
			return endpoint.Endpoint{}, err
		case gone:
			continue
		}
		c.afterWait(spec)
		if ep.State == endpoint.Ready && ep.Spec.SameRequest(spec) {
			renewed, ok, err := c.renew(ctx, w, spec)
			if ok || err != nil {
				return renewed, err
			}
			continue
		}
		if err := c.replace(ctx, w, spec); err != nil {
			return endpoint.Endpoint{}, err
		}
	}
}

// create runs in the worker's queue. It waits for its turn among all endpoints, writes down what it is about to do,
// runs the steps, and writes down that the endpoint is whole.
func (c *creator) create(ctx context.Context, w *worker, namespace *endpoint.Namespace, watch *stopwatch) (_ endpoint.Endpoint, err error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	defer context.AfterFunc(w.life, stop)()

	w.ep.Created = wallTime()
	_ = watch.lap("queue", nil)
	w.become(outside, endpoint.Waiting)
	leave, err := c.queues.Of(w.spec).Enter(ctx, c.cfg.laneOf(w.spec.Pod), w.spec.Pod.Namespace)
	if watch.lap("admission", err) != nil {
		err = whyEnded(w, err)
		c.abandon(w)
		return w.ep, err
	}
	defer leave()
	if err := watch.lap("ledger-intent", c.records.put(w, ledger.Intent, endpoint.DeleteConfig{})); err != nil {
		c.abandon(w)
		return w.ep, err
	}
	if err := c.attach(ctx, w, namespace, watch); err != nil {
		err = whyEnded(w, err)
		c.deleter.undo(w, watch)
		return w.ep, err
	}
	w.become(builder, endpoint.Ready)
	c.listeners.created(w)
	c.log.Info("endpoint created", attrs(w.ep), "duration", watch.trace.Duration)
	return w.ep, nil
}

// attach does what is undone when it fails.
func (c *creator) attach(ctx context.Context, w *worker, namespace *endpoint.Namespace, watch *stopwatch) error {
	w.become(outside, endpoint.Queued)
	w.become(builder, endpoint.Regenerating)
	if err := c.steps.attach(ctx, w, namespace, watch); err != nil {
		return err
	}
	if err := watch.lap("ledger-commit", c.records.put(w, ledger.Committed, endpoint.DeleteConfig{})); err != nil {
		return err
	}
	return ctx.Err() // an answer that nobody waits for would be an endpoint that nobody deletes
}

// abandon ends a life that has had no effect.
func (c *creator) abandon(w *worker) {
	w.become(outside, endpoint.Invalid)
	c.registry.remove(w)
}

// whyEnded says of a creation that failed because it was deleted that it was. It is asked before the undo.
func whyEnded(w *worker, err error) error {
	if w.life.Err() != nil {
		return fmt.Errorf("%w: %w", ErrDeleted, err)
	}
	return err
}

// renew makes the endpoint that is there the answer to a repeated ADD: a DEL that began before this ADD must not take it
// down. The new start time is on disk when renew returns. It is not ok when the endpoint has changed meanwhile.
func (c *creator) renew(ctx context.Context, w *worker, spec endpoint.Spec) (ep endpoint.Endpoint, ok bool, err error) {
	type outcome struct {
		ep  endpoint.Endpoint
		ok  bool
		err error
	}
	done := make(chan outcome, 1)
	queued := w.queue.push(func() {
		if w.ep.State != endpoint.Ready || !w.ep.Spec.SameRequest(spec) {
			done <- outcome{}
			return
		}
		renewed, err := c.renewInQueue(ctx, w, spec)
		done <- outcome{renewed, err == nil, err}
	})
	if !queued {
		return endpoint.Endpoint{}, false, w.drained(ctx)
	}
	select {
	case o := <-done:
		return o.ep, o.ok, o.err
	case <-ctx.Done():
		return endpoint.Endpoint{}, false, ctx.Err()
	}
}

// renewInQueue gives the endpoint the later start time, and the metadata that came with the call: on disk, with the
// steps that keep it, and in the table.
func (c *creator) renewInQueue(ctx context.Context, w *worker, spec endpoint.Spec) (_ endpoint.Endpoint, err error) {
	renewed := w.ep
	renewed.Spec.Began, renewed.Renewed = max(renewed.Spec.Began, spec.Began), true
	if renewed.Metadata, err = endpoint.ChangeMetadata(renewed.Metadata, spec.Metadata); err != nil {
		return endpoint.Endpoint{}, err
	}
	if err := c.updater.put(ctx, w, renewed); err != nil {
		return endpoint.Endpoint{}, err
	}
	if err := c.steps.renew(ctx, renewed); err != nil {
		return endpoint.Endpoint{}, err
	}
	before := w.ep
	if err := w.show(renewed); err != nil {
		return endpoint.Endpoint{}, err
	}
	c.listeners.updated(before, renewed)
	w.began.Store(int64(renewed.Spec.Began))
	return renewed, nil
}

// replace takes down what an attachment had before, for its next life: unless that has begun later than spec did, which the
// next claim finds.
func (c *creator) replace(ctx context.Context, w *worker, spec endpoint.Spec) error {
	result := c.deleter.deleteWorker(ctx, w, endpoint.DeleteConfig{Began: spec.Began}, startWatch(endpoint.OperationDel))
	if len(result.Errors) > 0 { // which the agent goes on trying
		return fault.Wrap(fault.Unavailable, fmt.Errorf("take down the endpoint it had before: %w", result.Errors[0]))
	}
	return nil
}

// supersede takes down what an older container of the pod has in the place that spec is for: an address a pod, however
// often its sandbox is made anew and whether or not anybody deletes the old ones. What cannot be taken down at once stays
// on record and is tried again; the pod need not wait for it, and who is told of endpoints hears of its end at once, for
// it is the pod's older container that goes and not the newer one.
func (c *creator) supersede(ctx context.Context, spec endpoint.Spec, older []*worker) error {
	cfg := endpoint.DeleteConfig{Began: spec.Began}
	for _, w := range older {
		c.registry.rememberDelete(w.attachment, cfg, 0)
		c.log.Info("endpoint is superseded by a newer container of its pod", "container", w.attachment.ContainerID,
			"ifname", w.attachment.IfName, "pod", spec.Pod.String(), "by", spec.Attachment.ContainerID)
		result := c.deleter.deleteWorker(ctx, w, cfg, startWatch(endpoint.OperationDel))
		err := errors.Join(result.Errors...)
		if errors.Is(err, ErrPending) || errors.Is(err, ErrStopped) {
			return err
		}
		if err != nil {
			c.log.Warn("superseded endpoint is not gone yet, which is tried again", "container", w.attachment.ContainerID, "error", err)
			c.deleter.tellDeletedEarly(w, cfg)
		}
		w.superseded.Store(true)
	}
	return nil
}
