package names

import "net/netip"

// index has the leases of an endpoint by their address: the last learned lease of each, which links to the earlier
// ones.
type index map[netip.Addr]*lease

func (x index) add(l *lease) {
	if l.older = x[l.addr]; l.older != nil {
		l.older.newer = l
	}
	x[l.addr] = l
}

func (x index) remove(l *lease) {
	switch {
	case l.newer != nil:
		l.newer.older = l.older
	case l.older != nil:
		x[l.addr] = l.older
	default:
		delete(x, l.addr)
	}
	if l.older != nil {
		l.older.newer = l.newer
	}
	l.newer, l.older = nil, nil
}

// refresh makes it the last learned lease.
func (x index) refresh(l *lease) {
	if l.newer != nil {
		x.remove(l)
		x.add(l)
	}
}

// NamesOf returns the names that the endpoint has asked for and that have the address, the last learned first, and no
// more than the limit.
func (n *Names) NamesOf(endpoint uint16, addr netip.Addr, limit int) (names []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	e := n.endpoints[endpoint]
	if e == nil {
		return nil
	}
	for l := e.index[addr.Unmap()]; l != nil && len(names) < limit; l = l.older {
		names = append(names, l.lookup.name.text)
	}
	return names
}
