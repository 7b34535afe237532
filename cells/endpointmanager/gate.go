package endpointmanager

import "sync"

// gate says whether endpoints may be changed now. Its methods may be called concurrently.
type gate struct {
	mu        sync.Mutex // guards the fields below
	stopped   bool       // or not started yet
	closed    bool       // stopped, and no worker may begin
	suspended bool       // the ledger is of another network namespace
	resuming  bool       // suspended, and about to go on
}

// newGate returns the gate of a manager that has not started.
func newGate() *gate { return &gate{stopped: true} }

// open lets changes in, unless they are suspended.
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

// suspend refuses all changes until the ledger is known to be of this network namespace.
func (g *gate) suspend() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.suspended = true
}

// isSuspended is false while the agent goes on again.
func (g *gate) isSuspended() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.suspended && !g.resuming
}

// refusal is why nothing is changed now, which wraps [ErrStopped]; or nil.
func (g *gate) refusal() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.stopped:
		return ErrStopped
	case g.suspended:
		return ErrSuspended
	}
	return nil
}
