package blocks

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"porin.dev/porin/internal/fault"
)

// claimTries bounds how often a change is tried anew because another node was quicker.
const claimTries = 64

// claimUntil claims blocks until so many addresses are free, or nothing is. Then it makes known that this node wants some,
// if it has none left at all.
func (m *Manager) claimUntil(ctx context.Context, pool Pool, f family, enough int) error {
	for {
		free, _ := m.usage(pool.Name, f)
		if free >= enough {
			return m.unwant(ctx, pool.Name, f)
		}
		claimed, owners, err := m.claim(ctx, pool, f)
		if err != nil {
			return err
		}
		if !claimed && free == 0 {
			return m.want(ctx, pool.Name, f, owners)
		}
		if !claimed {
			return nil
		}
	}
}

// claim takes one block that nobody owns: one at random, and when that is somebody's, one of those that are free, or a part
// of one. It is false when there is none; then it says how many nodes have some.
func (m *Manager) claim(ctx context.Context, pool Pool, f family) (claimed bool, owners int, err error) {
	if err := m.settled(); err != nil {
		return false, 0, err
	}
	known := area{census: census(m.own.slots)}
	for range claimTries {
		at, part, ok := m.pick(known, pool, f)
		if !ok {
			return false, known.owners(), nil
		}
		err := m.claimPart(ctx, at, known.census[at], part)
		if err == nil {
			claimed, err = m.take(ctx, at, part)
			return claimed, 0, err
		}
		if !lost(err) {
			return false, 0, err
		}
		if known, err = m.survey(ctx, pool, f, at.block); err != nil {
			return false, 0, err
		}
		if len(m.own.doubts) > 0 {
			err = m.recover(ctx)
			return err == nil, 0, err
		}
	}
	return false, known.owners(), nil
}

// shardTries is how many shards of a pool are looked at before all of it is.
const shardTries = 4

// survey reads who owns what where another node was met, or at another random place when nothing is free there, or in all
// of the pool.
func (m *Manager) survey(ctx context.Context, pool Pool, f family, at netip.Prefix) (area, error) {
	for range shardTries {
		c, err := m.list(ctx, shardKey(pool.Name, at))
		shard := area{c, shardOf(at)}
		if err != nil || len(shard.untouched(pool)) > 0 {
			m.own.compare(pool.Name, shard)
			return shard, err
		}
		at = pool.block(f, m.rng.Uint64N(pool.count(f)))
	}
	c, err := m.list(ctx, poolKey(pool.Name))
	if err == nil {
		m.own.compare(pool.Name, area{census: c})
	}
	return area{census: c}, err
}

// list reads who owns what.
func (m *Manager) list(ctx context.Context, prefix string) (census, error) {
	entries, _, err := m.store.List(ctx, prefix)
	return readCensus(entries), err
}

// recover takes in what is this node's and was not known, from before a boot: that is as good as a claim.
func (m *Manager) recover(ctx context.Context) error {
	err := m.settle(ctx)
	if err == nil {
		m.adopt()
	}
	return err
}

// pick chooses what to claim: a block of which nobody has anything, or a part that nobody has.
func (m *Manager) pick(known area, pool Pool, f family) (at slotID, part netip.Prefix, ok bool) {
	if pool.count(f) == 0 {
		return at, part, false
	}
	if known.shard.IsValid() {
		free := known.untouched(pool)
		block := free[m.rng.IntN(len(free))]
		return slotID{pool.Name, block}, block, true
	}
	if block, ok := known.census.untouched(pool, f, m.rng.Uint64N); ok {
		return slotID{pool.Name, block}, block, true
	}
	free := known.partly(pool, f)
	if len(free) == 0 {
		return at, part, false
	}
	one := free[m.rng.IntN(len(free))]
	return one.slotID, one.part, true
}

// claimPart is one compare-and-swap. That the memo cannot say so before is no reason to have no addresses.
func (m *Manager) claimPart(ctx context.Context, at slotID, was versioned, prefix netip.Prefix) error {
	m.warn(m.intend(at), "an agent that is killed now would not know what it has claimed")
	err := m.write(ctx, at, was, was.with(part{Prefix: prefix, Node: m.cfg.Node, Claimed: time.Now().UTC().Round(time.Second)}))
	m.meters.claim(err)
	return err
}

// take has a part that was claimed given out from, if the pool is as it was when it was chosen. Addresses may have been
// taken out of the pool meanwhile, and be another one's soon.
func (m *Manager) take(ctx context.Context, at slotID, prefix netip.Prefix) (claimed bool, err error) {
	if err := m.readPools(ctx); err != nil {
		m.own.doubts[at] = true
		return false, err
	}
	if pool := m.notices.pools[at.pool]; !pool.claimable(m.cfg.Labels) || !pool.has(at.block) {
		return false, m.drop(ctx, at.pool, prefix)
	}
	m.log.Info("block claimed", "pool", at.pool, "cidr", prefix)
	return true, m.local.Add(at.pool, prefix)
}

// claimAddress claims the block that an address is in, or what is free of it.
func (m *Manager) claimAddress(ctx context.Context, pool Pool, addr netip.Addr) error {
	block, ok := pool.blockOf(addr)
	if !ok {
		return nil // the allocator says so
	}
	at := slotID{pool.Name, block}
	for range claimTries {
		was, err := m.read(ctx, at)
		if err != nil {
			return err
		}
		if !m.own.knows(at, was) { // from before a boot
			m.own.doubts[at] = true
			if err := m.recover(ctx); err != nil {
				return err
			}
			continue
		}
		prefix, err := was.around(block, addr, m.cfg.Node)
		if err != nil || !prefix.IsValid() {
			return err
		}
		if err := m.settled(); err != nil {
			return err
		}
		if err = m.claimPart(ctx, at, was, prefix); err == nil {
			_, err = m.take(ctx, at, prefix)
		}
		if !lost(err) {
			return err
		}
	}
	return nil
}

// around returns the part with an address that is free, or the error that says whose it is; nothing when it is the node's
// own.
func (s versioned) around(block netip.Prefix, addr netip.Addr, self string) (netip.Prefix, error) {
	for _, p := range s.Parts {
		if p.Prefix.Contains(addr) && p.Node == self {
			return netip.Prefix{}, nil
		}
		if p.Prefix.Contains(addr) {
			return netip.Prefix{}, fault.New(fault.Conflict, fmt.Sprintf("address %s is in %s, which node %s has", addr, p.Prefix, p.Node))
		}
	}
	for _, free := range s.free(block) {
		if free.Contains(addr) && !s.opaque {
			return free, nil
		}
	}
	return netip.Prefix{}, fault.New(fault.Conflict, fmt.Sprintf("address %s: block %s was written by a later version of Porin", addr, block))
}
