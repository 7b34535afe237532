package blocks

import (
	"context"
	"errors"
	"net/netip"
	"time"
)

// giving is what is given up, and when.
type giving struct {
	idle     map[idleKey]time.Duration // since when a part is empty and not needed
	demands  map[demand]time.Duration  // when this node is to give up something for others, unless another one has
	gave     map[demand]time.Duration  // when it last did
	restless bool                      // addresses that rest keep a block that is to be given back
}

func newGiving() giving {
	return giving{idle: map[idleKey]time.Duration{}, demands: map[demand]time.Duration{}, gave: map[demand]time.Duration{}}
}

// giveBack gives up what is not needed: an empty block whose addresses are not wanted here, after a while; at once when the
// pool is no longer for this node, or when another node has none. Then also half of a block of which nothing is used.
func (m *Manager) giveBack(ctx context.Context, pool string, f family, ours bool, usage []Usage) error {
	asked, free := m.demanded(pool, f), 0
	wanted := asked
	for _, u := range usage {
		free += u.free()
	}
	var errs []error
	for _, u := range usage {
		if !m.spare(pool, u, ours, wanted, free-u.free()) {
			continue
		}
		free -= u.free()
		errs = append(errs, m.give(ctx, pool, u.Block))
		wanted = false // one is enough for this round
	}
	if asked && !wanted {
		m.gave[demand{pool, f}] = m.clock()
	}
	if wanted {
		errs = append(errs, m.giveHalf(ctx, pool, free, usage))
	}
	return errors.Join(errs...)
}

// spare tells whether a block is to be given back, when that leaves so many free addresses.
func (m *Manager) spare(pool string, u Usage, ours, wanted bool, left int) bool {
	if !u.empty() {
		delete(m.idle, idleKey{pool, u.Block})
		m.restless = m.restless || u.Used == 0 && (u.Drained || !ours)
		return false
	}
	return u.Drained || !ours || wanted && left >= 1 ||
		left >= m.cfg.enough() && m.idleFor(pool, u.Block) >= m.cfg.GiveBackAfter
}

// idleKey is a part that may be empty.
type idleKey struct {
	pool string
	part netip.Prefix
}

// idleFor is how long a part has been empty and not needed; the first time it is asked, 0.
func (m *Manager) idleFor(pool string, block netip.Prefix) time.Duration {
	key, now := idleKey{pool, block}, m.clock()
	since, ok := m.idle[key]
	if !ok {
		m.idle[key] = now
		return 0
	}
	return now - since
}

// giveHalf gives up one half of the first block that has one of which nothing is used, when enough stays free.
func (m *Manager) giveHalf(ctx context.Context, pool string, free int, usage []Usage) error {
	for _, u := range usage {
		if u.Block.Addr().BitLen()-u.Block.Bits() <= leastPart || free-u.Capacity/2 < m.cfg.enough() {
			continue
		}
		low, high := halves(u.Block)
		for _, half := range []netip.Prefix{high, low} {
			if err := m.local.Remove(pool, half); err == nil {
				return m.shrink(ctx, pool, u.Block, half)
			}
		}
	}
	return nil
}

// give removes a part here, and then in the store: in between nobody gives it out.
func (m *Manager) give(ctx context.Context, pool string, prefix netip.Prefix) error {
	if err := m.local.Remove(pool, prefix); err != nil {
		return nil // something of it is in use by now
	}
	delete(m.idle, idleKey{pool, prefix})
	return m.drop(ctx, pool, prefix)
}

// drop removes this node's part of a block in the store. When the answer is lost nobody knows what the block is, and it is
// given out from no more until settle has found out.
func (m *Manager) drop(ctx context.Context, pool string, prefix netip.Prefix) error {
	return m.giveUp(ctx, pool, prefix, prefix, func(s slot) slot { return s.without(m.cfg.Node, prefix) })
}

// shrink replaces a part by the half of it that is kept.
func (m *Manager) shrink(ctx context.Context, pool string, whole, given netip.Prefix) error {
	low, high := halves(whole)
	kept := low
	if given == low {
		kept = high
	}
	return m.giveUp(ctx, pool, whole, given, func(s slot) slot {
		return s.without(m.cfg.Node, whole).with(part{Prefix: kept, Node: m.cfg.Node, Claimed: time.Now().UTC().Round(time.Second)})
	})
}

// giveUp changes a block so that this node has less of a part of it, after the memo has said so. Then whoever wants some
// looks again.
func (m *Manager) giveUp(ctx context.Context, pool string, whole, given netip.Prefix, edit func(slot) slot) error {
	at, ok := m.own.find(pool, whole)
	if !ok {
		return nil
	}
	if err := m.forgo(at, given); err != nil {
		return err
	}
	if err := m.change(ctx, holding{at, whole, m.cfg.Node}, m.own.slots[at], edit); err != nil {
		return err
	}
	m.meters.given.Inc()
	m.log.Info("block given back", "pool", pool, "cidr", given)
	return m.freed(ctx, pool, familyOf(given))
}
