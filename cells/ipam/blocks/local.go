package blocks

import (
	"net/netip"
	"time"

	"porin.dev/porin/internal/fault"
)

// ErrInUse is that a block has addresses that are in use, or rest.
var ErrInUse = fault.New(fault.Conflict, "addresses of the block are in use")

// Local gives out the addresses of the blocks that this node owns. No method blocks.
type Local interface {
	// Configure says how the addresses of a pool are given out, before the first Add and whenever that changes.
	Configure(pool Pool)
	// Forget says that there is no such pool any more. What is in use of it stays.
	Forget(pool string)
	// Add lets a block be given out from, but for what is in use of it already. One that is there is left as it is, but is
	// drained no longer; one of which a part is there is the whole of it from now on.
	Add(pool string, block netip.Prefix) error
	// Drain ends that anything is given out from a block. What is in use stays.
	Drain(pool string, block netip.Prefix)
	// Remove takes away a block, or half of one, of which nothing is in use or rests; else it is [ErrInUse], and nothing
	// changes.
	Remove(pool string, block netip.Prefix) error
	// Usage returns the blocks of a pool, in no order.
	Usage(pool string) []Usage
	// Low says who is told when a pool comes to have fewer free addresses of a family than so many. tell does not block.
	Low(below int, tell func())
	// Wanted returns the pools that somebody has asked for addresses of, and those that it has blocks of.
	Wanted() []string
	// Until says until when anything may be given out at all, by the boot clock.
	Until(deadline time.Duration)
}

// Usage is what is given out of a block. What is left is Capacity - Used - Resting.
type Usage struct {
	Block                   netip.Prefix
	Capacity, Used, Resting int
	Drained                 bool
}

func (u Usage) free() int {
	if u.Drained {
		return 0
	}
	return u.Capacity - u.Used - u.Resting
}

func (u Usage) empty() bool { return u.Used == 0 && u.Resting == 0 }
