package names

import "time"

// Expire removes the addresses whose TTL has ended and that no connection uses, and protected addresses after their
// time. It is to be called every few seconds, by one goroutine. It calls the functions of the [Config] without the
// lock.
func (n *Names) Expire() {
	all, used := n.expiries(time.Now()), map[Use]bool{}
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
	now := time.Now()
	for _, x := range all {
		l := x.lease
		switch {
		case l.inLookup == nil: // it was dropped meanwhile
		case x.protected:
			n.counts.Protected++
			n.dropAndForgetLocked(l)
		case !x.expired || l.expires.After(now): // or it was learned again meanwhile
		case used[x.use]:
			l.hold()
		default:
			n.dropAndForgetLocked(l)
		}
	}
}

// expiry is what is decided about a lease.
type expiry struct {
	lease     *lease
	use       Use
	expired   bool
	protected bool
}

// expiries returns the leases of all endpoints.
func (n *Names) expiries(now time.Time) (all []expiry) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for id, e := range n.endpoints {
		for _, l := range e.names {
			for _, one := range l.leases {
				all = append(all, expiry{lease: one, use: Use{id, one.addr}, expired: !one.expires.After(now)})
			}
		}
	}
	return all
}

func (n *Names) dropAndForgetLocked(l *lease) {
	n.dropLocked(l)
	n.forgetEmptyLocked(l.lookup, l.endpoint)
}
