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
	ErrFull         = fault.New(fault.Exhausted, "no room in the BPF maps (see --datapath-max-endpoints)")
)

// errPut is that an endpoint came while something was to be removed as nobody's.
var errPut = fault.New(fault.Unavailable, "an endpoint was attached meanwhile")

// The faults of the node.
var (
	ErrNotStarted   = fault.New(fault.Unavailable, "datapath is not running")
	ErrNoBPFFS      = fault.New(fault.Unavailable, "not on a BPF file system")
	ErrIncompatible = fault.New(fault.Conflict, "pinned map does not fit this agent")
	ErrKernel       = fault.New(fault.Unavailable, "kernel lacks what Porin needs")
	ErrRootInUse    = fault.New(fault.Conflict, "another process has it open; one agent a bpf-root: end the other one or give this one its own")
)
