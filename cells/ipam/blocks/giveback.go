package blocks

import (
	"context"
	"errors"
	"net/netip"
	"time"
)

// giveBack gives up what is not needed: an empty block whose addresses are not wanted here, after a while; at once when the
// pool is no longer for this node, or when another node has none. Then also half of a block of which nothing is used.
func (m *Manager) giveBack(ctx context.Context, pool string, f family, ours bool, usage []Usage) error {
	wanted, free := m.view.wanted(pool, f, m.cfg.Node) && m.mine(), 0
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
	if wanted {
		errs = append(errs, m.giveHalf(ctx, pool, free, usage))
	}
	return errors.Join(errs...)
}

// mine tells whether a want is this node's to see to, by chance: about two nodes for each want, and not all at once.
func (m *Manager) mine() bool {
	nodes, wants := m.view.counts()
	return m.rng.IntN(max(nodes, 1)) < 2*wants
}

// spare tells whether a block is to be given back, when that leaves so many free addresses.
func (m *Manager) spare(pool string, u Usage, ours, wanted bool, left int) bool {
	if !u.empty() {
		delete(m.idle, holding{pool: pool, part: u.Block})
		return false
	}
	return u.Drained || !ours || wanted && left >= 1 ||
		left >= m.cfg.enough() && m.idleFor(pool, u.Block) >= m.cfg.GiveBackAfter
}

// idleFor is how long a part has been empty and not needed; the first time it is asked, 0.
func (m *Manager) idleFor(pool string, block netip.Prefix) time.Duration {
	key, now := holding{pool: pool, part: block}, m.clock()
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
		if u.Block.Addr().BitLen()-u.Block.Bits() <= leastPart || u.empty() || free-u.Capacity/2 < m.cfg.enough() {
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
	delete(m.idle, holding{pool: pool, part: prefix})
	return m.drop(ctx, pool, prefix)
}

// drop removes this node's part of a slot in the store.
func (m *Manager) drop(ctx context.Context, pool string, prefix netip.Prefix) error {
	if err := m.forgo(memoPart{pool, prefix}); err != nil {
		return err
	}
	for _, h := range m.view.holdings(m.isSelf) {
		if h.pool == pool && h.part == prefix {
			was := m.view.slot(pool, h.block)
			return m.giveUp(ctx, h, was, was.without(m.cfg.Node, prefix))
		}
	}
	return nil
}

// giveUp writes a slot of which this node has less. When the answer is lost nobody knows what it has: the part is not given
// out from until settle has found out.
func (m *Manager) giveUp(ctx context.Context, h holding, was versioned, now slot) error {
	m.given[h] = true
	err := m.write(ctx, h.pool, h.block, was, now)
	if err == nil {
		delete(m.given, h)
	}
	return err
}

// settle finds out what became of parts whose giving up was not answered. One that is this node's yet is written once more,
// so that an attempt that is still on its way finds another revision.
func (m *Manager) settle(ctx context.Context) error {
	for h := range m.given {
		err := m.refresh(ctx, h.pool, h.block)
		if err == nil {
			err = m.confirmSlot(ctx, h)
		}
		if err != nil {
			return err
		}
		delete(m.given, h)
	}
	return nil
}

// shrink replaces a part by the half of it that is kept.
func (m *Manager) shrink(ctx context.Context, pool string, whole, given netip.Prefix) error {
	if err := m.forgo(memoPart{pool, given}); err != nil {
		return err
	}
	low, high := halves(whole)
	kept := low
	if given == low {
		kept = high
	}
	for _, h := range m.view.holdings(m.isSelf) {
		if h.pool == pool && h.part == whole {
			was := m.view.slot(pool, h.block)
			now := was.without(m.cfg.Node, whole).with(part{Prefix: kept, Node: m.cfg.Node, Claimed: time.Now().UTC().Round(time.Second)})
			return m.giveUp(ctx, h, was, now)
		}
	}
	return nil
}
