package loader

import "porin.dev/porin/internal/fault"

// Why a start fails.
var (
	ErrNoBPFFS      = fault.New(fault.Unavailable, "not on a BPF file system")
	ErrIncompatible = fault.New(fault.Conflict, "pinned map does not fit this agent")
	ErrKernel       = fault.New(fault.Unavailable, "kernel lacks what Porin needs")
	ErrRootInUse    = fault.New(fault.Conflict, "another process has it open; one agent a bpf-root: end the other one or give this one its own")
)
