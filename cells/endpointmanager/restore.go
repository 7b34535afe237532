package endpointmanager

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"slices"
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

// Why an endpoint is not brought back.
const (
	reasonFormer     = "its node has booted since"
	reasonDeleted    = "it was deleted while no agent ran"
	reasonSuperseded = "a newer container of its pod has its place"
)

// restorer makes of the ledger, at a start, what an earlier life of the agent had. Its reader reads the records, its
// comparer compares them with the kernel; the restorer brings back what is whole, holds what cannot be explained,
// undoes the rest, and removes what belongs to nobody.
type restorer struct {
	log             *slog.Logger
	here            func() (ledger.Origin, error)
	registry        *registry
	reader          *ledgerReader
	comparer        *comparer
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
	worker *worker
	record ledger.Record
	former bool       // it is of another boot: it is undone, and nothing explains or refuses anything by its times
	newer  *worker    // of the container that has superseded its own; nil when none has
	lost   error      // what the kernel lacks of it for good; nil when it may be brought back
	reason HoldReason // why it is held; "" when it is not
	failed error      // of the last try of a step's Restore; nil when it was brought back, or not tried

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
		if one.newer != nil { // before anybody hears of the newer container: again, perhaps, for what was told may not be on record
			r.deleter.tellDeletedEarly(one.worker, one.deleteConfig())
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
// boot goes before anything of this one is looked at.
func (r *restorer) check(ctx, undoCtx context.Context, list []*restoration) ([]*restoration, error) {
	r.deletionRecords.deleteOrWarn(ctx)
	r.undoFormer(undoCtx, list)
	list, err := r.comparer.compare(ctx, list, r.newLedger)
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(list, func(a, b *restoration) int { return a.order() - b.order() })
	return list, nil
}

// order puts those that are brought back or held before those that are undone: their addresses are taken by then.
func (e *restoration) order() int {
	switch {
	case e.former || e.newer != nil:
		return 2
	case e.reason != "":
		return 1
	case e.lost != nil:
		return 2
	}
	return phaseOrder(e.record.Phase)
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
				r.deleter.deleteWorker(undoCtx, one.worker, one.deleteConfig(), startWatch(endpoint.OperationDel))
				return nil
			})
		}
	}
	_ = group.Wait()
}

// bringBack waits for one endpoint to be restored or undone, the second phase: the latter until undoCtx ends. Its error
// is the end of the start.
func (r *restorer) bringBack(ctx, undoCtx context.Context, one *restoration) error {
	w := one.worker
	switch {
	case one.former:
		return nil // undone
	case w.hasDeletionRecord.Load(): // its deletion is under way, however long that takes
		r.report.undone(w.attachment, reasonDeleted)
		return nil
	}
	queued := w.do(func() {
		switch {
		case w.ep.State != endpoint.Restoring: // its deletion was on record: it is gone, or will be
			r.report.undone(w.attachment, reasonDeleted)
		case one.newer != nil && one.record.Phase == ledger.Committed:
			r.report.undone(w.attachment, reasonSuperseded)
			r.deleter.takeDown(undoCtx, w, one.deleteConfig(), startWatch(endpoint.OperationDel))
		case one.reason != "":
			r.keep(w, one.reason, one.heldBecause())
		case one.record.Phase != ledger.Committed:
			r.report.undone(w.attachment, halfDone[one.record.Phase])
			r.deleter.takeDown(undoCtx, w, one.deleteConfig(), startWatch(endpoint.OperationDel))
		case one.lost != nil:
			r.giveUp(undoCtx, w, one.lost)
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
		if one.isWhole() && one.reason == "" && one.lost == nil {
			tried++
		}
		if one.failed != nil {
			failed = append(failed, one)
		}
	}
	tooMany := isTooMany(len(failed), tried)
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

// giveUp takes down an endpoint that cannot be brought back. When its address was never taken it is not released
// either. A health endpoint is made again with its address, so that is not released: it would be in quarantine. It runs in the
// worker's queue.
func (r *restorer) giveUp(ctx context.Context, w *worker, why error) {
	if w.ep.Spec.Kind == endpoint.KindHealth {
		r.log.Info("health endpoint ended with its agent, taking it down", attrs(w.ep), "error", why)
		r.deleter.takeDown(ctx, w, endpoint.DeleteConfig{NoIPRelease: true}, startWatch(endpoint.OperationDel))
		return
	}
	r.log.Warn("endpoint cannot be brought back, taking it down", attrs(w.ep), "error", why)
	r.report.undone(w.attachment, why.Error())
	r.deleter.takeDown(ctx, w, endpoint.DeleteConfig{NoIPRelease: errors.Is(why, ErrAddressNotTaken)}, startWatch(endpoint.OperationDel))
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
