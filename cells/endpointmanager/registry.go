package endpointmanager

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"porin.dev/porin/cells/endpoint"
)

// registry knows the worker of each endpoint and which calls came for it.
type registry struct {
	table      *Table
	log        *slog.Logger
	gate       *gate
	ids        *ids
	background sync.WaitGroup // workers and loops

	mu      sync.Mutex // guards the fields below; taken before the lock of the gate
	workers workerIndex
	calls   callOrder
}

func newRegistry(table *Table, log *slog.Logger, gate *gate, maxEndpoints uint16) *registry {
	return &registry{table: table, log: log, gate: gate, ids: newIDs(maxEndpoints), workers: newWorkerIndex(), calls: newCallOrder()}
}

// close closes the gate and the queues: what is in these still runs.
func (r *registry) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.gate.close()
	for _, w := range r.workers.all() {
		w.queue.close()
	}
}

// claim returns the worker of the attachment, or those that spec supersedes, or makes one. The first event of a new one
// is first: a deletion that sees the worker comes after it.
func (r *registry) claim(spec endpoint.Spec, first func(*worker)) (w *worker, older []*worker, isNew bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.gate.refusal(); err != nil {
		return nil, nil, false, err
	}
	if err := r.calls.refuse(spec); err != nil {
		return nil, nil, false, err
	}
	r.calls.rememberAdd(spec)
	if older := r.workers.olderOfPod(spec); len(older) > 0 {
		return nil, older, false, nil
	}
	if w, ok := r.workers.byAttachment[spec.Attachment]; ok {
		if began := w.beganAt(); spec.Began < began {
			return nil, nil, false, fmt.Errorf("%w: another ADD of it began %s later", ErrSuperseded, began-spec.Began)
		}
		return w, nil, false, nil
	}
	id, err := r.ids.allocate()
	if err != nil {
		return nil, nil, false, err
	}
	w = r.newWorker(spec, id)
	w.queue.push(func() { first(w) })
	r.launch(w)
	return w, nil, true, nil
}

func (r *registry) newWorker(spec endpoint.Spec, id uint16) *worker {
	return newWorker(spec, id, r.table, r.log)
}

// launch runs the worker's events until its queue is closed and drained. Its number is free only then, so no event of
// this life can meet the next endpoint of that number. It expects the lock.
func (r *registry) launch(w *worker) {
	r.workers.add(w)
	r.background.Go(func() {
		w.queue.run()
		if w.retry != nil {
			w.retry.Stop()
		}
		if w.isGone() {
			r.ids.free(w.ep.ID)
		}
	})
}

// remove lets go of an endpoint of which nothing is left. It runs in the worker's queue.
func (r *registry) remove(w *worker) {
	r.mu.Lock()
	r.workers.drop(w)
	r.mu.Unlock()
	w.end()
	close(w.gone)
	w.queue.close()
}

// worker returns the worker of the attachment, or nil.
func (r *registry) worker(a endpoint.Attachment) *worker {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.workers.byAttachment[a]
}

// all returns every worker.
func (r *registry) all() []*worker {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.workers.all()
}

// ofContainer returns the workers of a container.
func (r *registry) ofContainer(id string) []*worker {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.workers.ofContainer(id)
}

// rememberDelete remembers the deletion of the attachment, and returns its worker. cfg.Sweep makes one for an
// attachment that the agent has no endpoint of, so that the deletion and an ADD that comes meanwhile take their turn;
// there is none when the node has no number left, or the manager has stopped.
func (r *registry) rememberDelete(a endpoint.Attachment, cfg endpoint.DeleteConfig, steps int) (w *worker, swept bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls.rememberDelete(a, cfg.Began)
	if w := r.workers.byAttachment[a]; w != nil || !cfg.Sweep || r.gate.isClosed() {
		return w, false
	}
	id, err := r.ids.allocate()
	if err != nil {
		return nil, false
	}
	w = r.newWorker(endpoint.Spec{
		Attachment: a, Network: cfg.Network, NetNS: cfg.NetNS, IPAM: cfg.IPAM, ExternalIPAM: cfg.IPAM != (endpoint.IPAMPlugin{}), Began: cfg.Began,
	}, id)
	w.attached = steps
	w.hasDeletionRecord.Store(r.gate.isStopped()) // before the agent serves nobody asks but a deletion record
	r.launch(w)
	return w, true
}

// rememberContainerDelete remembers the deletion of a whole container, and returns its workers.
func (r *registry) rememberContainerDelete(containerID string, began time.Duration) []*worker {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls.rememberDelete(endpoint.Attachment{ContainerID: containerID}, began)
	return r.workers.ofContainer(containerID)
}

// deletedAt is when the latest deletion of the attachment began; 0 when none is remembered.
func (r *registry) deletedAt(a endpoint.Attachment) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.calls.deleted[a]
}

// forget drops what is known of calls that began before the given time.
func (r *registry) forget(before time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls.forget(before, func(pod podInterface) bool { return len(r.workers.byPod[pod]) > 0 })
}

// await returns the endpoint as it is once the events before this call have run, and whether it is gone by then.
func await(ctx context.Context, w *worker) (ep endpoint.Endpoint, gone bool, err error) {
	seen := make(chan endpoint.Endpoint, 1)
	if !w.queue.push(func() { seen <- w.ep }) {
		return endpoint.Endpoint{}, true, w.drained(ctx)
	}
	select {
	case ep := <-seen:
		return ep, w.isGone(), nil
	case <-ctx.Done():
		return endpoint.Endpoint{}, false, ctx.Err()
	}
}
