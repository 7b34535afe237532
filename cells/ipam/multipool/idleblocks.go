package multipool

import (
	"maps"
	"net/netip"
	"time"
)

// idleBlocks say when to give back blocks of which nothing is in use. It is not safe for concurrent use.
type idleBlocks struct {
	clock func() time.Duration
	least time.Duration                  // that a block is idle before it is given back
	since map[netip.Prefix]time.Duration // it is idle
	times map[string]idleTime            // by pool
}

// idleTime is how long a block of a pool must be idle before it is given back. It doubles each time that the node soon needs one again.
type idleTime struct {
	time  time.Duration
	given time.Duration // when a block was given back last
}

// time returns the pool's.
func (i *idleBlocks) time(pool string) time.Duration { return max(i.times[pool].time, i.least) }

// begin notes that nothing of the block is in use, and reports for how long that has been so.
func (i *idleBlocks) begin(block netip.Prefix) time.Duration {
	since, ok := i.since[block]
	if !ok {
		since = i.clock()
		i.since[block] = since
	}
	return i.clock() - since
}

func (i *idleBlocks) end(block netip.Prefix) { delete(i.since, block) }

// keep forgets all blocks but these.
func (i *idleBlocks) keep(blocks map[netip.Prefix]bool) {
	maps.DeleteFunc(i.since, func(block netip.Prefix, _ time.Duration) bool { return !blocks[block] })
}

// givenBack notes that a block of the pool was.
func (i *idleBlocks) givenBack(pool string) { i.times[pool] = idleTime{i.time(pool), i.clock()} }

// needed makes the idle time of the pool longer when a block is needed again soon after one was given back.
func (i *idleBlocks) needed(pool string) {
	t, ok := i.times[pool]
	if !ok {
		return
	}
	if was := i.time(pool); i.clock()-t.given < 2*was {
		t.time = min(2*was, maxIdleTime)
	} else {
		t.time = i.least
	}
	i.times[pool] = t
}

// next returns how long it is until the next block may be given back, at most.
func (i *idleBlocks) next(most time.Duration) time.Duration {
	for _, since := range i.since {
		most = min(most, max(since+i.least-i.clock(), i.least/10))
	}
	return most
}
