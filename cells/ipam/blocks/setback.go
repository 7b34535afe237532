package blocks

import (
	"context"
	"net/netip"
	"slices"
	"time"
)

// setBack is that the store is of a time before: what it lacks, and what it says too much, is found soon, by not all nodes at
// once.
func (m *Manager) setBack() {
	m.amiss()
	m.wasBack = true
	soon := m.cfg.Interval + time.Duration(m.nodes)*m.cfg.Interval/200
	m.nextLook = min(m.nextLook, m.clock()+time.Duration(m.rng.Int64N(int64(soon))))
}

// disown gives back what the store says is this node's and the node has not known, once the store was set back: it had given
// it back since, and another node may have it in use. What is in use here is kept.
func (m *Manager) disown(ctx context.Context, at slotID, s versioned) (versioned, error) {
	if !m.wasBack || m.own.knows(at, s) {
		return s, nil
	}
	known, left := m.own.slots[at].ownedBy(m.cfg.Node), s.slot
	for _, part := range s.ownedBy(m.cfg.Node) {
		if !slices.Contains(known, part) && m.unused(at.pool, part) {
			left = left.without(m.cfg.Node, part)
		}
	}
	if len(left.Parts) == len(s.Parts) {
		return s, nil
	}
	if err := m.write(ctx, at, s, left); err != nil {
		return s, err
	}
	return m.read(ctx, at)
}

// unused tells whether nothing of a part is in use here. It is not given out from.
func (m *Manager) unused(pool string, part netip.Prefix) bool {
	m.retire(pool, part)
	busy := func(u Usage) bool { return u.Block.Overlaps(part) && !u.empty() }
	return !slices.ContainsFunc(m.local.Usage(pool), busy)
}
