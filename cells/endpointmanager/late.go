package endpointmanager

import (
	"fmt"
	"maps"
	"sync"
	"time"
)

// deletions remembers when attachments were last deleted at a caller's wish. An ADD that began before that and
// arrives after it is late: its runtime has given it up, and nobody would ever delete what it makes. One that began
// afterwards is a new life. Tombstones carry the memory over a restart.
type deletions struct {
	mu sync.Mutex // guards the field below
	at map[Attachment]time.Duration
}

func newDeletions() *deletions { return &deletions{at: map[Attachment]time.Duration{}} }

// remember notes a deletion that began at the given time of CLOCK_BOOTTIME; 0 is one that no caller asked for.
func (d *deletions) remember(a Attachment, began time.Duration) {
	if began <= 0 {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.at[a] = max(d.at[a], began)
}

// refuse returns [ErrDeleted] for an ADD that is late. One that does not say when it began is not.
func (d *deletions) refuse(spec Spec) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if deleted, ok := d.at[spec.Attachment]; ok && spec.Began > 0 && spec.Began < deleted {
		return fmt.Errorf("%w: this ADD began %s before the DEL", ErrDeleted, deleted-spec.Began)
	}
	return nil
}

// expire forgets deletions that began before the given time.
func (d *deletions) expire(before time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	maps.DeleteFunc(d.at, func(_ Attachment, began time.Duration) bool { return began < before })
}
