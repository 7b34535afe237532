package endpointmanager

import (
	"maps"
	"slices"
	"sync"

	"porin.dev/porin/cells/endpoint"
)

// creations are those under way, also before they have a worker. The methods may be called concurrently.
type creations struct {
	mu    sync.Mutex // guards the field below
	count map[endpoint.Attachment]int
}

func newCreations() *creations { return &creations{count: map[endpoint.Attachment]int{}} }

// begin lets others know of a creation until it is over.
func (c *creations) begin(a endpoint.Attachment) (over func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.count[a]++
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.count[a]--; c.count[a] == 0 {
			delete(c.count, a)
		}
	}
}

func (c *creations) list() []endpoint.Attachment {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Collect(maps.Keys(c.count))
}
