package hostfilter

import (
	"encoding/binary"
	"maps"
	"net/netip"
	"slices"

	"porin.dev/porin/internal/nft"
)

// numbers has the number that the table has for each address's group.
type numbers map[netip.Addr]uint32

// numbersIn reads them from a table.
func numbersIn(have nft.State) numbers {
	n := numbers{}
	for _, set := range groups {
		for _, e := range have[set] {
			if addr, ok := netip.AddrFromSlice([]byte(e.Key)); ok && len(e.Value) == 4 {
				n[addr] = binary.NativeEndian.Uint32([]byte(e.Value))
			}
		}
	}
	return n
}

// next returns the number of each group after a change. A group that loses no address keeps its number, also with a new
// agent, so that only what differs is written. Any other group gets a number that no address has: a packet whose group
// was looked up before the change must not find the rows of another group.
func (n numbers) next(groups map[netip.Addr]Group) map[Group]uint32 {
	members, used := map[uint32][]netip.Addr{}, map[uint32]bool{0: true}
	for addr, number := range n {
		members[number], used[number] = append(members[number], addr), true
	}
	next := map[Group]uint32{}
	for _, number := range slices.Sorted(maps.Keys(members)) {
		group, ok := groups[members[number][0]]
		stays := ok && !slices.ContainsFunc(members[number], func(addr netip.Addr) bool {
			other, ok := groups[addr]
			return !ok || other != group
		})
		if _, taken := next[group]; stays && !taken {
			next[group] = number
		}
	}
	free := uint32(0)
	for _, addr := range slices.SortedFunc(maps.Keys(groups), netip.Addr.Compare) {
		if _, ok := next[groups[addr]]; ok {
			continue
		}
		for used[free] {
			free++
		}
		next[groups[addr]], used[free] = free, true
	}
	return next
}

// groupsOf is the map that has the address.
func groupsOf(addr netip.Addr) *nft.Set {
	if addr.Is4() {
		return groups[nft.IPv4.Name]
	}
	return groups[nft.IPv6.Name]
}
