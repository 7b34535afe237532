package allocator

import (
	"math"
	"net/netip"
	"time"

	"porin.dev/porin/cells/endpoint"
)

// family is one of IP.
type family int

const (
	ipv4 family = iota
	ipv6
	families // how many there are
)

func familyOf(addr netip.Addr) family {
	if addr.Is4() {
		return ipv4
	}
	return ipv6
}

func (f family) String() string {
	if f == ipv6 {
		return "IPv6"
	}
	return "IPv4"
}

// of returns the address of the family.
func (f family) of(a endpoint.Addresses) netip.Addr {
	if f == ipv6 {
		return a.IPv6
	}
	return a.IPv4
}

// set is the reverse of of.
func (f family) set(a *endpoint.Addresses, addr netip.Addr) {
	if f == ipv6 {
		a.IPv6 = addr
	} else {
		a.IPv4 = addr
	}
}

// state says who has an address.
type state uint8

const (
	unused    state = iota // it had no owner yet, as far as is known
	inUse                  // it has an owner
	uncleaned              // it was released, and others may still have to clean up after its owner
	resting                // it was released a short while ago
	free                   // it may be given out again
	drained                // it has rested, and its block is drained or the address is excluded
	nodeOwn                // only the node itself has it
)

// never is when an address was released that was not in use yet. Other such times are by the allocator's own clock.
const never = time.Duration(math.MinInt64)

// address is what is known of one address. Those in the states uncleaned, resting and free are in the list of that
// name.
type address struct {
	prev, next *address
	addr       netip.Addr
	block      *block
	owner      *record       // in state inUse
	since      time.Duration // when it was released; not in use
	release    uint64        // the number of that release
	state      state
	ofNode     bool // an interface of the node has the address, whatever its state
	excluded   bool // it is not given out any more, whatever its state
}

// removeFromList takes the address out of its state's list and count. It is unused then.
func (e *address) removeFromList() {
	l := e.block.list
	if e.state.takesUp() {
		e.count(-1)
	}
	switch e.state {
	case uncleaned:
		l.uncleaned.remove(e)
	case resting:
		l.resting.remove(e)
	case free:
		l.free.remove(e)
	}
	e.state, e.owner = unused, nil
}

// enter is the reverse of leave. A list is by time of release.
func (e *address) enter(s state) {
	e.state = s
	l := e.block.list
	if s.takesUp() {
		e.count(1)
	}
	switch s {
	case uncleaned:
		l.uncleaned.insert(e)
	case resting:
		l.resting.insert(e)
	case free:
		l.free.insert(e)
	}
}

// count counts an address that begins or ends to take up room. One that is excluded takes none from others.
func (e *address) count(by int64) {
	b := e.block
	b.countTaken(e.state, by)
	if !e.excluded {
		return
	}
	b.excludedTaken += by
	if !b.drained {
		b.list.available += by
	}
}

// takesUp reports whether an address in this state is not to be had.
func (s state) takesUp() bool { return s != unused && s != free && s != drained }

// use gives the address to an owner.
func (e *address) use(r *record) {
	if e.addr == e.block.cursor {
		e.block.cursor = e.addr.Next()
	}
	e.removeFromList()
	e.enter(inUse)
	e.owner = r
}

// rest keeps the address back for the quarantine, and until its cleanup if it needs one.
func (e *address) rest(since time.Duration, number uint64, needsCleanup bool) {
	e.removeFromList()
	e.since, e.release = since, number
	if needsCleanup {
		e.enter(uncleaned)
	} else {
		e.enter(resting)
	}
}

// yield takes back an address that another IPAM had given. Ours never gave it, so it needs no rest; but the other may
// give it again, so it is the last to be given of all that are free. The free list is settled before.
func (e *address) yield(now time.Duration) {
	e.removeFromList()
	e.since = now - e.block.list.pool.settings.Quarantine
	e.becomeFree()
}

// becomeFree makes an address that is in no list available again, if its block and the node allow that.
func (e *address) becomeFree() {
	switch {
	case e.ofNode:
		e.enter(nodeOwn)
	case e.block.forgets:
		e.block.remove(e)
	case e.block.drained || e.excluded:
		e.enter(drained)
	default:
		e.enter(free)
	}
}

// list has no memory of its own, so that any address leaves it in constant time. The first released address is the
// head.
type list struct{ head, tail *address }

// insert puts e where its time of release belongs. It is quick for a time that is newer than most.
func (l *list) insert(e *address) {
	var at *address
	for before := l.tail; before != nil && before.since > e.since; before = before.prev {
		at = before
	}
	l.insertBefore(e, at)
}

// insertBefore puts e before at; nil is the end.
func (l *list) insertBefore(e, at *address) {
	e.next, e.prev = at, l.tail
	if at != nil {
		e.prev = at.prev
		at.prev = e
	} else {
		l.tail = e
	}
	if e.prev != nil {
		e.prev.next = e
	} else {
		l.head = e
	}
}

func (l *list) remove(e *address) {
	if e.prev != nil {
		e.prev.next = e.next
	} else {
		l.head = e.next
	}
	if e.next != nil {
		e.next.prev = e.prev
	} else {
		l.tail = e.prev
	}
	e.prev, e.next = nil, nil
}

// merge inserts addresses, oldest first, in one pass.
func (l *list) merge(all []*address) {
	at := l.head
	for _, e := range all {
		for at != nil && at.since <= e.since {
			at = at.next
		}
		l.insertBefore(e, at)
	}
}
