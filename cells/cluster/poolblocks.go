package cluster

import (
	"encoding/binary"
	"net/netip"
	"slices"
)

// Family is an address family.
type Family int

// The address families.
const (
	IPv4 Family = iota
	IPv6
)

// Families are all families, IPv4 first.
var Families = [...]Family{IPv4, IPv6}

// FamilyOf returns the family of the address.
func FamilyOf(addr netip.Addr) Family {
	if addr.Is4() {
		return IPv4
	}
	return IPv6
}

// String is ipv4 or ipv6.
func (f Family) String() string {
	if f == IPv4 {
		return "ipv4"
	}
	return "ipv6"
}

// BlockBits is the prefix length of the pool's blocks of a family.
func (p Pool) BlockBits(f Family) int {
	if f == IPv4 {
		return p.IPv4BlockBits
	}
	return p.IPv6BlockBits
}

// maxBlocks bounds what [Pool.Blocks] counts.
const maxBlocks = 1 << 62

// Blocks counts the blocks of a family that have a usable address, at most 1<<62.
func (p Pool) Blocks(f Family) uint64 { return p.UsableBlocks(f).Len() }

// Block returns block i of the blocks that Blocks counts. For many of them, [Pool.UsableBlocks] is faster.
func (p Pool) Block(f Family, i uint64) netip.Prefix { return p.UsableBlocks(f).At(i) }

// BlockList are the blocks of a family of a pool that have a usable address, in an order that stays. It takes some time
// to make: once for a search.
type BlockList struct {
	bits  int
	parts []netip.Prefix
	ends  []uint64 // of each part: how many blocks it and those before it have
}

// UsableBlocks returns the blocks of a family that have a usable address.
func (p Pool) UsableBlocks(f Family) BlockList {
	l, n := BlockList{bits: p.BlockBits(f)}, uint64(0)
	for _, prefix := range p.Prefixes {
		if FamilyOf(prefix.Addr()) == f {
			l.parts = appendUsable(l.parts, prefix, l.bits, p.Exclude)
		}
	}
	for _, part := range l.parts {
		n = min(n+blocksIn(part, l.bits), maxBlocks)
		l.ends = append(l.ends, n)
	}
	return l
}

// Len counts the blocks, at most 1<<62.
func (l BlockList) Len() uint64 {
	if len(l.ends) == 0 {
		return 0
	}
	return l.ends[len(l.ends)-1]
}

// At returns block i, or the zero prefix when there are not so many.
func (l BlockList) At(i uint64) netip.Prefix {
	at, _ := slices.BinarySearch(l.ends, i+1)
	if at == len(l.parts) {
		return netip.Prefix{}
	}
	if at > 0 {
		i -= l.ends[at-1]
	}
	return subnet(l.parts[at].Addr(), l.bits, i)
}

// Usable reports whether a block has an address that is not excluded.
func (p Pool) Usable(cidr netip.Prefix) bool {
	return len(appendUsable(nil, cidr, cidr.Addr().BitLen(), p.Exclude)) > 0
}

// Draining reports whether the block was taken out of its pool, or is excluded. The addresses of a pending pool are no
// pool's yet.
func (p Pool) Draining(b Block) bool {
	return p.UID == b.PoolUID && p.State != PoolPending && (!p.HasBlock(b.CIDR) || !p.Usable(b.CIDR))
}

// Excluded reports whether the address is never given out.
func (p Pool) Excluded(addr netip.Addr) bool {
	return slices.ContainsFunc(p.Exclude, func(e netip.Prefix) bool { return e.Contains(addr) })
}

// appendUsable appends the prefix, or those parts of it, of the size of a block or larger, in which not every address
// is excluded.
func appendUsable(parts []netip.Prefix, prefix netip.Prefix, blockBits int, exclude []netip.Prefix) []netip.Prefix {
	var inside []netip.Prefix
	for _, e := range exclude {
		if e.Overlaps(prefix) {
			if e.Bits() <= prefix.Bits() {
				return parts
			}
			inside = append(inside, e)
		}
	}
	if len(inside) == 0 {
		return append(parts, prefix)
	}
	if prefix.Bits() >= blockBits {
		if len(appendUsable(nil, prefix, prefix.Addr().BitLen(), inside)) > 0 {
			parts = append(parts, prefix)
		}
		return parts
	}
	for half := range uint64(2) {
		parts = appendUsable(parts, subnet(prefix.Addr(), prefix.Bits()+1, half), blockBits, inside)
	}
	return parts
}

// blocksIn is 0 for a prefix that is smaller than a block, which no valid pool has.
func blocksIn(prefix netip.Prefix, bits int) uint64 {
	if bits < prefix.Bits() {
		return 0
	}
	return 1 << min(bits-prefix.Bits(), 62)
}

// subnet returns the i-th prefix of the length, counted from an address.
func subnet(from netip.Addr, bits int, i uint64) netip.Prefix {
	shift := from.BitLen() - bits
	if from.Is4() {
		raw := from.As4()
		binary.BigEndian.PutUint32(raw[:], binary.BigEndian.Uint32(raw[:])+uint32(i<<shift))
		return netip.PrefixFrom(netip.AddrFrom4(raw), bits)
	}
	raw := from.As16()
	high, low := binary.BigEndian.Uint64(raw[:8]), binary.BigEndian.Uint64(raw[8:])
	if shift >= 64 {
		high += i << (shift - 64)
	} else {
		sum := low + i<<shift
		if sum < low {
			high++
		}
		low = sum
		if shift > 0 {
			high += i >> (64 - shift)
		}
	}
	binary.BigEndian.PutUint64(raw[:8], high)
	binary.BigEndian.PutUint64(raw[8:], low)
	return netip.PrefixFrom(netip.AddrFrom16(raw), bits)
}
