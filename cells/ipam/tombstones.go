package ipam

import (
	"net/netip"
	"slices"
	"time"
)

// tombstone is the release of an address that lies in no block of this node, or not yet.
type tombstone struct {
	addr  netip.Addr
	since time.Duration
}

// maxTombstones bounds what is remembered for blocks that may come.
const maxTombstones = maxBlock

// remember keeps a release until its block comes, or nobody needs to know any more. Only in mode multi-pool do blocks come.
func (a *allocator) remember(addr netip.Addr, since time.Duration) {
	if a.mode != ModeMultiPool {
		return
	}
	if len(a.tombstones) >= maxTombstones {
		a.tombstones = slices.DeleteFunc(a.tombstones, func(t tombstone) bool { return t.since < since-maxRest })
	}
	if len(a.tombstones) >= maxTombstones {
		a.tombstones = slices.Delete(a.tombstones, 0, 1)
	}
	a.tombstones = append(a.tombstones, tombstone{addr, since})
}

// populate has a block that has come know what was there before it: who has its addresses, and which of them rest.
func (a *allocator) populate(b *block) {
	a.tombstones = slices.DeleteFunc(a.tombstones, func(t tombstone) bool {
		if !b.prefix.Contains(t.addr) {
			return false
		}
		if s, err := b.find(t.addr); err == nil && s.state != used && t.since > s.since {
			b.shelf.rest(s, t.since)
		}
		return true
	})
	for addr := range a.addresses {
		if !b.prefix.Contains(addr) {
			continue
		}
		if s, err := b.find(addr); err == nil && s.state != used {
			b.shelf.use(s)
		}
	}
}
