package engine

import (
	"iter"
	"net/netip"
	"slices"

	"github.com/gaissmai/bart"

	"porin.dev/porin/cells/policy/model"
)

// End is an address as the policies know it, such as one end of a connection.
type End struct {
	Address  netip.Addr
	Kind     model.EndpointKind
	Class    ClassID // the datapath looks for rows of this class
	Endpoint string  // the key of the endpoint that has the address, or ""
	// Namespace and Name of the pod that has the address.
	Namespace, Name string
}

// DomainChange says which addresses the names that a rule matches have now, or have no longer.
type DomainChange struct {
	Rule        model.DNSRule
	Add, Remove []netip.Addr
}

// member is an address of an endpoint, or a range of addresses without endpoints. There may be a million, so it is
// small.
type member struct {
	owner *endpoint // nil for a range
	class *class
}

// place is where a member is: the table of addresses, or the table of ranges.
type place struct {
	cidr    netip.Prefix
	isRange bool
}

// prefix is the range of a block, or of an exception of one. Addresses in it that no endpoint has, and that are in no
// more specific prefix, are in the same blocks.
type prefix struct {
	member
	blocks *selectorSet // that the addresses are in
	refs   int
	begins []*selector // blocks with just these addresses, and domains that have the address
	ends   []*selector // blocks that have just these as an exception
	// unmanaged says that the addresses are of kind [model.Unmanaged].
	unmanaged bool
}

// addresses are the addresses of endpoints, and the ranges of all others.
type addresses struct {
	table     bart.Table[member]
	ranges    bart.Table[*prefix]
	world     *class // of addresses that are in no range
	selectors *selectors
	size      *size

	// Since reset:
	changed  []netip.Prefix // ranges of blocks that are new or gone
	marked   []place        // of members whose class may be another
	isMarked map[place]struct{}
	before   map[place]*class // of members that have left a class or are gone; nil: it is new
}

// reset begins the next update.
func (a *addresses) reset() {
	a.changed, a.marked, a.isMarked, a.before = nil, nil, map[place]struct{}{}, map[place]*class{}
}

// lookup returns the class of an address, and the endpoint that has it.
func (a *addresses) lookup(addr netip.Addr) (*class, *endpoint) {
	addr = addr.Unmap()
	if m, ok := a.table.Lookup(addr); ok {
		return m.class, m.owner
	}
	if p, ok := a.ranges.Lookup(addr); ok {
		return p.class, nil
	}
	return a.world, nil
}

// keyOf returns the member at a place, and the key of the class that it belongs to; false when it was removed.
func (a *addresses) keyOf(p place) (m member, key classKey, ok bool) {
	if !p.isRange {
		if m, ok = a.table.Get(p.cidr); !ok {
			return m, key, false
		}
		key = classKey{kind: m.owner.Kind, labels: m.owner.selectors, blocks: a.selectors.none, ports: m.owner.askedPorts}
		if r, ok := a.ranges.Lookup(p.cidr.Addr()); ok {
			key.blocks = r.blocks
		}
		return m, key, true
	}
	r, ok := a.ranges.Get(p.cidr)
	if !ok {
		return m, key, false
	}
	key = classKey{kind: model.World, labels: a.selectors.none, blocks: r.blocks}
	for _, around := range a.ranges.Supernets(p.cidr) {
		if around.unmanaged {
			key.kind = model.Unmanaged
			break
		}
	}
	return r.member, key, true
}

func (a *addresses) mark(p place) {
	if _, again := a.isMarked[p]; !again {
		a.isMarked[p] = struct{}{}
		a.marked = append(a.marked, p)
	}
}

func (a *addresses) markAll(l *labelSet) {
	for _, ep := range l.endpoints {
		for cidr := range a.owned(ep, ep.Addresses) {
			a.mark(place{cidr: cidr})
		}
	}
}

// removeMember removes a member from its class. The caller gives it another class, or has deleted it.
func (a *addresses) removeMember(p place, m member) {
	if _, again := a.before[p]; !again {
		a.before[p] = m.class
	}
	if m.class != nil {
		m.class.members--
	}
}

// setOwner enters the endpoint's addresses, and deletes its addresses from before which it has no longer.
func (a *addresses) setOwner(ep *endpoint, before []netip.Addr) {
	for cidr, m := range a.owned(ep, before) {
		if !slices.ContainsFunc(ep.Addresses, func(stays netip.Addr) bool { return single(stays) == cidr }) {
			a.table.Delete(cidr)
			a.removeMember(place{cidr: cidr}, m)
		}
	}
	for _, addr := range ep.Addresses {
		cidr := single(addr)
		if m, _ := a.table.Get(cidr); m.owner != ep {
			a.table.Insert(cidr, member{ep, m.class})
		}
		a.mark(place{cidr: cidr})
	}
}

// owned returns the addresses that no other endpoint was set with later.
func (a *addresses) owned(ep *endpoint, addresses []netip.Addr) iter.Seq2[netip.Prefix, member] {
	return func(yield func(netip.Prefix, member) bool) {
		for _, addr := range addresses {
			if m, ok := a.table.Get(single(addr)); ok && m.owner == ep && !yield(single(addr), m) {
				return
			}
		}
	}
}

func single(addr netip.Addr) netip.Prefix {
	addr = addr.Unmap()
	return netip.PrefixFrom(addr, addr.BitLen())
}

// add adds the range of a block, with its exceptions, or an address of a domain.
func (a *addresses) add(sel *selector, cidr netip.Prefix, except ...netip.Prefix) {
	p := a.acquire(cidr)
	p.begins = append(p.begins, sel)
	for _, within := range except {
		p := a.acquire(within)
		p.ends = append(p.ends, sel)
	}
	a.changed = append(a.changed, cidr)
}

func (a *addresses) remove(sel *selector, cidr netip.Prefix, except ...netip.Prefix) {
	isOf := func(s *selector) bool { return s == sel }
	for _, within := range append([]netip.Prefix{cidr}, except...) {
		p, _ := a.ranges.Get(within)
		p.begins, p.ends = slices.DeleteFunc(p.begins, isOf), slices.DeleteFunc(p.ends, isOf)
		a.release(within, p)
	}
	a.changed = append(a.changed, cidr)
}

func (a *addresses) acquire(cidr netip.Prefix) *prefix {
	p, ok := a.ranges.Get(cidr)
	if !ok {
		p = &prefix{blocks: a.selectors.intern(nil)}
		a.ranges.Insert(cidr, p)
	}
	p.refs++
	return p
}

func (a *addresses) release(cidr netip.Prefix, p *prefix) {
	if p.refs--; p.refs == 0 {
		a.ranges.Delete(cidr)
		a.selectors.releaseSet(p.blocks)
		a.removeMember(place{cidr, true}, p.member)
	}
}

// changeDomain changes the addresses of a domain's selector. Each is a range of one address, which may be in blocks,
// too.
func (a *addresses) changeDomain(sel *selector, add, remove []netip.Addr) {
	for _, addr := range remove {
		if _, ok := sel.addresses[addr.Unmap()]; ok {
			delete(sel.addresses, addr.Unmap())
			a.remove(sel, single(addr))
		}
	}
	for _, addr := range add {
		if _, again := sel.addresses[addr.Unmap()]; again {
			continue
		}
		if sel.addresses == nil {
			sel.addresses = map[netip.Addr]struct{}{}
		}
		sel.addresses[addr.Unmap()] = struct{}{}
		a.add(sel, single(addr))
	}
}

// setUnmanaged says whether addresses without an endpoint in the range are of kind unmanaged.
func (a *addresses) setUnmanaged(cidr netip.Prefix, unmanaged bool) {
	p, ok := a.ranges.Get(cidr)
	if unmanaged == (ok && p.unmanaged) {
		return
	}
	if unmanaged {
		p = a.acquire(cidr)
	}
	p.unmanaged = unmanaged
	if !unmanaged {
		a.release(cidr, p)
	}
	a.changed = append(a.changed, cidr)
}

// updateRanges recomputes the blocks of all addresses in the changed ranges.
func (a *addresses) updateRanges() {
	seen := map[*prefix]bool{}
	done := map[netip.Prefix]bool{}
	for _, cidr := range a.changed {
		if done[cidr] {
			continue
		}
		done[cidr] = true
		for within, p := range a.ranges.Subnets(cidr) {
			if seen[p] {
				continue
			}
			seen[p] = true
			a.mark(place{within, true})
			if a.size.exceeded {
				continue
			}
			var found []*selector
			excepted := map[*selector]bool{}
			for _, around := range a.ranges.Supernets(within) {
				found = append(found, around.begins...)
				for _, sel := range around.ends {
					excepted[sel] = true
				}
			}
			if len(excepted) > 0 {
				found = slices.DeleteFunc(found, func(sel *selector) bool { return excepted[sel] })
			}
			slices.SortFunc(found, byID)
			old := p.blocks
			p.blocks = a.selectors.intern(found)
			a.selectors.releaseSet(old)
		}
		for addr := range a.table.Subnets(cidr) {
			a.mark(place{cidr: addr})
		}
	}
}
