package cluster

import (
	"time"

	"porin.dev/porin/cells/store"
)

// Position is a place in the history of the store.
type Position = store.Position

// Record is what holds for the cluster as a whole.
type Record struct {
	// ID is random. Another ID is another cluster: the store was wiped.
	ID string `json:"id"`
	// Epoch counts the recoveries that have begun.
	Epoch    uint64    `json:"epoch"`
	Recovery *Recovery `json:"recovery,omitempty"` // nil when none is under way
	// Removed are the keys of the nodes that were deleted last, so that nobody takes their absence for a loss.
	Removed []string `json:"removed,omitempty"`

	Version Version `json:"-"`
}

// Recovery is under way after the store has gone back, as by a restore from a backup: nobody claims blocks until every node has
// confirmed the ones that it uses.
type Recovery struct {
	Began  time.Time `json:"began"`
	Reason string    `json:"reason"`
	// Excluded are nodes that an administrator does not wait for, as NAME/KEY.
	Excluded []string `json:"excluded,omitempty"`
}

// maxRemoved bounds Record.Removed: 12 KiB.
const maxRemoved = 1000

// Remove notes that a node was deleted.
func (r *Record) Remove(id NodeID) {
	r.Removed = append(r.Removed, id.Key)
	if n := len(r.Removed) - maxRemoved; n > 0 {
		r.Removed = r.Removed[n:]
	}
}
