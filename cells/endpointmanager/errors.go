package endpointmanager

import "porin.dev/porin/internal/fault"

// The faults that callers tell apart.
var (
	ErrNotFound  = fault.New(fault.NotFound, "no such endpoint")
	ErrAmbiguous = fault.New(fault.Conflict, "more than one endpoint")
	ErrStopped   = fault.New(fault.Unavailable, "the agent is stopping")
	ErrNoID      = fault.New(fault.Exhausted, "all 65535 endpoint numbers of the node are in use")
	// ErrAddressNotTaken is what a Step's Restore wraps when the endpoint's address could not be taken again: the
	// deletion that follows must not release it.
	ErrAddressNotTaken = fault.New(fault.Conflict, "the address could not be taken again")
	ErrInUse           = fault.New(fault.Conflict, "in use by another endpoint")
)
