// Package ledger is the agent's record of endpoints on disk: endpoints that are being made, are there, are being
// deleted, or were deleted lately.
package ledger

import (
	"time"

	"porin.dev/porin/cells/endpoint"
)

// Ledger is the node's crash-safe record of attachments. The write of a method that returns nil outlives the
// process.
type Ledger interface {
	// Put writes the record in place of what was there of the same attachment.
	Put(rec Record) error
	// PutAll is Put of all records or of none.
	PutAll(recs []Record) error
	// PutTombstone moves the attachment to the tombstones, in one transaction.
	PutTombstone(rec Record) error
	// RecordDeletion remembers the deletion of an attachment without a record: the deletion that began last.
	RecordDeletion(n DeletionNote) error
	// Expire forgets the tombstones and notes written before oldest, and after newest: those are of another boot.
	Expire(oldest, newest time.Duration) error
	// Attachments returns the records, ordered by attachment.
	Attachments() ([]Record, error)
	// Tombstones returns the tombstones that are not expired, the oldest first.
	Tombstones() ([]Record, error)
	// DeletionNotes returns the notes that are not expired, ordered by attachment.
	DeletionNotes() ([]DeletionNote, error)
	// Origin returns the boot and namespace of the ledger, or the zero Origin when it does not say.
	Origin() (Origin, error)
	SetOrigin(o Origin) error
	// Probe writes a value that is never read, and reports whether it could.
	Probe() error
	// Lost reports that writes go with this process: the file was removed ([ErrRemoved]), or another file has
	// its place.
	Lost() error
	Path() string
	Close() error
}

// Phase says what is to be done about a record after a crash.
type Phase string

// The phases.
const (
	Intent    Phase = "intent"
	Committed Phase = "committed"
	Deleting  Phase = "deleting"
	Held      Phase = "held"
	Tombstone Phase = "buried" // of a tombstone
)

// Record is a value of the ledger. It is JSON, so that a person can read it and a later version extend it.
type Record struct {
	Phase    Phase
	Endpoint endpoint.Endpoint
	Config   endpoint.DeleteConfig // of phase deleting, and of a tombstone
	At       time.Time             // when the record was written, for people
	Boot     time.Duration         // the same on CLOCK_BOOTTIME
	Told     bool                  // subscribers have heard of the endpoint
	Held     string                `json:",omitempty"` // of phase held
}

// DeletionNote is the deletion of an attachment that has no other record, or of a whole container when it has no
// IfName.
type DeletionNote struct {
	Attachment  endpoint.Attachment
	Began, Boot time.Duration // when the deletion began, and when this was written
}

// Origin is the boot of the node and the network namespace that a ledger speaks of. A ledger from before origins were
// written has the zero Origin.
type Origin struct {
	Boot  string // as internal/boottime.ID
	NetNS uint64 // its cookie
}
