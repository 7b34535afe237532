package endpointmanager

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"
)

// worker is one endpoint's goroutine and what it knows. The fields from ep on are touched by events of the queue alone, so
// none needs a lock.
type worker struct {
	attachment Attachment
	spec       Spec // as ep has it, for everybody
	queue      *queue
	life       context.Context    // ends when the endpoint is to go: it stops a creation that is under way
	end        context.CancelFunc // idempotent
	gone       chan struct{}      // closed when nothing of the endpoint is left but its number
	failed     atomic.Pointer[setback]
	recorded   atomic.Bool // a deletion record asks for its end, until that is done
	superseded bool        // a newer container has its place; guarded by the manager's lock

	ep       Endpoint
	ran      int  // how many steps have attached, or tried
	born     bool // subscribers have heard of it, in this life of the agent or an earlier one
	failures int  // tries of the deletion that did not finish it
	retry    *time.Timer
}

// setback is what the last try of a deletion failed with.
type setback struct {
	times int
	err   error
	cfg   DeleteConfig // of the tries
}

// newWorker returns a worker that does nothing before manager.launch.
func newWorker(spec Spec, id uint16) *worker {
	life, end := context.WithCancel(context.Background())
	return &worker{
		attachment: spec.Attachment, spec: spec,
		queue: newQueue(), life: life, end: end, gone: make(chan struct{}),
		ep: Endpoint{ID: id, Spec: spec},
	}
}

// isGone tells whether the endpoint has been deleted, or was never made.
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
func (m *manager) become(w *worker, who actor, to State) {
	if !m.table.transition(&w.ep, who, to) {
		m.log.Error("state transition refused", attrs(w.ep), "from", w.ep.State, "to", to, "actor", who)
	}
}

// attrs are the log attributes of an endpoint.
func attrs(ep Endpoint) slog.Attr {
	return slog.Group("", "endpoint", ep.ID, "container", ep.Spec.Attachment.ContainerID,
		"ifname", ep.Spec.Attachment.IfName, "pod", ep.Spec.Pod.String())
}
