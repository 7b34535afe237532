package endpointmanager

import (
	"fmt"
	"maps"
	"time"
)

// history is what is remembered of lives that are over, by the boot clock. The manager's lock guards it, and it is the
// lock under which an attachment's worker is looked for: an ADD meets either the note of a DEL or the DEL.
//
// An ADD that began before its attachment was deleted, and arrives after that, is late: its runtime has given it up, and
// nobody would ever delete what it makes. The same holds for one that began before another container of its pod did.
// One that began afterwards is a new life.
type history struct {
	deleted map[Attachment]time.Duration // when the latest DEL began; one without an IfName is of the whole container
	newest  map[podInterface]birth
}

// birth is the latest ADD of an interface of a pod.
type birth struct {
	began       time.Duration
	containerID string
}

func newHistory() history {
	return history{deleted: map[Attachment]time.Duration{}, newest: map[podInterface]birth{}}
}

// noteDeletion remembers a deletion that a caller began at that time; 0 is one that no caller asked for.
func (h *history) noteDeletion(a Attachment, began time.Duration) {
	if began > 0 {
		h.deleted[a] = max(h.deleted[a], began)
	}
}

// noteBirth remembers an ADD that was not refused.
func (h *history) noteBirth(spec Spec) {
	pod, ok := podInterfaceOf(spec)
	if ok && spec.Began >= h.newest[pod].began {
		h.newest[pod] = birth{spec.Began, spec.Attachment.ContainerID}
	}
}

// refuse returns [ErrDeleted] or [ErrSuperseded] for an ADD that is late.
func (h *history) refuse(spec Spec) error {
	for _, a := range []Attachment{spec.Attachment, {ContainerID: spec.Attachment.ContainerID}} {
		if deleted, ok := h.deleted[a]; ok && spec.Began < deleted {
			return fmt.Errorf("%w: this ADD began %s before the DEL", ErrDeleted, deleted-spec.Began)
		}
	}
	pod, _ := podInterfaceOf(spec)
	newer, ok := h.newest[pod]
	if ok && newer.containerID != spec.Attachment.ContainerID && spec.Began < newer.began {
		return fmt.Errorf("%w: this ADD began %s before that of container %s", ErrSuperseded, newer.began-spec.Began, clip(newer.containerID))
	}
	return nil
}

// forget drops what began before the given time. alive tells whether an interface of a pod has an endpoint.
func (h *history) forget(before time.Duration, alive func(podInterface) bool) {
	maps.DeleteFunc(h.deleted, func(_ Attachment, began time.Duration) bool { return began < before })
	maps.DeleteFunc(h.newest, func(pod podInterface, b birth) bool { return b.began < before && !alive(pod) })
}
