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
	spec       Spec         // as the first ADD asked for it, for everybody; see began
	began      atomic.Int64 // when the latest ADD of this life began: ep.Spec.Began, for everybody
	queue      *queue
	life       context.Context    // ends when the endpoint is to go: it stops a creation that is under way
	end        context.CancelFunc // idempotent
	gone       chan struct{}      // closed when nothing of the endpoint is left but its number
	failed     atomic.Pointer[setback]
	recorded   atomic.Bool // a deletion record asks for its end, until that is done
	superseded bool        // a newer container has its place; guarded by the manager's lock
	found      bool        // only its link is known, and what that says; never changes

	ep       Endpoint
	ran      int  // how many steps have attached, or tried
	deleting bool // its record in the ledger says that it is to go
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
	w := &worker{
		attachment: spec.Attachment, spec: spec,
		queue: newQueue(), life: life, end: end, gone: make(chan struct{}),
		ep: Endpoint{ID: id, Spec: spec},
	}
	w.began.Store(int64(spec.Began))
	return w
}

// beganAt is when the latest ADD of this life began, on CLOCK_BOOTTIME.
func (w *worker) beganAt() time.Duration { return time.Duration(w.began.Load()) }

// forgetIndexes is for a link of another boot or namespace: what has its index now is another link. It runs in the queue.
func (w *worker) forgetIndexes() { w.ep.Host.Index, w.ep.Container.Index = 0, 0 }

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
