package names

import "time"

// Expire drops the addresses whose TTL has ended and that no connection uses, and those that are protected by now. It is to be called every few
// seconds, by one goroutine.
func (n *Names) Expire() {
	n.mu.Lock()
	ids := make([]uint16, 0, len(n.endpoints))
	for id := range n.endpoints {
		ids = append(ids, id)
	}
	n.mu.Unlock()
	for _, id := range ids {
		n.expire(id)
	}
}

// expiry is what is decided about a lease.
type expiry struct {
	lease     *lease
	expired   bool
	protected bool
	used      bool
}

// expire asks about the addresses of an endpoint without the lock.
func (n *Names) expire(endpoint uint16) {
	all := n.expiries(endpoint, time.Now())
	for i := range all {
		x := &all[i]
		x.protected = n.isProtected(x.lease.addr)
		x.used = x.expired && !x.protected && n.config.InUse(endpoint, x.lease.addr)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	now := time.Now()
	for _, x := range all {
		l := x.lease
		switch {
		case l.inLookup == nil: // it was dropped meanwhile
		case x.protected:
			n.counts.Protected++
			n.dropAndForget(l)
		case !x.expired || l.expires.After(now): // or it was learned again meanwhile
		case x.used:
			l.hold()
		default:
			n.dropAndForget(l)
		}
	}
}

func (n *Names) expiries(endpoint uint16, now time.Time) []expiry {
	n.mu.Lock()
	defer n.mu.Unlock()
	e := n.endpoints[endpoint]
	if e == nil {
		return nil
	}
	all := make([]expiry, 0, e.order.size())
	for _, l := range e.names {
		for _, one := range l.leases {
			all = append(all, expiry{lease: one, expired: !one.expires.After(now)})
		}
	}
	return all
}

// dropAndForget expects the lock.
func (n *Names) dropAndForget(l *lease) {
	n.drop(l)
	n.forgetEmpty(l.lookup, l.endpoint)
}
