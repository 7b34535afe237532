package hostfilter

import (
	"encoding/binary"
	"maps"
	"net/netip"
	"slices"

	"porin.dev/porin/internal/nft"
)

// numbers has the number in the table of each address's group. A change, and a new agent, keep the number of a group
// that loses no address, so that nothing is written but what differs. Any other group gets a number that no address
// has: a packet whose group was looked up before the change must not find the rows of another group.
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

// next returns the numbers after a change.
func (n numbers) next(groups map[netip.Addr]Group) (byAddress numbers, byGroup map[Group]uint32) {
	members, used := map[uint32][]netip.Addr{}, map[uint32]bool{0: true}
	for addr, number := range n {
		members[number], used[number] = append(members[number], addr), true
	}
	byGroup = map[Group]uint32{}
	for _, number := range slices.Sorted(maps.Keys(members)) {
		group, ok := groups[members[number][0]]
		stays := ok && !slices.ContainsFunc(members[number], func(addr netip.Addr) bool {
			other, ok := groups[addr]
			return !ok || other != group
		})
		if _, taken := byGroup[group]; stays && !taken {
			byGroup[group] = number
		}
	}
	byAddress = numbers{}
	free := uint32(0)
	for _, addr := range slices.SortedFunc(maps.Keys(groups), netip.Addr.Compare) {
		group := groups[addr]
		if _, ok := byGroup[group]; !ok {
			for used[free] {
				free++
			}
			byGroup[group], used[free] = free, true
		}
		byAddress[addr] = byGroup[group]
	}
	return byAddress, byGroup
}

// groupsOf is the map that has the address.
func groupsOf(addr netip.Addr) *nft.Set {
	if addr.Is4() {
		return groups[nft.IPv4.Name]
	}
	return groups[nft.IPv6.Name]
}
