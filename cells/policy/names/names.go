package names

import (
	"cmp"
	"container/list"
	"net/netip"
	"slices"
	"sync"
	"time"

	"porin.dev/porin/cells/policy/dnsname"
)

// Config says how long and how many addresses are kept, and what is asked about them. The functions may be called
// concurrently.
type Config struct {
	MinTTL, MaxTTL time.Duration
	NameLimit      int // addresses of one name of an endpoint
	EndpointLimit  int // addresses of all names of an endpoint

	// InUse sets the value of each key to whether the endpoint has an open connection to the address. The TTLs of all
	// these addresses have ended.
	InUse func(expired map[Use]bool)
	// Protected reports whether no name can have the address: of a pod, a node, or a metadata service.
	Protected func(netip.Addr) bool
}

// Use is an address that an endpoint may use.
type Use struct {
	Endpoint uint16
	Addr     netip.Addr
}

// DefaultConfig returns the usual limits. A client uses an address some time after it has got it, so the TTL may not be
// too short. Resolvers keep nothing for longer than MaxTTL.
func DefaultConfig() Config {
	return Config{MinTTL: time.Minute, MaxTTL: 7 * 24 * time.Hour, NameLimit: 1000, EndpointLimit: 5000}
}

// Counts is how many addresses were not learned, or were dropped, since the start.
type Counts struct {
	Protected     uint64 // not learned, or dropped as they are protected now
	NameLimit     uint64 // dropped as their name has too many
	EndpointLimit uint64 // dropped as their endpoint has too many
	LeftOut       uint64 // not learned as one answer has more than the limits allow
}

// Names is what is known. Its methods may be called concurrently.
type Names struct {
	config Config

	mu         sync.Mutex // guards the fields below
	endpoints  map[uint16]*endpoint
	gone       map[uint16]struct{} // endpoints for which nothing is learned: answers may come late
	names      map[string]*name
	selections map[*Selection]struct{}
	touched    map[*Selection]struct{} // have changes that were not taken
	sequence   uint64                  // of the last time that an address was learned
	revision   uint64                  // is raised when an address joins or leaves a selection
	confirmed  uint64                  // the last revision that is in force
	waiting    chan struct{}           // closed when confirmed is raised
	counts     Counts
	changed    chan struct{}
	unsaved    bool
}

// endpoint is an endpoint that has asked for names.
type endpoint struct {
	id    uint16
	names map[string]*lookup
	order order // of the addresses of all names
}

// name is a name that at least one endpoint has asked for.
type name struct {
	text       string
	lookups    int
	selections []*Selection // that match it
}

// lookup is what an endpoint knows of a name.
type lookup struct {
	name   *name
	leases map[netip.Addr]*lease
	order  order
}

// New returns an empty one. The limits must be above 0, and MaxTTL not below MinTTL.
func New(c Config) *Names {
	return &Names{
		config: c, endpoints: map[uint16]*endpoint{}, gone: map[uint16]struct{}{}, names: map[string]*name{}, selections: map[*Selection]struct{}{},
		touched: map[*Selection]struct{}{}, waiting: make(chan struct{}), changed: make(chan struct{}, 1),
	}
}

// Learn adds addresses to a name that an endpoint has asked for. The name is a text of package dnsname. It returns the
// revision with which all of them are in the selections of the name.
func (n *Names) Learn(endpoint uint16, name string, addresses []dnsname.Address) (revision uint64) {
	return n.learn(endpoint, name, addresses, n.config.MinTTL)
}

// Refresh is [Names.Learn] for addresses that the name has already, and does not wait for the lock. It reports whether
// it has done it, and they are in force.
func (n *Names) Refresh(endpoint uint16, name string, addresses []dnsname.Address) bool {
	if !n.mu.TryLock() {
		return false
	}
	defer n.mu.Unlock()
	e := n.endpoints[endpoint]
	if e == nil || e.names[name] == nil {
		return false
	}
	l := e.names[name]
	for _, a := range addresses {
		if l.leases[a.Addr.Unmap()] == nil {
			return false
		}
	}
	return n.confirmed >= n.addAllLocked(e, l, addresses, n.config.MinTTL)
}

// learn is Learn with another shortest TTL.
func (n *Names) learn(id uint16, text string, addresses []dnsname.Address, minTTL time.Duration) (revision uint64) {
	var room [16]dnsname.Address
	learned, protected := room[:0], uint64(0)
	for _, a := range addresses {
		if a.Addr = Normalize(a.Addr); n.isProtected(a.Addr) {
			protected++
		} else {
			learned = append(learned, a)
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.counts.Protected += protected
	if _, gone := n.gone[id]; gone || len(learned) == 0 {
		return 0
	}
	e := n.endpoints[id]
	if e == nil {
		e = &endpoint{id: id, names: map[string]*lookup{}}
		n.endpoints[id] = e
	}
	l := e.names[text]
	if l == nil {
		l = &lookup{name: n.nameLocked(text), leases: map[netip.Addr]*lease{}}
		l.name.lookups++
		e.names[text] = l
	}
	return n.addAllLocked(e, l, learned, minTTL)
}

// addAllLocked adds what one answer has.
func (n *Names) addAllLocked(e *endpoint, l *lookup, addresses []dnsname.Address, minTTL time.Duration) (revision uint64) {
	now, first := time.Now(), n.sequence+1
	for i, a := range addresses {
		ttl := min(max(a.TTL, minTTL), n.config.MaxTTL)
		if !n.addLocked(e, l, a.Addr.Unmap(), now.Add(ttl), first) {
			n.counts.LeftOut += uint64(len(addresses) - i)
			break
		}
	}
	for _, a := range addresses {
		for _, s := range l.name.selections {
			if m := s.members[a.Addr.Unmap()]; m != nil {
				revision = max(revision, m.since)
			}
		}
	}
	return revision
}

func (n *Names) isProtected(addr netip.Addr) bool {
	return IsLocalScope(addr) || n.config.Protected(addr)
}

// Normalize returns an address as it is learned: IPv4 not in IPv6, and without a zone.
func Normalize(addr netip.Addr) netip.Addr { return addr.Unmap().WithZone("") }

// IsLocalScope reports whether no other machine has the address, so that it is not learned: unspecified, loopback,
// link-local (as a metadata service's), multicast or broadcast.
func IsLocalScope(addr netip.Addr) bool {
	return !addr.IsValid() || addr.IsUnspecified() || addr.IsLoopback() || addr.IsMulticast() || addr.IsLinkLocalUnicast() ||
		addr == netip.AddrFrom4([4]byte{255, 255, 255, 255})
}

func (n *Names) nameLocked(text string) *name {
	known := n.names[text]
	if known == nil {
		known = &name{text: text}
		for s := range n.selections {
			if s.rules.Match(text) {
				known.selections = append(known.selections, s)
			}
		}
		n.names[text] = known
	}
	return known
}

// addLocked adds an address, or has it expire later. It makes room, and returns false when only addresses with a
// sequence from first on could give it.
func (n *Names) addLocked(e *endpoint, l *lookup, addr netip.Addr, expires time.Time, first uint64) bool {
	known := l.leases[addr]
	if known == nil {
		if !n.makeRoomLocked(e, l, first) {
			return false
		}
		known = &lease{endpoint: e, lookup: l, addr: addr, expires: expires}
		l.leases[addr] = known
		for _, s := range l.name.selections {
			s.joinLocked(addr)
		}
	} else {
		known.unlink()
	}
	n.sequence++
	known.sequence, known.held = n.sequence, false
	if expires.After(known.expires) {
		known.expires = expires
	}
	known.link()
	n.unsaved = true
	return true
}

// makeRoomLocked drops addresses so that there is room for one more.
func (n *Names) makeRoomLocked(e *endpoint, l *lookup, first uint64) bool {
	if l.order.size() >= n.config.NameLimit {
		oldest := l.order.oldest(first)
		if oldest == nil {
			return false
		}
		n.counts.NameLimit++
		n.removeLocked(oldest)
	}
	if e.order.size() >= n.config.EndpointLimit {
		oldest := e.order.oldest(first)
		if oldest == nil {
			return false
		}
		n.counts.EndpointLimit++
		n.removeLocked(oldest)
		if oldest.lookup != l {
			n.removeEmptyLocked(oldest.lookup, e)
		}
	}
	return true
}

// Evict drops up to count addresses of names in selections from the endpoint that has most of them. The oldest go
// first. The endpoint keeps at least that many, and its equal part of room.
func (n *Names) Evict(count, room, least int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	var largest *endpoint
	most := max(least, room/max(1, len(n.endpoints)))
	keep := most
	for _, e := range n.endpoints {
		selected := 0
		for _, l := range e.names {
			if len(l.name.selections) > 0 {
				selected += len(l.leases)
			}
		}
		if selected > most {
			largest, most = e, selected
		}
	}
	if largest == nil {
		return
	}
	count = min(count, most-keep)
	for _, list := range []*list.List{&largest.order.fresh, &largest.order.held} {
		for front := list.Front(); front != nil && count > 0; {
			l := front.Value.(*lease)
			if front = front.Next(); len(l.lookup.name.selections) > 0 {
				count--
				n.counts.EndpointLimit++
				n.removeWithEmptyLocked(l)
			}
		}
	}
}

// removeLocked removes an address.
func (n *Names) removeLocked(l *lease) {
	l.unlink()
	delete(l.lookup.leases, l.addr)
	for _, s := range l.lookup.name.selections {
		s.leave(l.addr)
	}
	n.unsaved = true
}

// removeEmptyLocked removes a name of an endpoint without addresses, and an endpoint without names.
func (n *Names) removeEmptyLocked(l *lookup, e *endpoint) {
	if len(l.leases) > 0 {
		return
	}
	delete(e.names, l.name.text)
	if l.name.lookups--; l.name.lookups == 0 {
		delete(n.names, l.name.text)
	}
	if len(e.names) == 0 {
		delete(n.endpoints, e.id)
	}
}

// RemoveEndpoint removes what an endpoint has asked for, and learns nothing for it until Admit. It is for an endpoint
// that is gone, before its ID is another's.
func (n *Names) RemoveEndpoint(endpoint uint16) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.gone[endpoint] = struct{}{}
	e := n.endpoints[endpoint]
	if e == nil {
		return
	}
	for _, l := range e.names {
		for _, one := range l.leases {
			n.removeLocked(one)
		}
		n.removeEmptyLocked(l, e)
	}
}

// Admit lets an endpoint learn names whose ID may have belonged to a deleted endpoint.
func (n *Names) Admit(endpoint uint16) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.gone, endpoint)
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
	var found []*lease
	for _, l := range e.names {
		if one := l.leases[addr.Unmap()]; one != nil {
			found = append(found, one)
		}
	}
	slices.SortFunc(found, func(a, b *lease) int { return cmp.Compare(b.sequence, a.sequence) })
	for _, one := range found[:min(limit, len(found))] {
		names = append(names, one.lookup.name.text)
	}
	return names
}

// Counts returns how much was not learned or dropped.
func (n *Names) Counts() Counts {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.counts
}
