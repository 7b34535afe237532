package blocks

import (
	"context"
	"errors"
	"strings"
	"time"

	"porin.dev/porin/cells/store"
)

// look has a look at everything when it is time. All nodes do, at random, and the less often the more there are: together
// about five times an Interval, and each at most ten times a Grace.
func (m *Manager) look(ctx context.Context) error {
	if m.clock() < m.nextLook {
		return nil
	}
	return m.lookNow(ctx)
}

// lookNow reads who owns what and who lives. It finds the blocks of nodes that are gone, and what this node owns and has not
// known, from before a boot.
func (m *Manager) lookNow(ctx context.Context) error {
	now := m.clock()
	c, err := m.list(ctx, blocksPrefix)
	if err != nil {
		return err
	}
	nodes, _, err := m.store.List(ctx, nodesPrefix)
	if err != nil {
		return err
	}
	living := map[string]bool{}
	for _, e := range nodes {
		living[strings.TrimPrefix(e.Key, nodesPrefix)] = true
	}
	m.own.compare(c, "")
	if err := m.settle(ctx); err != nil {
		return err
	}
	m.adopt()
	m.publish()
	m.nextLook = now + m.lookAfter(len(nodes))
	return m.reclaim(ctx, c, living, now)
}

// lookAfter is the time to the next look: around a mean, so that nodes that start together do not look together.
func (m *Manager) lookAfter(nodes int) time.Duration {
	mean := max(m.cfg.Grace/10, time.Duration(nodes)*m.cfg.Interval/5)
	return mean/2 + time.Duration(m.rng.Int64N(int64(mean)))
}

// sighting is a look at a part whose owner was gone.
type sighting struct {
	since    time.Duration
	revision int64 // of the slot
}

// reclaim takes the parts of nodes that have been gone for the grace time: at a first look, and at one that long after it,
// and at no time in between. A node that comes back writes its slots once more, so a slot that has the revision of the
// first look says that its owner did not, whatever else this node may have missed.
func (m *Manager) reclaim(ctx context.Context, c census, living map[string]bool, now time.Duration) error {
	var errs []error
	seen := map[holding]sighting{}
	for _, h := range c.holdings(func(node string) bool { return !m.isSelf(node) && !living[node] }) {
		first, revision := m.gone[h], c[h.slotID].revision
		if first.revision != revision {
			first = sighting{now, revision}
		}
		seen[h] = first
		if now-first.since >= m.cfg.Grace {
			errs = append(errs, m.takeFrom(ctx, h, c[h.slotID]))
			continue
		}
		m.nextLook = min(m.nextLook, first.since+m.cfg.Grace)
	}
	m.gone = seen
	return errors.Join(errs...)
}

// takeFrom has the store say once more that the owner is gone.
func (m *Manager) takeFrom(ctx context.Context, h holding, was versioned) error {
	_, err := m.store.Get(ctx, nodesPrefix+h.node)
	if !errors.Is(err, store.ErrNotFound) {
		return err
	}
	err = m.write(ctx, h.slotID, was, was.without(h.node, h.part))
	if lost(err) {
		return nil // a later look finds out
	}
	if err == nil {
		m.meters.reclaimed.Inc()
		m.log.Info("block of a node that is gone is free", "pool", h.pool, "cidr", h.part, "node", h.node)
		err = m.freed(ctx, h.pool, familyOf(h.part))
	}
	return err
}
