package allocator

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// Allocate is a [Source]'s without refiller.
func (a *Allocator) Allocate(req Request) (Allocation, error) {
	return NewSource(a, nil).Allocate(context.Background(), req)
}

// Reserve is a [Source]'s without refiller.
func (a *Allocator) Reserve(req Request, lifetime time.Duration) (Reservation, error) {
	return NewSource(a, nil).Reserve(context.Background(), req, lifetime)
}

// Later moves the clock of an allocator forward, for stories, which wait for nothing.
func Later(a *Allocator, by time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.start = a.start.Add(-by)
}

// Known counts the addresses of all blocks that the allocator remembers anything of.
func Known(a *Allocator) (n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, b := range a.core.pools.index.blocks {
		n += len(b.known)
	}
	return n
}

// CheckInvariants returns what is inconsistent in what the allocator has in memory.
func CheckInvariants(a *Allocator) (faults []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	c := checker{core: &a.core, lists: map[*address]string{}}
	for h, r := range a.core.owners.records {
		c.owner(h, r)
	}
	a.core.pools.eachList(c.list)
	c.block(a.core.pools.index.outside)
	blocks := 0
	for _, p := range a.core.pools.order {
		for _, b := range p.blocks() {
			blocks++
			c.that(a.core.pools.index.blocks[b.prefix] == b, "the index does not have block %s", b.prefix)
			c.block(b)
		}
	}
	c.that(blocks == len(a.core.pools.index.blocks), "%d blocks are in pools, and %d in the index", blocks, len(a.core.pools.index.blocks))
	c.reservations()
	return c.faults
}

type checker struct {
	*core
	faults []string
	lists  map[*address]string // to the list that has it
}

func (c *checker) that(ok bool, format string, args ...any) {
	if !ok {
		c.faults = append(c.faults, fmt.Sprintf(format, args...))
	}
}

func (c *checker) owner(h Handle, r *record) {
	c.that(r.Owner == h, "the record of %s is that of %s", h, r.Owner)
	for f := range families {
		e, addr := r.addresses[f], f.of(r.Addresses)
		c.that((e != nil) == addr.IsValid(), "%s: address %s and its record are not both there", h, addr)
		if e != nil {
			c.that(e.addr == addr && e.owner == r && e.state == inUse, "%s of %s: state %d", addr, h, e.state)
			c.that(c.pools.index.known(addr) == e, "%s of %s is not where it is looked for", addr, h)
		}
	}
}

func (c *checker) list(l *freeList) {
	for name, one := range map[string]list{"uncleaned": l.uncleaned, "resting": l.resting, "free": l.free} {
		var prev *address
		for e := one.head; e != nil; prev, e = e, e.next {
			c.that(c.lists[e] == "", "%s is in the lists %s and %s", e.addr, c.lists[e], name)
			c.that(e.prev == prev && e.block.list == l, "%s: links of list %s", e.addr, name)
			c.that(prev == nil || prev.since <= e.since, "%s: order of list %s", e.addr, name)
			c.lists[e] = name
		}
		c.that(one.tail == prev, "list %s: tail", name)
	}
	var available int64
	for _, b := range l.blocks {
		c.that(b.list == l, "block %s: list", b.prefix)
		c.that(!b.drained || !slices.Contains(l.unused, b), "block %s is drained and may have unused addresses", b.prefix)
		if !b.drained {
			available += b.left()
		}
	}
	c.that(l.available == available, "%d addresses are available, counted %d", available, l.available)
}

func (c *checker) block(b *block) {
	counts, excluded := map[state]int64{}, int64(0)
	for addr, e := range b.known {
		counts[e.state]++
		c.that(e.addr == addr && e.block == b, "%s: block %s", addr, b.prefix)
		c.that(c.pools.index.blockOf(addr) == b, "%s is not where it is looked for", addr)
		c.that((e.owner != nil) == (e.state == inUse), "%s: state %d, owner %v", addr, e.state, e.owner)
		c.that(e.owner == nil || c.owners.records[e.owner.Owner] == e.owner, "%s: its owner is not on record", addr)
		want := map[state]string{uncleaned: "uncleaned", resting: "resting", free: "free"}[e.state]
		c.that(c.lists[e] == want, "%s: state %d in list %q", addr, e.state, c.lists[e])
		c.that(e.state != free || !b.drained, "%s is free, and its block drained", addr)
		c.that(e.excluded == b.excludes(addr), "%s: excluded %t", addr, e.excluded)
		c.that(e.state != free || !e.excluded, "%s is free, and excluded", addr)
		c.that(e.state != drained || b.drained || e.excluded, "%s is withdrawn, and its block gives it out", addr)
		if e.excluded && e.state.takesUp() {
			excluded++
		}
		c.that(!e.ofNode || e.state != free && e.state != unused, "%s is the node's, and in state %d", addr, e.state)
	}
	c.that(b.used == counts[inUse] && b.resting == counts[uncleaned]+counts[resting] && b.nodeOwn == counts[nodeOwn],
		"block %s counts %d, %d, %d, and has %v", b.prefix, b.used, b.resting, b.nodeOwn, counts)
	c.that(b.excludedTaken == excluded, "block %s counts %d excluded addresses that are taken, and has %d", b.prefix, b.excludedTaken, excluded)
}

func (c *checker) reservations() {
	c.that(slices.IsSortedFunc(c.core.reservations.byEnd, func(x, y *record) int { return int(max(-1, min(1, x.until-y.until))) }), "order of reservations")
	reserved, named := 0, map[Handle]int{}
	for h, r := range c.owners.records {
		if r.token != "" {
			reserved++
			c.that(slices.Contains(c.core.reservations.byEnd, r) && r.Reserved, "%s: reservation", h)
		}
		if r.PodHandle != "" {
			named[r.PodHandle]++
		}
	}
	c.that(reserved == len(c.core.reservations.byEnd), "%d reservations, and %d owners with one", len(c.core.reservations.byEnd), reserved)
	c.that(fmt.Sprint(named) == fmt.Sprint(c.owners.podHandles), "pod handles %v, counted %v", named, c.owners.podHandles)
}
