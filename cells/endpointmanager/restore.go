package endpointmanager

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/endpointmanager/ledger"
	"porin.dev/porin/internal/fault"
	"porin.dev/porin/internal/task"
)

const (
	// undoTimeAtStart bounds how long a start waits for removals: callers wait for the start, and an IPAM plugin may hang.
	// A removal that takes longer goes on.
	undoTimeAtStart = 10 * time.Second

	// A fault that may pass does not end a living endpoint: the kernel is short of memory, a list changed while it was
	// read.
	restoreTries = 7                     // in more than a second
	restoreWait  = 20 * time.Millisecond // after the first try; it doubles
)

// restorer is one start. It loads the records of the ledger, lets [plan] decide, posts the decisions to the endpoints
// as messages, and removes leftovers from the kernel.
type restorer struct {
	m         *manager
	newLedger bool // it had no record and no tombstone
	report    report
}

// restoration is an endpoint of an earlier life of the agent on its way back.
type restoration struct {
	recorded
	endpoint *managed
	decision decision
	failure  error    // of the last adoption; nil when it succeeded or was not tried
	replaced []string // by all tries
}

// restore loads, does the deletion records, plans, drives the endpoints, and prunes. Then the ledger belongs to this
// namespace. A ledger of another network namespace of this boot is [ErrOtherNamespace], and nothing is changed.
func (r *restorer) restore(ctx context.Context) error {
	here, err := r.m.here()
	if err != nil {
		return err
	}
	origin, err := r.m.ledger.Origin()
	if err != nil {
		return err
	}
	if err := checkOrigin(origin, here, r.m.ledger.Path()); err != nil {
		return err
	}
	began, former := time.Now(), isFormer(origin, here)
	list, isNew, err := r.load(former)
	if err != nil {
		return err
	}
	r.newLedger = isNew && origin == ledger.Origin{}
	if former {
		if err := r.m.ledger.Expire(math.MaxInt64, math.MaxInt64); err != nil { // its times mean nothing in this boot
			return err
		}
	}
	undoCtx, cancel := context.WithTimeout(ctx, undoTimeAtStart)
	defer cancel()
	r.m.deletionRecords.deleteOrWarn(ctx)
	r.removeFormer(undoCtx, list)
	if list, err = r.plan(ctx, list); err != nil {
		return err
	}
	if err := r.drive(ctx, undoCtx, list); err != nil {
		return err
	}
	r.report.Duration = time.Since(began)
	var removed []string // things with Porin's mark that belong to no living endpoint
	live := r.m.table.List()
	for _, step := range r.m.steps {
		if p, ok := step.(endpoint.Pruner); ok {
			names, err := p.Prune(ctx, live)
			removed = append(removed, names...)
			if err != nil { // a leak is no reason to leave the node without an agent
				r.m.log.Error("leftovers stay; doctor shows them", "step", step.Name(), "error", err)
			}
		}
	}
	r.report.removed(removed)
	if err := ctx.Err(); err != nil {
		return err
	}
	if origin != here {
		if err := r.m.ledger.SetOrigin(here); err != nil {
			return err
		}
	}
	r.m.log.Info("endpoints restored", "adopted", r.report.Adopted, "replaced", r.report.Replaced, "undone", r.report.Undone,
		"held", len(r.m.Held()), "removed", len(removed), "duration", r.report.Duration)
	return nil
}

// loadOrder is for the first records of a start: a half made endpoint must not find the address of a living one free.
var loadOrder = map[ledger.Phase]int{ledger.Committed: -2, ledger.Held: -1}

// load makes an endpoint of each record. isNew means that nothing was ever written to the ledger. A former ledger is of
// another boot, and load does not change it.
func (r *restorer) load(former bool) (list []*restoration, isNew bool, err error) {
	now := r.m.boot()
	if !former {
		if err := r.m.ledger.Expire(now-r.m.cfg.TombstoneTTL, now); err != nil {
			return nil, false, err
		}
		if isNew, err = r.loadDeletions(); err != nil {
			return nil, false, err
		}
	}
	records, err := r.m.ledger.Attachments()
	if err != nil {
		return nil, false, err
	}
	slices.SortStableFunc(records, func(a, b ledger.Record) int { return loadOrder[a.Phase] - loadOrder[b.Phase] })
	r.m.registry.withLock(func() {
		for _, rec := range records {
			if !r.m.registry.numbers.reserve(rec.Endpoint.ID) {
				err = ledger.Damaged(r.m.ledger.Path(), fmt.Errorf("endpoint %s: number %d: %w", rec.Endpoint.Spec.Attachment, rec.Endpoint.ID, ErrInUse))
				return
			}
			// A record of the future is of another boot, too. The times of that boot's clock mean nothing.
			one := &restoration{recorded: recorded{record: rec, former: former || rec.Boot > now}}
			if one.former {
				one.record.Endpoint.Spec.Began, one.record.Config.Began, one.record.Boot = 0, 0, 0
			}
			list = append(list, r.addLocked(one))
			r.m.registry.calls.rememberAdd(one.record.Endpoint.Spec)
			r.m.registry.calls.rememberDelete(one.endpoint.attachment, one.record.Config.Began)
		}
	})
	return list, isNew && len(records) == 0, err
}

// loadDeletions reads recent deletions, for the order of calls and for the steps. none means that there are none.
func (r *restorer) loadDeletions() (none bool, err error) {
	tombstones, err := r.m.ledger.Tombstones()
	if err != nil {
		return false, err
	}
	notes, err := r.m.ledger.DeletionNotes()
	if err != nil {
		return false, err
	}
	now, boot := time.Now(), r.m.boot()
	deletions := make([]endpoint.Deletion, len(tombstones))
	r.m.registry.withLock(func() {
		for i, rec := range tombstones {
			r.m.registry.calls.rememberDelete(rec.Endpoint.Spec.Attachment, rec.Config.Began)
			r.m.registry.calls.rememberAdd(rec.Endpoint.Spec)
			deletions[i] = endpoint.Deletion{Endpoint: rec.Endpoint, Config: rec.Config, At: now.Add(rec.Boot - boot)}
		}
		for _, n := range notes {
			r.m.registry.calls.rememberDelete(n.Attachment, n.Began)
		}
	})
	_ = each(r.m.steps, func(s endpoint.Rememberer) error { s.Remember(deletions); return nil })
	return len(tombstones)+len(notes) == 0, nil
}

// addLocked makes the endpoint of a record. It expects the lock of the registry.
func (r *restorer) addLocked(one *restoration) *restoration {
	rec := one.record
	e := newManaged(r.m, rec.Endpoint.Spec)
	reason := HoldReason(rec.Held)
	isWhole := rec.Phase == ledger.Committed || reason == LinkLost || reason == RestoreFailed
	e.ep, e.attached, e.told = rec.Endpoint, len(r.m.steps), isWhole || rec.Told
	e.found, e.swept, e.phase = reason == NotOnRecord, rec.Config.Sweep, rec.Phase
	if rec.Phase == ledger.Intent {
		e.phase = ledger.Deleting // each start detaches it
	}
	if one.former { // the link with that index is another one in this boot
		e.ep.Host.Index, e.ep.Container.Index = 0, 0
	}
	e.ep.State = ""
	e.become(outside, endpoint.Restoring)
	_ = r.m.registry.addLocked(e) // it has a number
	one.endpoint = e
	return one
}

// plan decides what becomes of the records and of the links without a record. The list is in the order of the
// decisions. All new holds are written before the first effect.
func (r *restorer) plan(ctx context.Context, list []*restoration) ([]*restoration, error) {
	in, err := r.takeInventory(ctx, list)
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
		r.m.log.Error("attachments cannot be explained: they are held, neither brought back nor removed, until a DEL or porin restore accept",
			"new_ledger", r.newLedger, "records", len(list), "lost", lost, "links", len(links))
	}
	for _, ep := range links {
		if one, err := r.addFound(ep); err != nil {
			r.m.log.Error("link is not held, and pruned", "ifname", ep.Host.Name, "error", err)
		} else {
			planned, holds = append(planned, one), append(holds, one)
		}
	}
	// All holds are on record or none: a start that is killed meanwhile decides on all of them again.
	recs := make([]ledger.Record, len(holds))
	for i, one := range holds {
		recs[i] = one.endpoint.recordOf(ledger.Held, endpoint.DeleteConfig{})
		recs[i].Held = string(one.decision.hold)
	}
	if err := r.m.ledger.PutAll(recs); err != nil {
		r.m.log.Warn("holds are not on record: the next start decides again", "error", err)
	}
	return planned, nil
}

// takeInventory asks the steps which endpoints are lost, and which links there are.
func (r *restorer) takeInventory(ctx context.Context, list []*restoration) (in inventory, err error) {
	r.m.registry.withLock(func() {
		for _, one := range list {
			one.deleted = one.endpoint.named || one.endpoint.isGone()
		}
		for a := range r.m.registry.byAttachment {
			in.known = append(in.known, a)
		}
	})
	var eps []endpoint.Endpoint
	for _, one := range list {
		if !one.former && (one.record.Phase == ledger.Committed || one.record.Phase == ledger.Held && HoldReason(one.record.Held) != NotOnRecord) {
			eps = append(eps, one.record.Endpoint)
		}
	}
	lost := map[endpoint.Attachment]error{} // for good
	in.surveyed, in.newLedger = true, r.newLedger
	for _, step := range r.m.steps {
		surveyor, ok := step.(endpoint.Surveyor)
		if !ok {
			continue
		}
		found, err := surveyor.Survey(ctx, eps)
		if err != nil { // each Restore finds out for itself
			r.m.log.Warn("endpoints are brought back unchecked", "step", step.Name(), "error", err)
			in.surveyed = false
		}
		for a, err := range found {
			lost[a] = errors.Join(lost[a], fmt.Errorf("%s: %w", step.Name(), err))
		}
	}
	for _, one := range list {
		one.lost = lost[one.endpoint.attachment]
		in.records = append(in.records, one.recorded)
	}
	if in.links, err = find(ctx, r.m.steps); err != nil {
		return in, err
	}
	if in.buried, err = r.m.ledger.Tombstones(); err != nil {
		r.m.log.Warn("recent deletions are not known", "error", err)
	}
	return in, nil
}

// find lists the attachments of the kernel. Without that list nothing may be removed from it.
func find(ctx context.Context, steps endpoint.Steps) (found []endpoint.Endpoint, err error) {
	for _, step := range steps {
		finder, ok := step.(endpoint.Finder)
		if !ok {
			continue
		}
		for try := range restoreTries {
			var next []endpoint.Endpoint
			if next, err = finder.Find(ctx, slices.Clone(found)); err == nil {
				found = next
				break
			}
			if err := task.Sleep(ctx, restoreWait<<try); err != nil {
				return nil, err
			}
		}
		if err != nil {
			return nil, fmt.Errorf("list what the kernel has, before anything is removed from it: %s: %w", step.Name(), err)
		}
	}
	return found, nil
}

// addFound makes an endpoint of a link without a record.
func (r *restorer) addFound(ep endpoint.Endpoint) (one *restoration, err error) {
	r.m.registry.withLock(func() {
		if !r.m.registry.numbers.reserve(ep.ID) {
			if ep.ID, err = r.m.registry.numbers.allocate(); err != nil {
				return
			}
		}
		if r.m.registry.byAttachment[ep.Spec.Attachment] != nil { // a record has it, with another link
			ep.Spec.Attachment = endpoint.Unnamed(ep.Host.Name)
		}
		one = r.addLocked(&restoration{
			recorded: recorded{record: ledger.Record{Phase: ledger.Held, Held: string(NotOnRecord), Endpoint: ep}},
			decision: decision{action: planHold, hold: NotOnRecord},
		})
	})
	return one, err
}

// removeFormer takes down the endpoints of another boot, side by side: other IPAM plugins take their addresses back. A
// failed removal stays on record, and is tried again.
func (r *restorer) removeFormer(undoCtx context.Context, list []*restoration) {
	var group errgroup.Group
	group.SetLimit(deletionsAtOnce)
	for _, one := range list {
		if one.former {
			r.report.undone(one.endpoint.attachment, reasonFormer)
			group.Go(func() error {
				r.m.removeOne(undoCtx, one.endpoint, configOfRecord(one.record), startWatch(endpoint.OperationDel))
				return nil
			})
		}
	}
	_ = group.Wait()
}

// drive carries out the decisions: each endpoint becomes whole, is held or is taken down. It waits for removals only
// until undoCtx ends. Its error ends the start.
func (r *restorer) drive(ctx, undoCtx context.Context, list []*restoration) error {
	for _, one := range list {
		if one.decision.superseded { // its subscribers may not know: that they were told may not be on record
			r.m.registry.withLock(func() { one.endpoint.superseded = true })
			one.endpoint.ask(ctx, message{verb: verbAnnounce, config: one.decision.config})
		}
	}
	for _, one := range list {
		switch d := one.decision; {
		case one.former: // removeFormer has done it
		case d.action == planLeave:
			r.report.undone(one.endpoint.attachment, d.why)
		case d.action == planHold:
			r.hold(ctx, one, d.hold, heldBecause(d.hold, one.record.Endpoint, one.lost))
		case d.action == planRemove && one.lost != nil && d.why == one.lost.Error():
			r.removeFailed(undoCtx, one, one.lost)
		case d.action == planRemove:
			r.report.undone(one.endpoint.attachment, d.why)
			r.m.removeOne(undoCtx, one.endpoint, d.config, startWatch(endpoint.OperationDel))
		default:
			r.adopt(ctx, one)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	if err := r.adoptAgain(ctx, list); err != nil {
		return err
	}
	return r.endFailed(ctx, undoCtx, list)
}

func (r *restorer) adopt(ctx context.Context, one *restoration) {
	a := one.endpoint.ask(ctx, message{verb: verbAdopt})
	one.failure, one.replaced = a.err, append(one.replaced, a.replaced...)
	switch {
	case a.gone: // a deletion record has come meanwhile
		r.report.undone(one.endpoint.attachment, reasonDeleted)
	case a.err == nil:
		r.report.adopted(one.endpoint.attachment, one.replaced)
	}
}

func (r *restorer) hold(ctx context.Context, one *restoration, reason HoldReason, detail string) {
	if a := one.endpoint.ask(ctx, message{verb: verbHold, reason: reason, detail: detail}); a.gone {
		r.report.undone(one.endpoint.attachment, reasonDeleted)
	}
}

// removeFailed takes down an endpoint that cannot be brought back.
func (r *restorer) removeFailed(undoCtx context.Context, one *restoration, why error) {
	ep := one.record.Endpoint
	if ep.Spec.Kind == endpoint.KindHealth {
		r.m.log.Info("health endpoint ended with its agent, taking it down", attrs(ep), "error", why)
	} else {
		r.m.log.Warn("endpoint cannot be brought back, taking it down", attrs(ep), "error", why)
		r.report.undone(one.endpoint.attachment, why.Error())
	}
	r.m.removeOne(undoCtx, one.endpoint, configOfLoss(ep, why), startWatch(endpoint.OperationDel))
}

// adoptAgain tries failed adoptions again, all of them before the next wait: for a fault of the node, a start waits as
// long as for one endpoint.
func (r *restorer) adoptAgain(ctx context.Context, list []*restoration) error {
	for try := range restoreTries - 1 {
		var again []*restoration
		for _, one := range list {
			final := []fault.Kind{fault.Invalid, fault.NotFound, fault.Conflict, fault.Deadline} // the same try must fail again
			if one.failure != nil && !slices.Contains(final, fault.KindOf(one.failure)) {
				again = append(again, one)
			}
		}
		if len(again) == 0 {
			return nil
		}
		if err := task.Sleep(ctx, restoreWait<<try); err != nil {
			return err
		}
		for _, one := range again {
			r.adopt(ctx, one)
			if ctx.Err() != nil {
				return ctx.Err()
			}
		}
	}
	return nil
}

// endFailed takes down the endpoints that could not be adopted. When most adoptions failed, the node has a fault and
// not its endpoints: they are held.
func (r *restorer) endFailed(ctx, undoCtx context.Context, list []*restoration) error {
	var failed []*restoration
	tried := 0
	for _, one := range list {
		if one.decision.action == planAdopt {
			tried++
		}
		if one.failure != nil {
			failed = append(failed, one)
		}
	}
	tooMany := isMost(len(failed), tried)
	if tooMany {
		r.m.log.Error("most endpoints cannot be brought back: they are held, as they are, until the next start, a DEL or porin restore accept",
			"failed", len(failed), "tried", tried, "error", failed[0].failure)
	}
	for _, one := range failed {
		if tooMany {
			r.hold(ctx, one, RestoreFailed, one.failure.Error())
		} else {
			r.removeFailed(undoCtx, one, one.failure)
		}
	}
	return ctx.Err()
}
