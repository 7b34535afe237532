package endpointmanager

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/endpointmanager/ledger"
	"porin.dev/porin/internal/task"
)

// verb says what a message asks of an endpoint.
type verb int

const (
	verbCreate   verb = iota // attach all steps: the first message of a new endpoint
	verbAdopt                // restore what an earlier agent attached, at a start
	verbHold                 // keep it as it is, at a start
	verbRenew                // the same ADD came again
	verbUpdate               // change the metadata
	verbRepair               // restore missing parts
	verbAnnounce             // tell the subscribers of the end before the removal has succeeded
	verbRemove               // take it down
)

// message is one call for one endpoint. After it was posted only the endpoint's goroutine uses it, with its stopwatch.
type message struct {
	verb      verb
	ctx       context.Context       // the caller's; a removal goes on after it
	spec      endpoint.Spec         // of verbRenew
	namespace *endpoint.Namespace   // of verbCreate
	metadata  string                // of verbUpdate
	reason    HoldReason            // of verbHold
	detail    string                // of verbHold
	config    endpoint.DeleteConfig // of verbAnnounce and verbRemove
	watch     *stopwatch            // of verbCreate and verbRemove
	done      chan answer           // has room for the answer
}

// answer is the outcome of a message.
type answer struct {
	DeleteResult                   // of verbRemove
	ep           endpoint.Endpoint // of all verbs that bring up or change
	replaced     []string          // by the steps' Restore
	gone         bool              // the endpoint ended before the message was served
	retry        bool              // the message no longer fits the endpoint, and changed nothing
	err          error
}

// managed is one life of one attachment. Its goal is *whole* until the first removal changes it to *gone*. It never
// changes back: the next life of the attachment is another managed.
type managed struct {
	attachment endpoint.Attachment
	spec       endpoint.Spec      // of the first ADD
	found      bool               // a start found its link, and no record
	swept      bool               // a DEL of an unknown attachment made it, to detach all steps
	life       context.Context    // ends with the first removal, and ends a creation
	cancel     context.CancelFunc // of life
	gone       chan struct{}      // closed when nothing is left but the number
	ended      chan struct{}      // closed when the goroutine has ended and the number is free
	wake       chan struct{}      // has a token while the mailbox may have changed

	// The lock of the registry guards these fields.
	mailbox    []*message
	closed     bool // the mailbox takes no more messages
	named      bool // a deletion record asks for its end
	superseded bool // a newer container has its place in the pod

	// Only the goroutine writes these fields, with the lock of the registry, with which others read them.
	began  time.Duration   // when its latest ADD began, on CLOCK_BOOTTIME
	held   *Held           // nil unless a start holds it
	failed *failedDeletion // nil unless the last try of the removal failed

	// Only the goroutine uses these fields.
	m        *manager
	ep       endpoint.Endpoint // as the ledger, the table and the subscribers have it
	phase    ledger.Phase      // of the last record that was written; "" without one
	told     bool              // subscribers know the endpoint, in this life of the agent or an earlier one
	attached int               // steps that have attached, or tried
	removal  *removal          // nil while the goal is to be whole
}

// removal is the goal of an endpoint that has to go.
type removal struct {
	config   endpoint.DeleteConfig // of the latest try
	failures int
	retry    *time.Timer // of the next try; nil without one
}

// failedDeletion is the outcome of the last try of a removal.
type failedDeletion struct {
	times  int
	err    error
	config endpoint.DeleteConfig
}

// newManaged returns an endpoint that is in no registry yet. It has no number and no goroutine.
func newManaged(m *manager, spec endpoint.Spec) *managed {
	life, cancel := context.WithCancel(context.Background())
	e := &managed{
		attachment: spec.Attachment, spec: spec, began: spec.Began, life: life, cancel: cancel,
		gone: make(chan struct{}), ended: make(chan struct{}), wake: make(chan struct{}, 1),
		m: m, ep: endpoint.Endpoint{Spec: spec, Metadata: spec.Metadata},
	}
	e.ep.Spec.Metadata = ""
	return e
}

// newSwept returns an endpoint for the deletion of an unknown attachment. A link may be left, or addresses of an IPAM
// plugin.
func newSwept(m *manager, a endpoint.Attachment, config endpoint.DeleteConfig) *managed {
	e := newManaged(m, endpoint.Spec{
		Attachment: a, Network: config.Network, NetNS: config.NetNS, IPAM: config.IPAM,
		ExternalIPAM: config.IPAM != (endpoint.IPAMPlugin{}), Began: config.Began,
	})
	e.attached, e.swept = len(m.steps), true
	return e
}

// run serves the messages in their order, and the retries of a removal, until the endpoint is gone or the manager
// stops. A closed mailbox is served to its end, so each caller gets an answer.
func (e *managed) run() {
	for msg := e.next(); msg != nil; msg = e.next() {
		msg.done <- e.serve(msg)
	}
	if e.removal != nil {
		e.removal.stopRetry()
	}
	e.m.registry.release(e)
}

// next returns the next message, or a retry that is due, or nil at the end.
func (e *managed) next() *message {
	for {
		msg, closed := e.m.registry.take(e)
		if msg != nil || closed {
			return msg
		}
		var due <-chan time.Time
		if e.removal != nil && e.removal.retry != nil {
			due = e.removal.retry.C
		}
		select {
		case <-e.wake:
		case <-due:
			return &message{
				verb: verbRemove, ctx: context.Background(), config: e.removal.config,
				watch: startWatch(endpoint.OperationDel), done: make(chan answer, 1),
			}
		}
	}
}

// serve decides whether the message still applies, sets the goal, and lets reconcile reach it. The decision is made
// here and not when the message was posted: a DEL is compared with the start time that an earlier renewal has left.
func (e *managed) serve(msg *message) answer {
	isReady := e.ep.State == endpoint.Ready
	if e.isGone() {
		return answer{gone: true}
	}
	switch msg.verb {
	case verbRemove:
		if isReady && msg.config.Began > 0 && e.ep.Spec.Began > msg.config.Began {
			e.m.registry.withLock(func() { e.named = false }) // a deletion record of an earlier life is worked off
			return answer{DeleteResult: DeleteResult{Skipped: 1}}
		}
		e.setGone(msg.config)
	case verbRenew:
		if !isReady || !e.ep.Spec.SameRequest(msg.spec) {
			return answer{retry: true}
		}
	case verbUpdate, verbRepair:
		if err := msg.ctx.Err(); err != nil {
			return answer{err: err}
		}
		if !isReady {
			return answer{err: ErrNotReady}
		}
	case verbAdopt, verbHold:
		if e.ep.State != endpoint.Restoring {
			return answer{gone: true} // a deletion record ends it
		}
	}
	return e.reconcile(msg)
}

// setGone makes the end of the endpoint its goal. NoIPRelease stays once it is set: another endpoint may have the
// address.
func (e *managed) setGone(config endpoint.DeleteConfig) {
	if !e.swept {
		if e.found && !e.attachment.IsUnnamed() && config.IPAM != (endpoint.IPAMPlugin{}) {
			// The DEL knows which IPAM plugin gave the addresses of a link without a record.
			e.ep.Spec.IPAM, e.ep.Spec.NetNS, e.ep.Spec.ExternalIPAM = config.IPAM, config.NetNS, true
		}
		config.Network, config.NetNS, config.IPAM = "", "", endpoint.IPAMPlugin{}
	}
	config.Sweep = e.swept || e.attachment.IsUnnamed() // the rest may have another number
	if e.removal == nil {
		e.removal = &removal{}
	}
	config.NoIPRelease = config.NoIPRelease || e.removal.config.NoIPRelease
	e.removal.config = config
	e.removal.stopRetry()
}

func (r *removal) stopRetry() {
	if r.retry != nil {
		r.retry.Stop()
		r.retry = nil
	}
}

// ask posts a message and waits for its answer, or until ctx ends: a posted message is served in any case. The error is
// [ErrStopped] when the manager stops.
func (e *managed) ask(ctx context.Context, msg message) answer {
	msg.ctx, msg.done = ctx, make(chan answer, 1)
	if e.m.registry.post(e, &msg) {
		select {
		case a := <-msg.done:
			return a
		case <-ctx.Done():
			return answer{err: ctx.Err()}
		}
	}
	select {
	case <-e.ended:
	case <-ctx.Done():
		if !e.isGone() {
			return answer{err: ctx.Err()}
		}
	}
	if e.isGone() {
		return answer{gone: true}
	}
	return answer{err: ErrStopped}
}

// askReady asks an endpoint that has to be ready. An endpoint that ends is not.
func (e *managed) askReady(ctx context.Context, msg message) (answer, error) {
	a := e.ask(ctx, msg)
	if a.gone || errors.Is(a.err, ErrStopped) {
		a.err = ErrNotReady
	}
	return a, a.err
}

// isGone reports whether the endpoint was deleted, or was never made.
func (e *managed) isGone() bool {
	select {
	case <-e.gone:
		return true
	default:
		return false
	}
}

// isReserved reports whether the agent made the endpoint for itself: it belongs to no container and no network of a
// runtime.
func (e *managed) isReserved() bool { return e.spec.Kind != endpoint.KindPod }

// closeLocked closes the mailbox.
func (e *managed) closeLocked() {
	e.closed = true
	task.Wake(e.wake)
}

// attrs are the log attributes of an endpoint.
func attrs(ep endpoint.Endpoint) slog.Attr {
	if ep.Spec.Attachment.IsUnnamed() {
		return slog.Group("", "endpoint", ep.ID, "link", ep.Spec.Attachment.HostEnd())
	}
	return slog.Group("", "endpoint", ep.ID, "container", ep.Spec.Attachment.ContainerID,
		"ifname", ep.Spec.Attachment.IfName, "pod", ep.Spec.Pod.String())
}

// record writes the record of the endpoint as it is now.
func (e *managed) record(phase ledger.Phase, config endpoint.DeleteConfig) error {
	write := e.m.ledger.Put
	if phase == ledger.Tombstone {
		write = e.m.ledger.PutTombstone
	}
	err := write(e.recordOf(phase, config))
	if err == nil {
		e.phase = phase
	}
	return err
}

// recordOf returns a record. The record of a deletion has the start time of the latest DEL, whichever DEL does the
// work.
func (e *managed) recordOf(phase ledger.Phase, config endpoint.DeleteConfig) ledger.Record {
	if phase == ledger.Deleting || phase == ledger.Tombstone {
		e.m.registry.withLock(func() { config.Began = max(config.Began, e.m.registry.calls.deleted[e.ep.Spec.Attachment]) })
	}
	return ledger.Record{Phase: phase, Endpoint: e.ep, Config: config, At: wallTime(), Boot: e.m.boot(), Told: e.told}
}

// become changes the state of the endpoint, and shows it. A forbidden transition is refused, logged and counted.
func (e *managed) become(who actor, to endpoint.State) {
	if !e.m.table.transition(&e.ep, who, to) {
		e.m.log.Error("state transition refused", attrs(e.ep), "from", e.ep.State, "to", to, "actor", who)
	}
}

// show makes ep the endpoint, unless another endpoint has its addresses.
func (e *managed) show(ep endpoint.Endpoint) error {
	if ep == e.ep {
		return nil
	}
	if err := e.m.table.put(ep); err != nil {
		return err
	}
	e.ep = ep
	return nil
}

// tell tells the subscribers of an event, for example endpoint.Subscriber.EndpointCreated.
func (e *managed) tell(event func(endpoint.Subscriber, endpoint.Endpoint)) {
	e.told = true
	for _, s := range e.m.subscribers {
		event(s, e.ep)
	}
}

// tellDeleted tells the subscribers of the end, unless they do not know the endpoint: its creation failed, or they were
// told early.
func (e *managed) tellDeleted(config endpoint.DeleteConfig) {
	if !e.told {
		return
	}
	for _, s := range e.m.subscribers {
		s.EndpointDeleted(e.ep, config)
	}
}

// announce tells the subscribers of the end of an endpoint whose removal goes on, and records that they know.
func (e *managed) announce(config endpoint.DeleteConfig) {
	if e.removal != nil {
		config.NoIPRelease = config.NoIPRelease || e.removal.config.NoIPRelease
	}
	e.tellDeleted(config)
	e.told = false
	if err := e.record(ledger.Deleting, config); err != nil {
		e.m.log.Warn("subscribers may hear twice of the end of an endpoint", attrs(e.ep), "error", err)
	}
}

// observe gives the trace of an operation to the observers, and returns its error with the slowest phase.
func (e *managed) observe(watch *stopwatch, err error) error {
	trace := watch.finish(e.ep, err)
	for _, o := range e.m.observers {
		o.Observe(trace)
	}
	return trace.Err
}

// wallTime is the time for people. The value is the same after it was written to the ledger and read again.
func wallTime() time.Time { return time.Now().Round(0).UTC() }
