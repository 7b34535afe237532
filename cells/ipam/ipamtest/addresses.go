// Package ipamtest has the addresses of a node for tests of others, and the test of what gives them out.
package ipamtest

import (
	"testing"

	"porin.dev/porin/cells/ipam"
	"porin.dev/porin/cells/ipam/allocator"
)

// Addresses are the addresses of a node in memory, and the step that gives them out. It is the real step on the real
// allocator, which does no I/O: without a file of reservations, and without other IPAM plugins. Nothing deletes tracked
// connections.
type Addresses struct {
	*ipam.Step
	Allocator *allocator.Allocator
}

// New returns the addresses of the prefixes, none given out.
func New(t testing.TB, prefixes ...string) Addresses {
	t.Helper()
	cfg := ipam.DefaultConfig()
	cfg.PodCIDRs = prefixes
	a, err := ipam.New(cfg, nil)
	if err != nil {
		t.Fatal(err)
	}
	return Addresses{ipam.NewStep(allocator.NewSource(a, nil)), a}
}
