package endpointmanager

import (
	"fmt"
	"maps"
	"time"
)

// An ADD that began before its attachment was deleted, and arrives after that, is late: its runtime has given it up, and
// nobody would ever delete what it makes. One that began afterwards is a new life. Tombstones carry what is noted here
// over a restart.

// noteDeletion remembers a deletion that a caller began at that time of CLOCK_BOOTTIME; 0 is one that no caller asked
// for. It expects the lock under which the attachment's worker is looked for: an ADD meets either the note or the DEL.
func (m *manager) noteDeletion(a Attachment, began time.Duration) {
	if began > 0 {
		m.deletedAt[a] = max(m.deletedAt[a], began)
	}
}

// refuseLate returns [ErrDeleted] for an ADD that is late. One that does not say when it began is not. It expects the
// lock.
func (m *manager) refuseLate(spec Spec) error {
	if deleted, ok := m.deletedAt[spec.Attachment]; ok && spec.Began > 0 && spec.Began < deleted {
		return fmt.Errorf("%w: this ADD began %s before the DEL", ErrDeleted, deleted-spec.Began)
	}
	return nil
}

// forgetDeletions forgets those that began before the given time.
func (m *manager) forgetDeletions(before time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.DeleteFunc(m.deletedAt, func(_ Attachment, began time.Duration) bool { return began < before })
}
