package datapath

import (
	"porin.dev/porin/cells/link"
	"porin.dev/porin/internal/fault"
)

// The faults of an endpoint.
var (
	ErrNoLink       = link.ErrNoLink
	ErrForeignLink  = link.ErrForeign
	ErrAddress      = fault.New(fault.Invalid, "not an address that a container can have")
	ErrAddressInUse = fault.New(fault.Conflict, "address belongs to another link")
	ErrFull         = fault.New(fault.Exhausted, "no room in the BPF maps (see --max-endpoints)")
)

// errUpdated is returned when an endpoint came while something stale was to be removed.
var errUpdated = fault.New(fault.Unavailable, "an endpoint was attached meanwhile")

// ErrNotStarted is returned before Start and after Stop. Package loader has the faults of a start.
var ErrNotStarted = fault.New(fault.Unavailable, "datapath is not running")
