package allocator

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// freeList has blocks of one family, and their addresses in the order in which they are given out: unused ones, then
// the address that has been free for the longest time. It takes constant time, however many blocks there are: an
// address passes from one list to the next once. It is not safe for concurrent use.
type freeList struct {
	pool      *pool
	blocks    []*block
	unused    []*block // blocks that may have unused addresses, in the order in which they are used up
	available int64    // how many addresses may be given out now

	uncleaned, resting, free list
}

func (l *freeList) add(b *block) {
	b.list = l
	l.blocks = append(l.blocks, b)
	if !b.drained {
		l.unused = append(l.unused, b)
		l.available += b.left()
	}
}

// expire frees what has rested.
func (l *freeList) expire(now time.Duration) {
	for e := l.resting.head; e != nil && e.since <= now-l.pool.settings.Quarantine; e = l.resting.head {
		e.removeFromList()
		e.becomeFree()
	}
}

// next returns the address to give out, and leaves it where it is; nil when there is none.
func (l *freeList) next() *address {
	for len(l.unused) > 0 {
		if e := l.unused[0].nextUnused(); e != nil {
			return e
		}
		l.unused = slices.Delete(l.unused, 0, 1)
	}
	return l.free.head
}

// oldest returns the longest resting address that may be given out, or nil. It passes addresses of
// drained blocks, and excluded ones, over one by one: they are few.
func (l *freeList) oldest() *address {
	for e := l.resting.head; e != nil; e = e.next {
		if !e.block.drained && !e.ofNode && !e.excluded {
			return e
		}
	}
	return nil
}

// drain ends that anything of a block is given out.
func (l *freeList) drain(b *block) {
	if b.drained {
		return
	}
	l.available -= b.left()
	b.drained = true
	l.unused = slices.DeleteFunc(l.unused, func(other *block) bool { return other == b })
	for _, e := range b.known {
		if e.state == free {
			e.removeFromList()
			e.enter(drained)
		}
	}
}

// undrain is the reverse of drain.
func (l *freeList) undrain(b *block) {
	if !b.drained {
		return
	}
	b.drained = false
	l.available += b.left()
	l.unused = append(l.unused, b)
	var back []*address
	for _, e := range b.known {
		if e.state == drained && !e.excluded {
			back = append(back, e)
		}
	}
	l.freeRested(back)
}

// freeRested frees addresses that have rested and were not given out.
func (l *freeList) freeRested(back []*address) {
	slices.SortFunc(back, func(x, y *address) int {
		return cmp.Or(cmp.Compare(x.since, y.since), x.addr.Compare(y.addr))
	})
	for _, e := range back {
		e.state = free
	}
	l.free.merge(back)
}

// remove takes a block away with all that is known of it.
func (l *freeList) remove(b *block) {
	for _, e := range b.known {
		e.removeFromList()
	}
	if !b.drained {
		l.available -= b.left()
	}
	is := func(other *block) bool { return other == b }
	l.unused = slices.DeleteFunc(l.unused, is)
	l.blocks = slices.DeleteFunc(l.blocks, is)
}

// describe says what holds the list's addresses.
func (l *freeList) describe(now time.Duration) string {
	var capacity, used, rest, ofNode int64
	drained := 0
	for _, b := range l.blocks {
		if b.drained {
			drained++
		}
		capacity, used, rest, ofNode = capacity+b.capacity(), used+b.used, rest+b.resting, ofNode+b.nodeOwn
	}
	what := l.blocks[0].prefix.String() + " has"
	if len(l.blocks) > 1 {
		what = fmt.Sprintf("%d blocks have", len(l.blocks))
	}
	text := fmt.Sprintf("%s %d, of which %d in use and %d in quarantine", what, capacity, used, rest)
	next := forever
	for _, e := range []*address{l.uncleaned.head, l.resting.head} {
		if e != nil {
			next = min(next, e.since+l.pool.settings.Quarantine-now)
		}
	}
	if next <= 0 {
		text += " (the connections of its last owner are being deleted)"
	} else if next != forever {
		text += fmt.Sprintf(" (the next is free in %s)", next.Round(time.Millisecond))
	}
	if drained > 0 { // for good, or until it was compared with the store
		text += fmt.Sprintf("; %d of %d gives out nothing now", drained, len(l.blocks))
	}
	if ofNode > 0 {
		text += fmt.Sprintf("; the node itself has %d more", ofNode)
	}
	return text
}
