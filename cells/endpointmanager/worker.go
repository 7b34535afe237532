package endpointmanager

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"porin.dev/porin/cells/endpoint"
)

// worker is one endpoint's goroutine and what it knows. The fields from ep on are touched by events of the queue alone, so
// none needs a lock.
type worker struct {
	table             *Table
	log               *slog.Logger
	attachment        endpoint.Attachment
	spec              endpoint.Spec // as the first ADD asked for it, for everybody; see began
	began             atomic.Int64  // when the latest ADD of this life began: ep.Spec.Began, for everybody
	queue             *queue
	life              context.Context    // ends when the endpoint is to go: it stops a creation that is under way
	end               context.CancelFunc // idempotent
	gone              chan struct{}      // closed when nothing of the endpoint is left but its number
	failed            atomic.Pointer[failedDeletion]
	hasDeletionRecord atomic.Bool // a deletion record asks for its end, until that is done
	superseded        atomic.Bool // a newer container has its place
	found             bool        // only its link is known, and what that says; never changes

	ep       endpoint.Endpoint
	attached int  // how many steps have attached, or tried
	deleting bool // its record in the ledger says that it is to go
	told     bool // subscribers have heard of it, in this life of the agent or an earlier one
	failures int  // tries of the deletion that did not finish it
	retry    *time.Timer
}

// failedDeletion is what the last try of a deletion failed with.
type failedDeletion struct {
	times int
	err   error
	cfg   endpoint.DeleteConfig // of the tries
}

// newWorker returns a worker that does nothing before registry.launch.
func newWorker(spec endpoint.Spec, id uint16, table *Table, log *slog.Logger) *worker {
	life, end := context.WithCancel(context.Background())
	w := &worker{
		table: table, log: log,
		attachment: spec.Attachment, spec: spec,
		queue: newQueue(), life: life, end: end, gone: make(chan struct{}),
		ep: endpoint.Endpoint{ID: id, Spec: spec, Metadata: spec.Metadata},
	}
	w.ep.Spec.Metadata = ""
	w.began.Store(int64(spec.Began))
	return w
}

// beganAt is when the latest ADD of this life began, on CLOCK_BOOTTIME.
func (w *worker) beganAt() time.Duration { return time.Duration(w.began.Load()) }

// outlives reports whether the endpoint is of a life that began after the deletion did: the deletion came late, and is
// of an earlier one.
func (w *worker) outlives(cfg endpoint.DeleteConfig) bool { return w.beganAt() > cfg.Began }

// isReserved reports whether the agent made the endpoint itself: no container and no network of a runtime has it.
func (w *worker) isReserved() bool { return w.spec.Kind != endpoint.KindPod }

// forgetIndexes is for a link of another boot or namespace: what has its index now is another link. It runs in the queue.
func (w *worker) forgetIndexes() { w.ep.Host.Index, w.ep.Container.Index = 0, 0 }

// isGone reports whether the endpoint has been deleted, or was never made.
func (w *worker) isGone() bool {
	select {
	case <-w.gone:
		return true
	default:
		return false
	}
}

// drained waits until a closed queue has run its last event.
func (w *worker) drained(ctx context.Context) error {
	select {
	case <-w.queue.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// become changes the endpoint's state and shows it. A forbidden transition is refused, logged and counted.
func (w *worker) become(who actor, to endpoint.State) {
	if !w.table.transition(&w.ep, who, to) {
		w.log.Error("state transition refused", attrs(w.ep), "from", w.ep.State, "to", to, "actor", who)
	}
}

// show makes ep the worker's endpoint, unless another one has its addresses.
func (w *worker) show(ep endpoint.Endpoint) error {
	if ep == w.ep {
		return nil
	}
	if err := w.table.put(ep); err != nil {
		return err
	}
	w.ep = ep
	return nil
}

// do runs event in the worker's queue and waits for it. It is false when the queue is closed: event will not run.
func (w *worker) do(event func()) bool {
	done := make(chan struct{})
	queued := w.queue.push(func() {
		defer close(done)
		event()
	})
	if queued {
		<-done
	}
	return queued
}

// learn takes over what a DEL says of an endpoint of which only the link is known: the IPAM plugin that gave its addresses.
func (w *worker) learn(cfg endpoint.DeleteConfig) {
	if w.found && cfg.IPAM != (endpoint.IPAMPlugin{}) {
		w.queue.push(func() { w.ep.Spec.IPAM, w.ep.Spec.NetNS, w.ep.Spec.ExternalIPAM = cfg.IPAM, cfg.NetNS, true })
	}
}

// attrs are the log attributes of an endpoint.
func attrs(ep endpoint.Endpoint) slog.Attr {
	if ep.Spec.Attachment.IsUnnamed() {
		return slog.Group("", "endpoint", ep.ID, "link", ep.Spec.Attachment.HostEnd())
	}
	return slog.Group("", "endpoint", ep.ID, "container", ep.Spec.Attachment.ContainerID,
		"ifname", ep.Spec.Attachment.IfName, "pod", ep.Spec.Pod.String())
}

// queue runs the events of one endpoint, one after the other, in one goroutine.
type queue struct {
	mu     sync.Mutex // guards the fields below
	events []func()
	closed bool

	wake chan struct{} // holds one token while there may be something to do
	done chan struct{} // closed when the queue is closed and drained
}

// newQueue returns a queue whose events wait for run.
func newQueue() *queue { return &queue{wake: make(chan struct{}, 1), done: make(chan struct{})} }

// push appends an event. It is false when the queue was closed: the event will not run.
func (q *queue) push(event func()) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return false
	}
	q.events = append(q.events, event)
	q.signal()
	return true
}

// close lets the queue take no more events. Those in it still run; then done is closed.
func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.signal()
}

func (q *queue) signal() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// run runs the events. It returns when the queue is closed and drained.
func (q *queue) run() {
	defer close(q.done)
	for range q.wake {
		for {
			event, closed := q.next()
			if event == nil && closed {
				return
			}
			if event == nil {
				break
			}
			event()
		}
	}
}

func (q *queue) next() (event func(), closed bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.events) == 0 {
		q.events = nil // a burst does not keep its memory for the endpoint's whole life
		return nil, q.closed
	}
	event, q.events = q.events[0], q.events[1:]
	return event, q.closed
}
