package names

import (
	"context"
	"net/netip"
	"slices"

	"porin.dev/porin/cells/policy/dnsname"
)

// Selection is the addresses of the names that rules match.
type Selection struct {
	names *Names
	rules *dnsname.Rules

	// The lock of names guards the fields below.
	members map[netip.Addr]*member
	touched map[netip.Addr]struct{} // may have joined or left since they were taken last
}

// member is an address that is in a selection, or that whoever takes changes believes to be.
type member struct {
	leases int
	taken  bool   // it was among Added, and not among Removed since
	since  uint64 // the revision with which it joined
}

// Change is what has changed in a selection. The addresses are sorted.
type Change struct {
	Selection      *Selection
	Added, Removed []netip.Addr
}

// Select returns the selection of the names that the rules match, with all that is known of them. The caller closes it.
func (n *Names) Select(rules *dnsname.Rules) *Selection {
	n.mu.Lock()
	defer n.mu.Unlock()
	s := &Selection{names: n, rules: rules, members: map[netip.Addr]*member{}, touched: map[netip.Addr]struct{}{}}
	n.selections[s] = struct{}{}
	matched := map[*name]struct{}{}
	for _, known := range n.names {
		if rules.Match(known.text) {
			known.selections = append(known.selections, s)
			matched[known] = struct{}{}
		}
	}
	for _, e := range n.endpoints {
		for _, l := range e.names {
			if _, ok := matched[l.name]; !ok {
				continue
			}
			for addr := range l.leases {
				s.joinLocked(addr)
			}
		}
	}
	return s
}

// Close ends the selection. Take tells no more of it.
func (s *Selection) Close() {
	n := s.names
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.selections, s)
	delete(n.touched, s)
	for _, known := range n.names {
		known.selections = slices.DeleteFunc(known.selections, func(other *Selection) bool { return other == s })
	}
}

// Addresses returns the addresses as they are now, sorted.
func (s *Selection) Addresses() []netip.Addr {
	s.names.mu.Lock()
	defer s.names.mu.Unlock()
	var all []netip.Addr
	for addr, m := range s.members {
		if m.leases > 0 {
			all = append(all, addr)
		}
	}
	slices.SortFunc(all, netip.Addr.Compare)
	return all
}

// joinLocked counts one more lease of an address.
func (s *Selection) joinLocked(addr netip.Addr) {
	m := s.members[addr]
	if m == nil {
		m = &member{since: s.touch(addr)}
		s.members[addr] = m
	}
	m.leases++
}

// leave counts one less.
func (s *Selection) leave(addr netip.Addr) {
	m := s.members[addr]
	if m.leases--; m.leases > 0 {
		return
	}
	if !m.taken {
		delete(s.members, addr)
	}
	s.touch(addr)
}

// touch notes a change and returns its revision.
func (s *Selection) touch(addr netip.Addr) uint64 {
	n := s.names
	s.touched[addr] = struct{}{}
	n.touched[s] = struct{}{}
	n.revision++
	select {
	case n.changed <- struct{}{}:
	default:
	}
	return n.revision
}

// Changed returns a channel that has an element when there is something to take.
func (n *Names) Changed() <-chan struct{} { return n.changed }

// Take returns what has changed in the selections since the last call, and the revision that they have with it. The
// caller says with Confirm when it is in force. Take tells it once, so a caller that could not write it has to keep it.
// One goroutine takes.
func (n *Names) Take() (changes []Change, revision uint64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for s := range n.touched {
		if c := s.take(); c.Added != nil || c.Removed != nil {
			changes = append(changes, c)
		}
	}
	clear(n.touched)
	return changes, n.revision
}

func (s *Selection) take() Change {
	c := Change{Selection: s}
	for addr := range s.touched {
		m := s.members[addr]
		switch {
		case m == nil:
		case m.leases > 0 && !m.taken:
			m.taken = true
			c.Added = append(c.Added, addr)
		case m.leases == 0:
			delete(s.members, addr)
			c.Removed = append(c.Removed, addr)
		}
	}
	clear(s.touched)
	slices.SortFunc(c.Added, netip.Addr.Compare)
	slices.SortFunc(c.Removed, netip.Addr.Compare)
	return c
}

// Confirm says that what was taken up to the revision is in force.
func (n *Names) Confirm(revision uint64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if revision > n.confirmed {
		n.confirmed = revision
		close(n.waiting)
		n.waiting = make(chan struct{})
	}
}

// InForce reports whether everything up to the revision is in force.
func (n *Names) InForce(revision uint64) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.confirmed >= revision
}

// Wait returns when everything up to the revision is in force, or with the error of ctx.
func (n *Names) Wait(ctx context.Context, revision uint64) error {
	for {
		n.mu.Lock()
		confirmed, waiting := n.confirmed, n.waiting
		n.mu.Unlock()
		if confirmed >= revision {
			return nil
		}
		select {
		case <-waiting:
		case <-ctx.Done():
			if n.InForce(revision) { // this process may have had no turn for a while
				return nil
			}
			return ctx.Err()
		}
	}
}
