package blocks

import (
	"cmp"
	"context"
	"errors"

	"porin.dev/porin/cells/store"
)

// live has the store know that this node lives.
func (m *Manager) live(ctx context.Context) error {
	if m.lease != nil {
		select {
		case <-m.lease.Lost():
			m.lease = nil
		default:
			if err := m.makeSure(ctx); err != nil {
				return err
			}
			m.local.Until(m.clock() + m.cfg.fence())
			return nil
		}
	}
	if err := m.checkName(ctx); err != nil {
		return err
	}
	lease, err := m.store.Lease(ctx, m.cfg.LeaseTTL)
	if err != nil {
		return err
	}
	if err := errors.Join(m.appear(ctx, lease), m.returned(ctx)); err != nil {
		return errors.Join(err, lease.Release(ctx))
	}
	m.lease, m.unsure = lease, false
	m.local.Until(m.clock() + m.cfg.fence())
	return nil
}

// lost is closed when there is a lease, and it is lost.
func (m *Manager) lost() <-chan struct{} {
	if m.lease == nil {
		return nil
	}
	return m.lease.Lost()
}

// makeSure finds out what the store knows when it may have been set back.
func (m *Manager) makeSure(ctx context.Context) error {
	if !m.unsure {
		return nil
	}
	err := m.appear(ctx, m.lease)
	if errors.Is(err, store.ErrLeaseLost) { // sooner than it is renewed
		err = m.lease.Release(ctx)
		m.lease = nil
		return cmp.Or(err, m.live(ctx))
	}
	if err == nil {
		err = m.returned(ctx)
	}
	m.unsure = err != nil
	return err
}

// appear has the store show that this node lives: under this lease, whatever an earlier life of the agent left. What another
// agent has said of a node of the same name stays.
func (m *Manager) appear(ctx context.Context, lease store.Lease) error {
	key, value := nodesPrefix+m.cfg.Node, encode(presence{Node: m.cfg.Node, Labels: m.cfg.Labels, Agent: m.agent})
	for range claimTries {
		_, err := m.store.Create(ctx, key, value, lease)
		if !errors.Is(err, store.ErrExists) {
			return err
		}
		was, err := m.store.Get(ctx, key)
		if err == nil {
			err = m.notMine(was)
		}
		if err == nil {
			_, err = lease.CompareAndSwap(ctx, key, was.Revision, value)
		}
		if !errors.Is(err, store.ErrNotFound) && !errors.Is(err, store.ErrConflict) {
			return err
		}
	}
	return store.ErrConflict
}

// returned finds out what this node owns: others may have taken some of it meanwhile, or be about to. Whoever has seen that
// the node was gone finds another revision; whoever looks from now on finds that it lives. What is in use is claimed again if
// the store has lost it; what is another's is drained before anything is given out again.
func (m *Manager) returned(ctx context.Context) error {
	m.own.doubtAll()
	err := m.settle(ctx)
	if err == nil {
		err = m.regain(ctx)
	}
	if err == nil {
		m.configure()
		m.adopt()
	}
	return err
}
