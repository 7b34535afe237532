package names

import "container/list"

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
