package hostfilter

import (
	"cmp"
	"encoding/binary"
	"maps"
	"net/netip"
	"slices"

	"porin.dev/porin/internal/nft"
)

// numbers has the number in the table of each address's group. A change, and a new agent, keep the numbers that
// addresses have, so that nothing is written but what differs. A new group gets a number that no address has: a packet
// whose group was looked up before the change finds the rows of that group, or none.
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

// next returns the numbers after a change. Of the groups that have an address with a number, the one with most of them
// keeps it.
func (n numbers) next(groups map[netip.Addr]Group) (byAddress numbers, byGroup map[Group]uint32) {
	type claim struct {
		group  Group
		number uint32
	}
	count, first := map[claim]int{}, map[Group]netip.Addr{}
	for addr, group := range groups {
		addr = addr.Unmap()
		if number, ok := n[addr]; ok {
			count[claim{group, number}]++
		}
		if least, ok := first[group]; !ok || addr.Less(least) {
			first[group] = addr
		}
	}
	claims := slices.SortedFunc(maps.Keys(count), func(a, b claim) int {
		return cmp.Or(cmp.Compare(count[b], count[a]), first[a.group].Compare(first[b.group]), cmp.Compare(a.number, b.number))
	})
	byGroup = map[Group]uint32{}
	used := map[uint32]bool{0: true}
	for _, number := range n {
		used[number] = true
	}
	taken := map[uint32]bool{0: true}
	for _, c := range claims {
		if _, ok := byGroup[c.group]; !ok && !taken[c.number] {
			byGroup[c.group], taken[c.number] = c.number, true
		}
	}
	free := uint32(0)
	for _, group := range slices.SortedFunc(maps.Keys(first), func(a, b Group) int { return first[a].Compare(first[b]) }) {
		if _, ok := byGroup[group]; ok {
			continue
		}
		for used[free] {
			free++
		}
		byGroup[group], used[free] = free, true
	}
	byAddress = numbers{}
	for addr, group := range groups {
		byAddress[addr.Unmap()] = byGroup[group]
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
