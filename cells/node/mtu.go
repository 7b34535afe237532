package node

import (
	"cmp"
	"net/netip"
)

const (
	// overheadIPv4 and overheadIPv6 are what the outer headers take of the MTU, by the outer family.
	overheadIPv4 = 50
	overheadIPv6 = 70
	minMTU       = 1280 // without which a device has no IPv6
	defaultMTU   = 1500
)

func overhead(outer netip.Addr) int {
	if outer.Is4() {
		return overheadIPv4
	}
	return overheadIPv6
}

// uplinkMTUs are the MTUs of the interfaces that have the node's addresses.
func (r *router) uplinkMTUs(addrs []netip.Addr) (map[netip.Addr]int, error) {
	mtus := map[netip.Addr]int{}
	for _, addr := range addrs {
		mtu, err := r.kernel.mtuOf(addr)
		if err != nil {
			return nil, err
		}
		mtus[addr] = cmp.Or(mtu, defaultMTU)
	}
	return mtus, nil
}

// tunnelMTU is the device's MTU: it fits the outer family with the most room. Routes of others have their own.
func tunnelMTU(uplinks map[netip.Addr]int) int {
	mtu := 0
	for addr, of := range uplinks {
		mtu = max(mtu, of-overhead(addr))
	}
	return max(cmp.Or(mtu, defaultMTU-overheadIPv6), minMTU)
}

// updatePodMTU has new pods get what fits on the way to other nodes.
func (r *router) updatePodMTU(uplinks map[netip.Addr]int, tunnelled bool) {
	mtu := 0
	for _, of := range uplinks {
		if mtu == 0 || of < mtu {
			mtu = of
		}
	}
	if tunnelled {
		mtu = min(cmp.Or(mtu, tunnelMTU(uplinks)), tunnelMTU(uplinks))
	}
	if mtu != 0 {
		mtu = max(mtu, minMTU)
	}
	r.podMTU.Store(int64(mtu))
}
