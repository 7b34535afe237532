package cluster

import (
	"cmp"
	"net/netip"
	"slices"
	"time"
)

// Block is the claim of a node to a part of a pool. Its name is the CIDR, so a block has one owner.
type Block struct {
	CIDR    netip.Prefix `json:"cidr"`
	Pool    string       `json:"pool"`
	PoolUID string       `json:"poolUID"`
	Owner   NodeID       `json:"owner"`
	// Claim is random for every claim. Who deletes the block names it, so that a late deletion never ends a later claim.
	Claim   string    `json:"claim"`
	Created time.Time `json:"created"`

	Deleting bool `json:"-"`
}

// SortedBlocks returns the blocks in the order of their addresses.
func SortedBlocks(blocks []Block) []Block {
	return slices.SortedFunc(slices.Values(blocks), func(a, b Block) int {
		return cmp.Or(a.CIDR.Addr().Compare(b.CIDR.Addr()), cmp.Compare(a.CIDR.Bits(), b.CIDR.Bits()))
	})
}
