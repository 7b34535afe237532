package endpointmanagertest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/endpointmanager"
)

// calls knows which creations are under way, and when the latest calls began: of two that contradict each other the
// later one is right.
type calls struct {
	mu       sync.Mutex // guards the fields below
	creating []*creation
	deleted  map[endpoint.Attachment]time.Duration // one without an IfName is of the whole container
	latest   map[podInterface]endpoint.Spec        // the ADD that began last
}

type creation struct {
	spec endpoint.Spec
	end  context.CancelCauseFunc
}

// podInterface is what only one attachment at a time can be.
type podInterface struct{ uid, ifName string }

func newCalls() *calls {
	return &calls{deleted: map[endpoint.Attachment]time.Duration{}, latest: map[podInterface]endpoint.Spec{}}
}

// announce returns a context that ends when the attachment is deleted.
func (c *calls) announce(parent context.Context, spec endpoint.Spec) (ctx context.Context, over func()) {
	ctx, end := context.WithCancelCause(parent)
	this := &creation{spec, end}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.creating = append(c.creating, this)
	return ctx, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		end(nil)
		c.creating = slices.DeleteFunc(c.creating, func(other *creation) bool { return other == this })
	}
}

// recordAdd remembers an ADD, or refuses a late ADD.
func (c *calls) recordAdd(spec endpoint.Spec) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, a := range []endpoint.Attachment{spec.Attachment, {ContainerID: spec.Attachment.ContainerID}} {
		if spec.Began < c.deleted[a] {
			return fmt.Errorf("%w: this ADD began before the DEL", endpointmanager.ErrDeleted)
		}
	}
	if spec.Pod.UID == "" {
		return nil
	}
	pod := podInterface{spec.Pod.UID, spec.Attachment.IfName}
	latest := c.latest[pod]
	if spec.Began < latest.Began {
		if latest.Attachment != spec.Attachment {
			return fmt.Errorf("%w: this ADD began before that of container %s", endpointmanager.ErrSuperseded, latest.Attachment.ContainerID)
		}
		return nil
	}
	c.latest[pod] = spec
	return nil
}

// recordDelete remembers the deletion of an attachment, or of a container, and ends the creations that began before.
func (c *calls) recordDelete(a endpoint.Attachment, began time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deleted[a] = max(c.deleted[a], began)
	for _, creation := range c.creating {
		same := creation.spec.Attachment == a || a.IfName == "" && creation.spec.Attachment.ContainerID == a.ContainerID
		if same && creation.spec.Began <= began {
			creation.end(endpointmanager.ErrDeleted)
		}
	}
}
