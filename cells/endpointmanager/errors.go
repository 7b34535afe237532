package endpointmanager

import (
	"errors"

	"porin.dev/porin/internal/fault"
)

// The faults that callers tell apart.
var (
	ErrNotFound  = fault.New(fault.NotFound, "no such endpoint")
	ErrAmbiguous = fault.New(fault.Conflict, "more than one endpoint")
	ErrStopped   = fault.New(fault.Unavailable, "the agent is starting or stopping")
	// ErrNotReady is returned while the endpoint is being made or taken down.
	ErrNotReady = fault.New(fault.Conflict, "the endpoint is not ready")
	// ErrOtherNamespace is returned by a start with a ledger of another network namespace of this boot.
	ErrOtherNamespace = fault.New(fault.Conflict, "the agent runs in another network namespace than before")
	// ErrPending is returned when a deletion goes on after its caller's time, and may not be on record yet.
	ErrPending = fault.New(fault.Deadline, "the deletion is still under way")
	// ErrDeleted ends a creation that the deletion of its attachment overtakes.
	ErrDeleted = fault.New(fault.Unavailable, "it was deleted meanwhile")
	// ErrSuperseded ends a creation when a later creation has its place: of its attachment, or of a newer container of its
	// pod.
	ErrSuperseded = fault.New(fault.Unavailable, "a newer ADD has taken its place")
	ErrNoID       = fault.New(fault.Exhausted, "all endpoint numbers of the node are in use (see --max-endpoints)")
	// ErrAddressNotTaken is wrapped by a Step's Restore that could not take the endpoint's address again: the
	// following deletion must not release it.
	ErrAddressNotTaken = fault.New(fault.Conflict, "the address could not be taken again")
	ErrInUse           = fault.WithHint(fault.New(fault.Conflict, "in use by another endpoint"), "delete that one, or wait until it is deleted")
)

// IgnoreNotReady returns nil for the errors of a call that a DEL overtook: [ErrNotReady] and [ErrNotFound].
func IgnoreNotReady(err error) error {
	if errors.Is(err, ErrNotReady) || errors.Is(err, ErrNotFound) {
		return nil
	}
	return err
}
