package names

import (
	"container/list"
	"net/netip"
	"time"
)

// lease is an address of a name, for an endpoint.
type lease struct {
	endpoint             *endpoint
	lookup               *lookup
	addr                 netip.Addr
	expires              time.Time
	sequence             uint64 // when it was learned last
	held                 bool
	inEndpoint, inLookup *list.Element // nil when it was dropped
}

// order has leases in the order in which they were learned last.
type order struct {
	fresh list.List // within their TTL
	held  list.List // only connections keep them
}

func (o *order) size() int { return o.fresh.Len() + o.held.Len() }

func (o *order) list(held bool) *list.List {
	if held {
		return &o.held
	}
	return &o.fresh
}

// oldest returns the lease that is to go first: a lease within its TTL before a held one, as that has a connection.
// Leases with a sequence from first on do not go; then it returns nil.
func (o *order) oldest(first uint64) *lease {
	for _, list := range []*list.List{&o.fresh, &o.held} {
		if front := list.Front(); front != nil {
			if l := front.Value.(*lease); l.sequence < first {
				return l
			}
		}
	}
	return nil
}

// link makes the lease the last one of its endpoint and of its name.
func (l *lease) link() {
	l.inEndpoint = l.endpoint.order.list(l.held).PushBack(l)
	l.inLookup = l.lookup.order.list(l.held).PushBack(l)
}

func (l *lease) unlink() {
	l.endpoint.order.list(l.held).Remove(l.inEndpoint)
	l.lookup.order.list(l.held).Remove(l.inLookup)
	l.inEndpoint, l.inLookup = nil, nil
}

// hold marks a lease that only a connection keeps.
func (l *lease) hold() {
	if !l.held {
		l.unlink()
		l.held = true
		l.link()
	}
}

// Expire removes the addresses whose TTL has ended and that no connection uses, and protected addresses after their
// time. It is to be called every few seconds, by one goroutine. It calls the functions of the [Config] without the
// lock.
func (n *Names) Expire() {
	type expiry struct {
		lease              *lease
		use                Use
		expired, protected bool
	}
	var all []expiry
	now, used := time.Now(), map[Use]bool{}
	n.mu.Lock()
	for id, e := range n.endpoints {
		for _, l := range e.names {
			for _, one := range l.leases {
				all = append(all, expiry{lease: one, use: Use{id, one.addr}, expired: !one.expires.After(now)})
			}
		}
	}
	n.mu.Unlock()
	for i := range all {
		x := &all[i]
		x.protected = n.isProtected(x.lease.addr)
		if x.expired && !x.protected {
			used[x.use] = false
		}
	}
	if len(used) > 0 {
		n.config.InUse(used)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	now = time.Now()
	for _, x := range all {
		l := x.lease
		switch {
		case l.inLookup == nil: // it was dropped meanwhile
		case x.protected:
			n.counts.Protected++
			n.removeWithEmptyLocked(l)
		case !x.expired || l.expires.After(now): // or it was learned again meanwhile
		case used[x.use]:
			l.hold()
		default:
			n.removeWithEmptyLocked(l)
		}
	}
}

func (n *Names) removeWithEmptyLocked(l *lease) {
	n.removeLocked(l)
	n.removeEmptyLocked(l.lookup, l.endpoint)
}
