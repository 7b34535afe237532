package allocator

import (
	"net/netip"
	"slices"
)

// NodeAddress is an address of the node itself that lies in one of its blocks.
type NodeAddress struct {
	Addr   netip.Addr
	IfName string
	Owner  Handle // who had the address before the node; "": no owner
}

// nodeAddresses has the addresses of the node's interfaces, which are not given out. It is not safe for concurrent use.
type nodeAddresses struct {
	ifnames map[netip.Addr]string
}

// set is [Allocator.SetNodeAddresses].
func (n *nodeAddresses) set(x *index, ofNode map[netip.Addr]string) (added []NodeAddress) {
	before := n.ifnames
	n.ifnames = ofNode
	for addr := range before {
		if e := x.known(addr); e != nil && ofNode[addr] == "" {
			e.ofNode = false
			if e.state == nodeOwn {
				e.removeFromList()
				e.becomeFree()
			}
		}
	}
	n.markAll(x)
	for addr, ifname := range ofNode {
		if x.covers(addr) && before[addr] == "" {
			one := NodeAddress{Addr: addr, IfName: ifname}
			if r := x.owner(addr); r != nil {
				one.Owner = r.Owner
			}
			added = append(added, one)
		}
	}
	slices.SortFunc(added, func(x, y NodeAddress) int { return x.Addr.Compare(y.Addr) })
	return added
}

// markAll keeps the addresses that lie in a block back.
func (n *nodeAddresses) markAll(x *index) {
	for addr := range n.ifnames {
		if !x.covers(addr) {
			continue
		}
		e := x.blockOf(addr).address(addr)
		e.ofNode = true
		if e.state == unused || e.state == free || e.state == drained {
			e.removeFromList()
			e.enter(nodeOwn)
		}
	}
}

// in returns the addresses that a block would give out.
func (n *nodeAddresses) in(b *block) (addrs []netip.Addr) {
	for addr := range n.ifnames {
		if b.canAllocate(addr) {
			addrs = append(addrs, addr)
		}
	}
	slices.SortFunc(addrs, netip.Addr.Compare)
	return addrs
}

// SetNodeAddresses says which addresses the interfaces of the node have, and the names of the interfaces. From now on
// these are not given out, and the previous call's other addresses may be given out again. An owner of one keeps it. It
// returns the new addresses that lie in a block. An allocation pays nothing for it: the addresses are no longer among
// the free ones.
func (a *Allocator) SetNodeAddresses(ofNode map[netip.Addr]string) (added []NodeAddress) {
	a.lock()
	defer a.mu.Unlock()
	return a.core.pools.nodeAddresses.set(&a.core.pools.index, ofNode)
}

// Covers reports whether an address lies in a block and may be given out from it.
func (a *Allocator) Covers(addr netip.Addr) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.core.pools.index.covers(addr)
}
