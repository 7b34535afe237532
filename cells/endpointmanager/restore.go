package endpointmanager

import (
	"context"
	"log/slog"
	"math"
	"time"

	"golang.org/x/sync/errgroup"

	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/endpointmanager/ledger"
	"porin.dev/porin/internal/fault"
)

const (
	// undoTimeAtStart bounds how long a start waits for what it takes down: nobody is answered before, and an IPAM
	// plugin may hang. What is not down by then is tried again later.
	undoTimeAtStart = 10 * time.Second

	// A living endpoint is not given up for a fault that may pass: the kernel short of memory, a list that changed while it
	// was read.
	restoreTries = 7                     // in more than a second
	restoreWait  = 20 * time.Millisecond // after the first try; it doubles
)

// restorer makes of the ledger, at a start, what an earlier life of the agent had. Its reader reads the records, [plan] decides
// about them; the restorer brings back what is whole, holds what cannot be explained, undoes the rest, and removes what
// belongs to nobody.
type restorer struct {
	log             *slog.Logger
	here            func() (ledger.Origin, error)
	registry        *registry
	reader          *ledgerReader
	records         *recorder
	steps           *stepRunner
	listeners       *listeners
	held            *heldSet
	deleter         *deleter
	deletionRecords *deletionRecords

	newLedger bool // nothing was ever written to it
	report    Report
}

// restoration is an endpoint of an earlier life of the agent on its way back.
type restoration struct {
	recorded
	worker   *worker
	decision decision
	failed   error    // of the last try of a step's Restore; nil when it was brought back, or not tried
	replaced []string // by all tries
}

// Restored implements [Service].
func (r *restorer) Restored() Report { return r.report }

// restore has three phases: it checks each record against what was deleted meanwhile and against the kernel, brings back
// what passed, holds what cannot be explained, undoes the rest, and removes leftovers. Then the ledger belongs to this namespace.
// A ledger of another network namespace of this boot is [ErrOtherNamespace], and nothing is changed.
func (r *restorer) restore(ctx context.Context) error {
	here, err := r.here()
	if err != nil {
		return err
	}
	origin, err := r.records.ledger.Origin()
	if err != nil {
		return err
	}
	if err := checkOrigin(origin, here, r.records.ledger.Path()); err != nil {
		return err
	}
	began, former := time.Now(), isFormer(origin, here)
	list, isNew, err := r.reader.read(former)
	if err != nil {
		return err
	}
	r.newLedger = isNew && origin == ledger.Origin{}
	if former {
		if err := r.records.ledger.Expire(math.MaxInt64, math.MaxInt64); err != nil { // whose times mean nothing here
			return err
		}
	}
	undoCtx, cancel := context.WithTimeout(ctx, undoTimeAtStart)
	defer cancel()
	if list, err = r.check(ctx, undoCtx, list); err != nil {
		return err
	}
	for _, one := range list {
		if one.decision.superseded { // before anybody hears of the newer container: again, perhaps, for what was told may not be on record
			one.worker.superseded.Store(true)
			r.deleter.tellDeletedEarly(one.worker, one.decision.config)
		}
	}
	for _, one := range list {
		if err := r.bringBack(ctx, undoCtx, one); err != nil {
			return err
		}
	}
	if err := r.bringBackAgain(ctx, undoCtx, list); err != nil {
		return err
	}
	if err := r.endFailed(ctx, undoCtx, list); err != nil {
		return err
	}
	r.report.Duration = time.Since(began)
	removed, err := r.steps.prune(ctx)
	r.report.removed(removed)
	if err != nil { // a leak is no reason to leave the node without an agent
		r.log.Error("what belongs to nobody is left; doctor shows it", "error", err)
	}
	if ctx.Err() == nil && origin != here {
		err = r.records.ledger.SetOrigin(here)
	} else {
		err = ctx.Err()
	}
	if err == nil {
		r.log.Info("endpoints restored", "adopted", r.report.Adopted, "replaced", r.report.Replaced, "undone", r.report.Undone,
			"held", r.held.count(), "removed", len(removed), "duration", r.report.Duration)
	}
	return err
}

// check is the first phase: what is to go is not brought back first, and neither is what the kernel has lost. What is of another
// boot goes before anything of this one is looked at. The list is in the order of the plan.
func (r *restorer) check(ctx, undoCtx context.Context, list []*restoration) ([]*restoration, error) {
	r.deletionRecords.deleteOrWarn(ctx)
	r.undoFormer(undoCtx, list)
	in, err := r.take(ctx, list)
	if err != nil {
		return nil, err
	}
	decisions, links := plan(in)
	planned := make([]*restoration, len(list))
	var holds []*restoration
	for i, d := range decisions {
		planned[i] = list[d.place]
		planned[i].decision = d
		if d.isNew {
			holds = append(holds, planned[i])
		}
	}
	if lost := len(holds); lost+len(links) > 0 {
		r.log.Error("attachments cannot be explained: they are held, neither brought back nor removed, until a DEL or porin restore accept",
			"new_ledger", r.newLedger, "records", len(list), "lost", lost, "links", len(links))
	}
	for _, ep := range links {
		if one, err := r.addFound(ep); err != nil {
			r.log.Error("link is not held, and pruned", "ifname", ep.Host.Name, "error", err)
		} else {
			planned, holds = append(planned, one), append(holds, one)
		}
	}
	r.putHolds(holds)
	return planned, nil
}

// take takes stock: what the steps say is lost, and what they find.
func (r *restorer) take(ctx context.Context, list []*restoration) (in inventory, err error) {
	var eps []endpoint.Endpoint
	for _, one := range list {
		one.deleted = one.worker.hasDeletionRecord.Load() || one.worker.isGone()
		if !one.former && (one.record.Phase == ledger.Committed || one.record.Phase == ledger.Held && HoldReason(one.record.Held) != NotOnRecord) {
			eps = append(eps, one.record.Endpoint)
		}
	}
	lost, surveyed := r.steps.findLost(ctx, eps)
	in.surveyed, in.newLedger = surveyed, r.newLedger
	for _, one := range list {
		one.lost = lost[one.worker.attachment]
		in.records = append(in.records, one.recorded)
	}
	if in.links, err = r.steps.find(ctx); err != nil {
		return in, err
	}
	for _, w := range r.registry.all() {
		in.known = append(in.known, w.attachment)
	}
	if in.buried, err = r.records.ledger.Tombstones(); err != nil {
		r.log.Warn("what was deleted lately is not known", "error", err)
	}
	return in, nil
}

// addFound makes a worker for an attachment of which only the link is known.
func (r *restorer) addFound(ep endpoint.Endpoint) (*restoration, error) {
	r.registry.mu.Lock()
	defer r.registry.mu.Unlock()
	if !r.registry.ids.reserve(ep.ID) {
		id, err := r.registry.ids.allocate()
		if err != nil {
			return nil, err
		}
		ep.ID = id
	}
	if r.registry.workers.byAttachment[ep.Spec.Attachment] != nil { // a record has it, with another link
		ep.Spec.Attachment = endpoint.Unnamed(ep.Host.Name)
	}
	one := r.reader.launch(ledger.Record{Phase: ledger.Held, Held: string(NotOnRecord), Endpoint: ep})
	one.decision = decision{action: planHold, hold: NotOnRecord}
	return one, nil
}

// putHolds writes down what is about to be held: all or none, for a start that is killed meanwhile decides on all of them
// again. Nobody else has the workers yet.
func (r *restorer) putHolds(holds []*restoration) {
	recs := make([]ledger.Record, len(holds))
	for i, one := range holds {
		recs[i] = r.records.recordOf(one.worker, ledger.Held, endpoint.DeleteConfig{})
		recs[i].Held = string(one.decision.hold)
	}
	if err := r.records.ledger.PutAll(recs); err != nil {
		r.log.Warn("holds are not on record: the next start decides anew", "error", err)
	}
}

// undoFormer takes down all that is of another boot, side by side: other IPAM plugins take their addresses back. What fails
// stays on record, and is tried again.
func (r *restorer) undoFormer(undoCtx context.Context, list []*restoration) {
	var group errgroup.Group
	group.SetLimit(deletionsAtOnce)
	for _, one := range list {
		if one.former {
			r.report.undone(one.worker.attachment, reasonFormer)
			group.Go(func() error {
				one.worker.queue.push(one.worker.forgetIndexes)
				r.deleter.deleteWorker(undoCtx, one.worker, configOfRecord(one.record), startWatch(endpoint.OperationDel))
				return nil
			})
		}
	}
	_ = group.Wait()
}

// bringBack waits until one endpoint has become what was decided, the second phase: undoing it only until undoCtx ends. Its error
// is the end of the start.
func (r *restorer) bringBack(ctx, undoCtx context.Context, one *restoration) error {
	w, d := one.worker, one.decision
	if one.former {
		return nil // undone
	}
	if d.action == planLeave { // however long that takes
		r.report.undone(w.attachment, d.why)
		return nil
	}
	queued := w.do(func() {
		switch {
		case w.ep.State != endpoint.Restoring: // its deletion was on record: it is gone, or will be
			r.report.undone(w.attachment, reasonDeleted)
		case d.action == planHold:
			r.keep(w, d.hold, heldBecause(d.hold, one.record.Endpoint, one.lost))
		case d.action == planRemove && one.lost != nil && d.why == one.lost.Error():
			r.giveUp(undoCtx, w, one.lost)
		case d.action == planRemove:
			r.report.undone(w.attachment, d.why)
			r.deleter.takeDown(undoCtx, w, d.config, startWatch(endpoint.OperationDel))
		default:
			one.failed = r.adopt(ctx, one)
		}
	})
	if !queued {
		r.report.undone(w.attachment, reasonDeleted)
	}
	return ctx.Err()
}

// bringBackAgain tries again the endpoints whose Restore has failed, all of them before the next wait: a fault of the node costs
// a start the waiting of one endpoint.
func (r *restorer) bringBackAgain(ctx, undoCtx context.Context, list []*restoration) error {
	for try := range restoreTries - 1 {
		var again []*restoration
		for _, one := range list {
			if one.failed != nil && !isFinal(one.failed) {
				again = append(again, one)
			}
		}
		if len(again) == 0 {
			return nil
		}
		select {
		case <-time.After(restoreWait << try):
		case <-ctx.Done():
			return ctx.Err()
		}
		for _, one := range again {
			one.failed = nil
			if err := r.bringBack(ctx, undoCtx, one); err != nil {
				return err
			}
		}
	}
	return nil
}

// isFinal reports whether the same try again must fail again.
func isFinal(err error) bool {
	switch fault.KindOf(err) {
	case fault.Invalid, fault.NotFound, fault.Conflict, fault.Deadline:
		return true
	}
	return false
}

// endFailed takes down the endpoints whose Restore has failed. When these are most of those tried, it is not the endpoints that
// are wrong: they are held.
func (r *restorer) endFailed(ctx, undoCtx context.Context, list []*restoration) error {
	var failed []*restoration
	tried := 0
	for _, one := range list {
		if one.decision.action == planAdopt {
			tried++
		}
		if one.failed != nil {
			failed = append(failed, one)
		}
	}
	tooMany := isMost(len(failed), tried)
	if tooMany {
		r.log.Error("most endpoints cannot be brought back: they are held, as they are, until the next start, a DEL or porin restore accept",
			"failed", len(failed), "tried", tried, "error", failed[0].failed)
	}
	for _, one := range failed {
		w := one.worker
		w.do(func() {
			switch {
			case w.ep.State != endpoint.Restoring: // it is deleted already
			case tooMany:
				r.keep(w, RestoreFailed, one.failed.Error())
			default:
				r.giveUp(undoCtx, w, one.failed)
			}
		})
	}
	return ctx.Err()
}

// keep holds the endpoint as it is, and what it has from everybody else. What could not be explained is on record
// already, all of it at once: a start that is killed between two records would decide on the rest alone. It runs in the
// worker's queue.
func (r *restorer) keep(w *worker, reason HoldReason, detail string) {
	r.hold(w, reason, detail)
	if reason == RestoreFailed {
		if err := r.records.putHeld(w, reason); err != nil {
			r.log.Warn("hold is not on record: the next start decides anew", attrs(w.ep), "error", err)
		}
	}
	r.log.Warn("attachment is held", attrs(w.ep), "reason", reason, "detail", detail)
}

// hold holds the endpoint in memory. It runs in the worker's queue.
func (r *restorer) hold(w *worker, reason HoldReason, detail string) {
	r.steps.occupy(w.ep)
	w.become(outside, endpoint.Held)
	r.held.add(w, Held{Endpoint: w.ep, Reason: reason, Detail: detail})
}

// giveUp takes down an endpoint that cannot be brought back. It runs in the worker's queue.
func (r *restorer) giveUp(ctx context.Context, w *worker, why error) {
	if w.ep.Spec.Kind == endpoint.KindHealth {
		r.log.Info("health endpoint ended with its agent, taking it down", attrs(w.ep), "error", why)
	} else {
		r.log.Warn("endpoint cannot be brought back, taking it down", attrs(w.ep), "error", why)
		r.report.undone(w.attachment, why.Error())
	}
	r.deleter.takeDown(ctx, w, configOfLoss(w.ep, why), startWatch(endpoint.OperationDel))
}

// adopt runs every step's Restore in order, and returns why the endpoint cannot be brought back. It runs in the worker's queue.
func (r *restorer) adopt(ctx context.Context, one *restoration) error {
	w, watch := one.worker, startWatch(endpoint.OperationRestore)
	w.become(builder, endpoint.Regenerating)
	replaced, err := r.steps.restore(ctx, w, watch)
	one.replaced = append(one.replaced, replaced...)
	r.listeners.observe(watch.finish(w.ep, err))
	if ctx.Err() != nil {
		return nil // the start is given up: nothing is wrong with the endpoint
	}
	if err != nil {
		w.become(builder, endpoint.Restoring)
		return err
	}
	w.become(builder, endpoint.Ready)
	r.report.adopted(w.attachment, one.replaced)
	r.listeners.restored(w.ep)
	return nil
}
