package capacity

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	v1 "porin.dev/porin/api/v1"
)

// Capacity watches the resources of all sources. Its methods may be called concurrently.
type Capacity struct {
	sources []Source
	ctx     context.Context // ends when the loop is to end
	cancel  context.CancelFunc
	loop    sync.WaitGroup

	mu        sync.Mutex // guards the fields below
	histories map[string]history
	sampled   []v1.Resource // at the last sample
	broken    string        // at the last sample: see Broken
}

// New makes a watch that has seen nothing yet.
func New(sources ...Source) *Capacity {
	c := &Capacity{sources: sources, histories: map[string]history{}}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	return c
}

// Start takes a sample now and every few seconds, until Stop. It is called once.
func (c *Capacity) Start() {
	c.loop.Go(func() {
		tick := time.NewTicker(sampleInterval)
		defer tick.Stop()
		for {
			c.sample()
			select {
			case <-c.ctx.Done():
				return
			case <-tick.C:
			}
		}
	})
}

// Stop ends what Start began, and waits for it. Without a Start it does nothing.
func (c *Capacity) Stop() {
	c.cancel()
	c.loop.Wait()
}

func (c *Capacity) sample() {
	found, now := c.read(), time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range found {
		if r.Capacity > 0 {
			c.histories[r.Name] = c.histories[r.Name].with(sample{now, r.Used})
		}
	}
	c.sampled, c.broken = c.assess(found), ""
	for _, r := range found {
		if r.Vital && r.Err != nil {
			c.broken = r.Name + ": " + r.Err.Error()
			break
		}
	}
}

// Broken is why no container can be attached, for a lasting reason, as of the last sample; "" when nothing prevents it. It
// does not block.
func (c *Capacity) Broken() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.broken
}

// Resources are all resources as they are now, by name.
func (c *Capacity) Resources() []v1.Resource {
	found := c.read()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.assess(found)
}

func (c *Capacity) read() (all []Resource) {
	for _, source := range c.sources {
		all = append(all, source.Resources()...)
	}
	slices.SortFunc(all, func(a, b Resource) int { return cmp.Compare(a.Name, b.Name) })
	return all
}

// assess judges what was read. It expects the lock.
func (c *Capacity) assess(found []Resource) []v1.Resource {
	all := []v1.Resource{}
	for _, r := range found {
		reason := r.lack()
		all = append(all, v1.Resource{
			Name: r.Name, Used: r.Used, Capacity: r.Capacity, Available: reason == "", Reason: reason,
			ExhaustedIn: exhaustedIn(r.Capacity-r.Used, c.histories[r.Name].growth()),
		})
	}
	return all
}

// lack is why it is not available; "" when it is.
func (r Resource) lack() string {
	left := max(r.Capacity-r.Used, 0)
	switch {
	case r.Err != nil:
		return r.Err.Error()
	case r.Capacity <= 0 || left >= r.Reserve:
		return ""
	case r.Reserve > 1:
		return fmt.Sprintf("%d of %d left, and %d are held back", left, r.Capacity, r.Reserve)
	}
	return fmt.Sprintf("%d of %d left", left, r.Capacity)
}

// Report is server.Reporter.
func (c *Capacity) Report(status *v1.Status) { status.Resources = c.Resources() }
