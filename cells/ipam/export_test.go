package ipam

import "time"

// Later has the clock of an allocator go forward, for stories, which wait for nothing.
func Later(n Node, by time.Duration) {
	a := n.Allocator.(*allocator)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.start = a.start.Add(-by)
}
