package main

import (
	"fmt"
	"math/bits"

	v1 "porin.dev/porin/api/v1"
)

// ownedText is "3 of 1024", and "" for a family that the pool has not.
func ownedText(p v1.PoolSpec, family string) string {
	for _, use := range p.Use {
		if use.Family == family {
			return fmt.Sprintf("%d of %s", use.Owned, blockCount(use.Blocks))
		}
	}
	return ""
}

// useLine is "3 of 1024 blocks owned, by 2 nodes; 1021 free".
func useLine(use v1.PoolUse) string {
	return fmt.Sprintf("%d of %s blocks owned, by %s; %s free", use.Owned, blockCount(use.Blocks), count(use.Nodes, "node"), blockCount(use.Blocks-use.Owned))
}

// blockCount is about how many there are: of those of a large IPv6 prefix nobody wants to read the digits.
func blockCount(n int64) string {
	const readable = 1 << 24
	if n <= readable {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("2^%d", bits.Len64(uint64(n-1))) // 2^58 less a few is 2^58
}

func familyName(family string) string {
	if family == "ipv6" {
		return "IPv6"
	}
	return "IPv4"
}
