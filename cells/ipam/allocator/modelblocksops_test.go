package allocator_test

import (
	"maps"
	"net/netip"
	"slices"
	"time"

	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/ipam/allocator"
)

// universe has the addresses of 10.0.0.0/26: four blocks of 16 or eight of 8.
func universe() (all []netip.Addr) {
	for last := range byte(64) {
		all = append(all, netip.AddrFrom4([4]byte{10, 0, 0, last}))
	}
	return all
}

func (m *model) anyAddress() netip.Addr { return universe()[m.IntN(64)] }

// anyPrefix is one of 16 addresses or 8. A node has no two that overlap.
func (m *model) anyPrefix() netip.Prefix {
	prefix, _ := m.anyAddress().Prefix(28 + m.IntN(2))
	return prefix
}

func (m *model) addBlock(allocator.Handle) {
	prefix := m.anyPrefix()
	err := m.n.Pools().Add(allocator.DefaultPool, prefix)
	for b := range m.blocks {
		if b.Overlaps(prefix) && b != prefix {
			if err == nil {
				m.Fatalf("%s was added beside %s", prefix, b)
			}
			return
		}
	}
	if err != nil {
		m.Fatal(err)
	}
	m.blocks[prefix] = false
}

func (m *model) drain(allocator.Handle) {
	prefix := m.anyPrefix()
	m.n.Pools().Drain(allocator.DefaultPool, prefix)
	if _, ok := m.blocks[prefix]; ok {
		m.blocks[prefix] = true
	}
}

// remove holds that it is done exactly when nothing of it is in use or rests.
func (m *model) remove(allocator.Handle) {
	prefix := m.anyPrefix()
	_, there := m.blocks[prefix]
	busy := false
	for _, addr := range universe() {
		if there && prefix.Contains(addr) {
			_, used := m.ownerOf(addr)
			busy = busy || used || m.rests(addr)
		}
	}
	err := m.n.Pools().Remove(allocator.DefaultPool, prefix)
	if (err == nil) == busy {
		m.Fatalf("remove %s: %v; busy: %v", prefix, err, busy)
	}
	if err == nil && there {
		m.forget(prefix)
	}
}

func (m *model) configure() {
	m.n.Pools().Configure(allocator.DefaultPool, allocator.Settings{IPv4: true, Quarantine: modelRest, Exclude: slices.Clone(m.exclude)})
}

// changeExclude excludes other addresses, twice in three times none.
func (m *model) changeExclude(allocator.Handle) {
	m.exclude = nil
	for range m.IntN(3) * m.IntN(2) {
		prefix, _ := m.anyAddress().Prefix(27 + m.IntN(6))
		m.exclude = append(m.exclude, prefix)
	}
	m.configure()
}

func (m *model) excluded(addr netip.Addr) bool {
	return slices.ContainsFunc(m.exclude, func(e netip.Prefix) bool { return e.Contains(addr) })
}

// rests reports whether an address without an owner is not available.
func (m *model) rests(addr netip.Addr) bool {
	return m.dirty[addr] || time.Since(m.free[addr]) < modelRest
}

func (m *model) forget(prefix netip.Prefix) {
	for _, addr := range universe() {
		if prefix.Contains(addr) {
			delete(m.free, addr)
		}
	}
	delete(m.blocks, prefix)
}

// restart is a new agent, which is told what store and ledger have, and later what blocks there are. Without a store
// all reservations are over.
func (m *model) restart() {
	for owner, o := range m.has {
		if o.token != "" && m.store == nil {
			m.vacate(owner, time.Now())
			delete(m.free, o.addr) // it is unknown
		}
	}
	blocks := m.blocks
	m.start()
	maps.DeleteFunc(m.free, func(_ netip.Addr, since time.Time) bool { return time.Since(since) >= modelKnows })
	for _, r := range m.store {
		if err := m.n.RestoreReservation(r); err != nil {
			m.Fatal(err)
		}
	}
	released := slices.SortedFunc(maps.Keys(m.free), func(a, b netip.Addr) int { return m.free[a].Compare(m.free[b]) })
	for _, addr := range released {
		m.n.Quarantine(addr, m.free[addr])
		_, used := m.ownerOf(addr)
		m.dirty[addr] = m.cleans && !used
	}
	for owner, o := range m.has {
		if o.token != "" {
			o.restored = true
			m.has[owner] = o
			continue
		}
		if err := m.n.Adopt(allocator.Allocation{Owner: owner, External: o.external, Addresses: endpoint.Addresses{IPv4: o.addr}}); err != nil {
			m.Fatal(err)
		}
	}
	for block := range blocks {
		if m.IntN(4) > 0 { // some come later, or never
			add(m.T, m.n, block.String())
			m.blocks[block] = false
		}
	}
}

// check compares what is counted.
func (m *model) check() {
	m.expire()
	wantConsistent(m.T, m.n)
	if got := len(m.n.List()); got != len(m.has) {
		m.Fatalf("%d owners, want %d", got, len(m.has))
	}
	usage := m.n.Pools().Blocks(allocator.DefaultPool)
	if len(usage) != len(m.blocks) {
		m.Fatalf("%d blocks, want %v", len(usage), m.blocks)
	}
	for _, u := range usage {
		var used, resting, left int64
		for addr := u.Prefix.Addr(); u.Prefix.Contains(addr); addr = addr.Next() {
			if _, ok := m.ownerOf(addr); ok {
				used++
			} else if m.rests(addr) {
				resting++
			} else if !m.excluded(addr) {
				left++
			}
		}
		if drained, ok := m.blocks[u.Prefix]; !ok || drained != u.Drained || used != u.Used || resting != u.Resting || left != u.Free || u.Capacity != used+resting+left {
			m.Fatalf("%+v, want %d in use, %d resting, %d free, drained %v", u, used, resting, left, drained)
		}
	}
}
