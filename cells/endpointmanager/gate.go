package endpointmanager

import "sync"

// gate says whether endpoints may be changed now. Its methods may be called concurrently.
type gate struct {
	mu      sync.Mutex // guards the fields below
	stopped bool       // or not started yet
	closed  bool       // stopped, and no worker may begin
}

// newGate returns the gate of a manager that has not started.
func newGate() *gate { return &gate{stopped: true} }

// open lets changes in.
func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.stopped = false
}

// close lets no change in any more. What is under way goes on.
func (g *gate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.stopped, g.closed = true, true
}

func (g *gate) isStopped() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.stopped
}

func (g *gate) isClosed() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.closed
}

// refusal is [ErrStopped] when nothing is changed now, or nil.
func (g *gate) refusal() error {
	if g.isStopped() {
		return ErrStopped
	}
	return nil
}
