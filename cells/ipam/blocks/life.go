package blocks

import (
	"context"
	"errors"
	"slices"
	"time"

	"porin.dev/porin/cells/store"
)

// live has the store know that this node lives.
func (m *Manager) live(ctx context.Context) error {
	if m.lease != nil {
		select {
		case <-m.lease.Lost():
			m.lease = nil
			clear(m.lacked)
		default:
			m.local.Until(m.clock() + m.cfg.fence())
			return nil
		}
	}
	lease, err := m.store.Lease(ctx, m.cfg.LeaseTTL)
	if err != nil {
		return err
	}
	if err := errors.Join(m.appear(ctx, lease), m.confirm(ctx)); err != nil {
		return errors.Join(err, lease.Release(ctx))
	}
	m.lease = lease
	m.local.Until(m.clock() + m.cfg.fence())
	return nil
}

// appear has the store show that this node lives: under this lease, whatever an earlier life of the agent left.
func (m *Manager) appear(ctx context.Context, lease store.Lease) error {
	key, value := nodesPrefix+m.cfg.Node, encode(presence{Node: m.cfg.Node, Labels: m.cfg.Labels})
	for range claimTries {
		_, err := m.store.Create(ctx, key, value, lease)
		if !errors.Is(err, store.ErrExists) {
			return err
		}
		was, err := m.store.Get(ctx, key)
		if err == nil {
			_, err = lease.CompareAndSwap(ctx, key, was.Revision, value)
		}
		if !errors.Is(err, store.ErrNotFound) && !errors.Is(err, store.ErrConflict) {
			return err
		}
	}
	return store.ErrConflict
}

// confirm reads what this node owns, and writes it once more: others may have taken it meanwhile, or be about to. Whoever
// has seen that the node was gone finds another revision; whoever looks from now on finds that it lives.
func (m *Manager) confirm(ctx context.Context) error {
	entries, _, err := m.store.List(ctx, "")
	if err != nil {
		return err
	}
	m.view.reset(entries)
	for _, h := range m.view.holdings(m.isSelf) {
		if err := m.confirmSlot(ctx, h); err != nil {
			return err
		}
	}
	m.configure()
	m.adopt() // and what is lost is drained, before anything is given out again
	return nil
}

func (m *Manager) confirmSlot(ctx context.Context, h holding) error {
	for range claimTries {
		was := m.view.slot(h.pool, h.block)
		if !slices.Contains(was.ownedBy(m.cfg.Node), h.part) {
			return nil // it is lost
		}
		err := m.write(ctx, h.pool, h.block, was, was.slot)
		if !errors.Is(err, store.ErrConflict) {
			return err
		}
		if err := m.refresh(ctx, h.pool, h.block); err != nil {
			return err
		}
	}
	return store.ErrConflict
}

// sighting is a look at a part whose owner was gone.
type sighting struct {
	since    time.Duration
	revision int64 // of the slot
}

// reclaim takes the parts of nodes that have been gone for the grace time: at a first look, and at one that long after it,
// and at no time in between. A node that comes back writes its slots once more, so a slot that has the revision of the
// first look says that its owner did not, whatever else this node may have missed.
func (m *Manager) reclaim(ctx context.Context, now time.Duration) error {
	var errs []error
	seen := map[holding]sighting{}
	for _, h := range m.view.holdings(func(node string) bool { return !m.isSelf(node) && !m.view.lives(node) }) {
		first, revision := m.gone[h], m.view.slot(h.pool, h.block).revision
		if first.revision != revision {
			first = sighting{now, revision}
		}
		seen[h] = first
		if now-first.since >= m.cfg.Grace {
			errs = append(errs, m.takeFrom(ctx, h))
		}
	}
	m.gone = seen
	return errors.Join(errs...)
}

// takeFrom has the store say once more that the owner is gone.
func (m *Manager) takeFrom(ctx context.Context, h holding) error {
	_, err := m.store.Get(ctx, nodesPrefix+h.node)
	if !errors.Is(err, store.ErrNotFound) {
		return err
	}
	was := m.view.slot(h.pool, h.block)
	err = m.write(ctx, h.pool, h.block, was, was.without(h.node, h.part))
	if errors.Is(err, store.ErrConflict) {
		return m.refresh(ctx, h.pool, h.block)
	}
	if err == nil {
		m.log.Info("block of a node that is gone is free", "pool", h.pool, "cidr", h.part, "node", h.node)
	}
	return err
}
