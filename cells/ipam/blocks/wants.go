package blocks

import (
	"context"
	"errors"
	"time"

	"porin.dev/porin/cells/store"
)

// want makes known that this node has no address left and found no block. Whoever frees some ends the want, and this node
// looks again.
func (m *Manager) want(ctx context.Context, pool string, f family, owners int) error {
	key := wantKey(pool, f, m.cfg.Node)
	if _, ok := m.notices.wants[key]; ok || m.lease == nil {
		return nil
	}
	_, err := m.store.Create(ctx, key, encode(want{m.cfg.Node, owners}), m.lease)
	if errors.Is(err, store.ErrExists) {
		return nil
	}
	return err
}

func (m *Manager) unwant(ctx context.Context, pool string, f family) error {
	key := wantKey(pool, f, m.cfg.Node)
	if _, ok := m.notices.wants[key]; !ok {
		return nil
	}
	return m.endWant(ctx, key)
}

func (m *Manager) endWant(ctx context.Context, key string) error {
	err := m.store.Delete(ctx, key, 0)
	if err == nil {
		m.notices.drop(key)
	}
	return err
}

// freed ends one want of what this node has freed, at random: its node looks again, and no other gives up more for it.
func (m *Manager) freed(ctx context.Context, pool string, f family) error {
	keys := m.notices.wanted(pool, f, m.cfg.Node)
	if len(keys) == 0 {
		return nil
	}
	return m.endWant(ctx, keys[m.rng.IntN(len(keys))])
}

// demand is that others want something of a pool and family.
type demand struct {
	pool   string
	family family
}

// generous tells whether this node has given something up for others a short while ago: it does not take it back.
func (m *Manager) generous(pool string, f family) bool {
	at, ok := m.gave[demand{pool, f}]
	return ok && m.clock()-at < m.cfg.Interval
}

// demanded tells whether this node is to give something up now: others want some, and have for a while that is another for
// each node, and the longer the more nodes there are. So a few do, and not all at once.
func (m *Manager) demanded(pool string, f family) bool {
	key, now := demand{pool, f}, m.clock()
	keys := m.notices.wanted(pool, f, m.cfg.Node)
	if len(keys) == 0 {
		delete(m.demands, key)
		return false
	}
	due, ok := m.demands[key]
	if !ok {
		due = now + time.Duration(m.rng.Int64N(int64(m.spread(m.notices.wants[keys[0]].Owners))))
		m.demands[key] = due
		time.AfterFunc(due-now, m.Kick)
	}
	return now >= due
}

// spread is over how long so many nodes give up something: 100 a second, if a look at everything is due each ten seconds.
func (m *Manager) spread(owners int) time.Duration {
	return max(1, min(time.Duration(max(owners, 1))*m.cfg.Interval/1000, m.cfg.Interval/2))
}
