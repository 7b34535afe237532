package endpointmanager

import (
	"math"
	"time"

	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/endpointmanager/ledger"
)

// recorder writes to the ledger what happens to the endpoints of workers. Its methods run in the worker's queue.
type recorder struct {
	ledger   ledger.Ledger // nil until the manager starts
	clock    *clock
	registry *registry
}

// put writes the record of the endpoint as it is now.
func (r *recorder) put(w *worker, phase ledger.Phase, cfg endpoint.DeleteConfig) error {
	return r.ledger.Put(r.recordOf(w, phase, cfg))
}

// putDeleting writes that the endpoint is to go.
func (r *recorder) putDeleting(w *worker, cfg endpoint.DeleteConfig) error {
	err := r.put(w, ledger.Deleting, cfg)
	w.deleting = w.deleting || err == nil
	return err
}

// putHeld writes why the endpoint is held.
func (r *recorder) putHeld(w *worker, reason HoldReason) error {
	rec := r.recordOf(w, ledger.Held, endpoint.DeleteConfig{})
	rec.Held = string(reason)
	return r.ledger.Put(rec)
}

// putTombstone writes that nothing of the endpoint is left.
func (r *recorder) putTombstone(w *worker, cfg endpoint.DeleteConfig) error {
	return r.ledger.PutTombstone(r.recordOf(w, ledger.Tombstone, cfg))
}

// noteDeletion writes the deletion of an attachment that has no record.
func (r *recorder) noteDeletion(a endpoint.Attachment, began time.Duration) error {
	return r.ledger.NoteDeletion(ledger.DeletionNote{Attachment: a, Began: began, Boot: r.clock.boot()})
}

// expire forgets the deletions that were written before the given time.
func (r *recorder) expire(before time.Duration) error { return r.ledger.Expire(before, math.MaxInt64) }

// recordOf says of a deletion when the latest of those began that were asked for, whichever of them does it.
func (r *recorder) recordOf(w *worker, phase ledger.Phase, cfg endpoint.DeleteConfig) ledger.Record {
	if phase == ledger.Deleting || phase == ledger.Tombstone {
		cfg.Began = max(cfg.Began, r.registry.deletedAt(w.attachment))
	}
	return ledger.Record{Phase: phase, Endpoint: w.ep, Config: cfg, At: wallTime(), Boot: r.clock.boot(), Told: w.told}
}
