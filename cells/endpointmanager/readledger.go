package endpointmanager

import (
	"fmt"
	"slices"
	"time"

	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/endpointmanager/ledger"
)

// ledgerReader makes workers of the ledger's records, at a start.
type ledgerReader struct {
	tombstoneTTL time.Duration
	clock        *clock
	registry     *registry
	records      *recorder
	steps        *stepRunner
}

// read makes a worker for each record. Living endpoints come first: a half made one must not find the address of a living
// one free. isNew is that nothing was ever written to the ledger. In a former one, of another boot, it changes nothing.
func (r *ledgerReader) read(former bool) (list []*restoration, isNew bool, err error) {
	now := r.clock.boot()
	if !former {
		if err := r.records.ledger.Expire(now-r.tombstoneTTL, now); err != nil {
			return nil, false, err
		}
		if isNew, err = r.readDeletions(); err != nil {
			return nil, false, err
		}
	}
	records, err := r.records.ledger.Attachments()
	if err != nil {
		return nil, false, err
	}
	slices.SortStableFunc(records, func(a, b ledger.Record) int { return phaseOrder(a.Phase) - phaseOrder(b.Phase) })
	list, err = r.makeWorkers(records, func(rec ledger.Record) bool { return former || rec.FromFuture(now) })
	if err != nil {
		return nil, false, err
	}
	return list, isNew && len(records) == 0, nil
}

func phaseOrder(p ledger.Phase) int {
	switch p {
	case ledger.Committed:
		return 0
	case ledger.Held:
		return 1
	}
	return 2
}

// readDeletions reads what was deleted lately, for the order of calls and for the steps that want to know. none is that
// there is nothing of it.
func (r *ledgerReader) readDeletions() (none bool, err error) {
	tombstones, err := r.records.ledger.Tombstones()
	if err != nil {
		return false, err
	}
	notes, err := r.records.ledger.DeletionNotes()
	if err != nil {
		return false, err
	}
	now, boot := time.Now(), r.clock.boot()
	deletions := make([]endpoint.Deletion, len(tombstones))
	r.registry.mu.Lock()
	for i, rec := range tombstones {
		r.registry.calls.rememberDelete(rec.Endpoint.Spec.Attachment, rec.Config.Began)
		r.registry.calls.rememberAdd(rec.Endpoint.Spec)
		deletions[i] = endpoint.Deletion{Endpoint: rec.Endpoint, Config: rec.Config, At: now.Add(rec.Boot - boot)}
	}
	for _, n := range notes {
		r.registry.calls.rememberDelete(n.Attachment, n.Began)
	}
	r.registry.mu.Unlock()
	r.steps.remember(deletions)
	return len(tombstones)+len(notes) == 0, nil
}

// makeWorkers makes a worker for each record, with the number it had.
func (r *ledgerReader) makeWorkers(records []ledger.Record, isFormer func(ledger.Record) bool) ([]*restoration, error) {
	list := make([]*restoration, len(records))
	r.registry.mu.Lock()
	defer r.registry.mu.Unlock()
	for i, rec := range records {
		if !r.registry.ids.reserve(rec.Endpoint.ID) {
			return nil, ledger.Damaged(r.records.ledger.Path(), fmt.Errorf("endpoint %s: number %d: %w", rec.Endpoint.Spec.Attachment, rec.Endpoint.ID, ErrInUse))
		}
		isFormer := isFormer(rec)
		if isFormer {
			rec = rec.WithoutTimes()
		}
		list[i] = r.launch(rec)
		list[i].former = isFormer
		r.registry.calls.rememberAdd(rec.Endpoint.Spec)
		r.registry.calls.rememberDelete(rec.Endpoint.Spec.Attachment, rec.Config.Began)
	}
	return list, nil
}

// launch expects the registry's lock.
func (r *ledgerReader) launch(rec ledger.Record) *restoration {
	w := r.registry.newWorker(rec.Endpoint.Spec, rec.Endpoint.ID)
	reason := HoldReason(rec.Held)
	isWhole := rec.Phase == ledger.Committed || reason == LinkLost || reason == RestoreFailed
	w.ep, w.attached, w.told, w.found = rec.Endpoint, len(r.steps.list), isWhole || rec.Told, reason == NotOnRecord
	w.deleting = rec.Phase == ledger.Deleting || rec.Phase == ledger.Intent // either is detached by any start
	w.ep.State = ""
	w.become(outside, endpoint.Restoring)
	r.registry.launch(w)
	return &restoration{worker: w, recorded: recorded{record: rec}}
}
