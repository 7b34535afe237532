package endpointmanager

import "porin.dev/porin/internal/fault"

// The faults that callers tell apart.
var (
	ErrNotFound  = fault.New(fault.NotFound, "no such endpoint")
	ErrAmbiguous = fault.New(fault.Conflict, "more than one endpoint")
	ErrStopped   = fault.New(fault.Unavailable, "the agent is starting or stopping")
	// ErrOtherNamespace is returned by a start with a ledger of another network namespace of this boot.
	ErrOtherNamespace = fault.New(fault.Conflict, "the agent runs in another network namespace than before")
	// ErrPending is that a deletion goes on after its caller's time, and may not be on record yet.
	ErrPending = fault.New(fault.Deadline, "the deletion is still under way")
	// ErrDeleted is what ends a creation that its attachment's deletion overtakes.
	ErrDeleted = fault.New(fault.Unavailable, "it was deleted meanwhile")
	// ErrSuperseded is what ends a creation that began before another one of its attachment, or for a newer container of
	// its pod, has taken its place.
	ErrSuperseded = fault.New(fault.Unavailable, "a newer ADD has taken its place")
	ErrNoID       = fault.New(fault.Exhausted, "all endpoint numbers of the node are in use (see --max-endpoints)")
	// ErrAddressNotTaken is what a Step's Restore wraps when the endpoint's address could not be taken again: the
	// deletion that follows must not release it.
	ErrAddressNotTaken = fault.New(fault.Conflict, "the address could not be taken again")
	ErrInUse           = fault.WithHint(fault.New(fault.Conflict, "in use by another endpoint"), "delete that one, or wait until it is deleted")
)
