package endpointmanager

import (
	"fmt"
	"maps"
	"time"

	"porin.dev/porin/cells/endpoint"
)

// callOrder remembers when the latest calls began, by the boot clock: of two that contradict each other the later one
// is right. The registry's lock guards it, under which an attachment's worker is looked for, too: an ADD meets either
// the record of a DEL or the DEL.
//
// An ADD that began before its attachment was deleted, and arrives after that, is late: its runtime has given it up, and
// nobody would ever delete what it makes. The same holds for one that began before another container of its pod did.
// One that began afterwards is a new life.
type callOrder struct {
	deleted map[endpoint.Attachment]time.Duration // when the latest DEL began; one without an IfName is of the whole container
	newest  map[podInterface]latestAdd
}

// latestAdd is the latest ADD of an interface of a pod.
type latestAdd struct {
	began       time.Duration
	containerID string
}

func newCallOrder() callOrder {
	return callOrder{deleted: map[endpoint.Attachment]time.Duration{}, newest: map[podInterface]latestAdd{}}
}

// rememberDelete remembers a deletion that a caller began at that time; 0 is one that no caller asked for.
func (c *callOrder) rememberDelete(a endpoint.Attachment, began time.Duration) {
	if began > 0 {
		c.deleted[a] = max(c.deleted[a], began)
	}
}

// rememberAdd remembers an ADD that was not refused.
func (c *callOrder) rememberAdd(spec endpoint.Spec) {
	pod, ok := podInterfaceOf(spec)
	if ok && spec.Began >= c.newest[pod].began {
		c.newest[pod] = latestAdd{spec.Began, spec.Attachment.ContainerID}
	}
}

// refuse returns [ErrDeleted] or [ErrSuperseded] for an ADD that is late.
func (c *callOrder) refuse(spec endpoint.Spec) error {
	for _, a := range []endpoint.Attachment{spec.Attachment, {ContainerID: spec.Attachment.ContainerID}} {
		if deleted, ok := c.deleted[a]; ok && spec.Began < deleted {
			return fmt.Errorf("%w: this ADD began %s before the DEL", ErrDeleted, deleted-spec.Began)
		}
	}
	pod, _ := podInterfaceOf(spec)
	newer, ok := c.newest[pod]
	if ok && newer.containerID != spec.Attachment.ContainerID && spec.Began < newer.began {
		return fmt.Errorf("%w: this ADD began %s before that of container %.64s", ErrSuperseded, newer.began-spec.Began, newer.containerID)
	}
	return nil
}

// forget drops what began before the given time. alive reports whether an interface of a pod has an endpoint.
func (c *callOrder) forget(before time.Duration, alive func(podInterface) bool) {
	maps.DeleteFunc(c.deleted, func(_ endpoint.Attachment, began time.Duration) bool { return began < before })
	maps.DeleteFunc(c.newest, func(pod podInterface, b latestAdd) bool { return b.began < before && !alive(pod) })
}

// clock is CLOCK_BOOTTIME.
type clock struct{ boot func() time.Duration }

// startTime is when a caller began, as it says, but never in the future: nothing could come after that. A caller that does
// not say began now.
func (c *clock) startTime(began time.Duration) time.Duration {
	if now := c.boot(); began <= 0 || began > now {
		return now
	}
	return began
}

// wallTime is the time for people: a value that is the same after it was written to the ledger and read again.
func wallTime() time.Time { return time.Now().Round(0).UTC() }
