package blocks

import (
	"context"
	"errors"
	"strings"
	"time"

	"porin.dev/porin/cells/store"
)

// watching is what this node knows of the others, from its last look at them.
type watching struct {
	nodes    int                  // that lived
	gone     map[holding]sighting // parts whose owners did not
	nextLook time.Duration
}

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
	if m.own.ahead(c) {
		m.amiss()
	}
	m.own.compare("", area{census: c})
	if err := errors.Join(m.settle(ctx), m.regain(ctx)); err != nil {
		return err
	}
	m.adopt()
	m.publish()
	m.nodes = len(nodes)
	m.nextLook = now + m.lookAfter(m.nodes)
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
	seen, due := map[holding]sighting{}, map[slotID][]holding{}
	for _, h := range c.holdings(func(node string) bool { return !m.isSelf(node) && !living[node] }) {
		first, revision := m.gone[h], c[h.slotID].revision
		if first.revision != revision {
			first = sighting{now, revision}
		}
		seen[h] = first
		if now-first.since >= m.cfg.Grace {
			due[h.slotID] = append(due[h.slotID], h)
			continue
		}
		m.nextLook = min(m.nextLook, first.since+m.cfg.Grace)
	}
	m.gone = seen
	var errs []error
	for at, parts := range due {
		errs = append(errs, m.takeFrom(ctx, at, c[at], parts))
	}
	return errors.Join(errs...)
}

// takeFrom takes parts of a block at once: each change of it is a sign of life of all who have some of it. The store says
// once more that the owners are gone.
func (m *Manager) takeFrom(ctx context.Context, at slotID, was versioned, parts []holding) error {
	left := was.slot
	for _, h := range parts {
		_, err := m.store.Get(ctx, nodesPrefix+h.node)
		if err == nil {
			return nil // a later look finds out
		}
		if !errors.Is(err, store.ErrNotFound) {
			return err
		}
		left = left.without(h.node, h.part)
	}
	if err := m.write(ctx, at, was, left); err != nil {
		if lost(err) {
			return nil
		}
		return err
	}
	var errs []error
	for _, h := range parts {
		m.meters.reclaimed.Inc()
		m.log.Info("block of a node that is gone is free", "pool", h.pool, "cidr", h.part, "node", h.node)
		errs = append(errs, m.freed(ctx, h.pool, familyOf(h.part)))
	}
	return errors.Join(errs...)
}
