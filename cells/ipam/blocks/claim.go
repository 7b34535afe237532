package blocks

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"porin.dev/porin/cells/store"
)

// claimTries bounds how often a claim is made anew because another node was quicker.
const claimTries = 64

// claimUntil claims blocks until so many addresses are free, or nothing is. Then it makes known that this node wants some,
// if it has none left at all.
func (m *Manager) claimUntil(ctx context.Context, pool Pool, f family, enough int) error {
	for {
		free, _ := m.usage(pool.Name, f)
		if free >= enough {
			return m.unwant(ctx, pool.Name, f)
		}
		claimed, err := m.claim(ctx, pool, f)
		if err != nil {
			return err
		}
		if !claimed && free == 0 {
			return m.want(ctx, pool.Name, f)
		}
		if !claimed {
			return nil
		}
	}
}

// claim takes one block that nobody owns, from a random place on, or else a part of one that is owned in part. It is false
// when there is none.
func (m *Manager) claim(ctx context.Context, pool Pool, f family) (bool, error) {
	for range claimTries {
		block, part, ok := m.pick(pool, f)
		if !ok {
			return false, nil
		}
		err := m.claimPart(ctx, pool.Name, block, part)
		if err == nil {
			return true, m.local.Add(pool.Name, part)
		}
		if !errors.Is(err, store.ErrConflict) && !errors.Is(err, store.ErrExists) {
			return false, err
		}
		if err := m.relist(ctx, pool.Name); err != nil {
			return false, err
		}
	}
	return false, nil
}

// relist reads who owns what of a pool, after another node was quicker: there may be many of them, and what is free is chosen
// by chance from what really is.
func (m *Manager) relist(ctx context.Context, pool string) error {
	entries, _, err := m.store.List(ctx, blocksPrefix+pool+"/")
	if err == nil {
		m.view.replaceSlots(pool, entries)
	}
	return err
}

// pick chooses what to claim: a block of which nobody has anything, or a part that nobody has.
func (m *Manager) pick(pool Pool, f family) (block, part netip.Prefix, ok bool) {
	if pool.count(f) == 0 {
		return block, part, false
	}
	if block, ok := m.view.untouched(pool, f, m.rng.Uint64N); ok {
		return block, block, true
	}
	free := m.view.partly(pool, f)
	if len(free) == 0 {
		return block, part, false
	}
	one := free[m.rng.IntN(len(free))]
	return one.block, one.part, true
}

// claimPart is one compare-and-swap.
func (m *Manager) claimPart(ctx context.Context, pool string, block, prefix netip.Prefix) error {
	was := m.view.slot(pool, block)
	return m.write(ctx, pool, block, was, was.with(part{Prefix: prefix, Node: m.cfg.Node, Claimed: time.Now().UTC().Round(time.Second)}))
}

// write replaces a slot as it is known. One without owners is removed.
func (m *Manager) write(ctx context.Context, pool string, block netip.Prefix, was versioned, now slot) (err error) {
	key, revision := slotKey(pool, block), int64(0)
	switch {
	case len(now.Parts) == 0:
		if err = m.store.Delete(ctx, key, was.revision); err == nil {
			m.view.drop(key)
		}
		return err
	case was.revision == 0:
		revision, err = m.store.Create(ctx, key, encode(now), nil)
	default:
		revision, err = m.store.CompareAndSwap(ctx, key, was.revision, encode(now))
	}
	if err == nil {
		m.view.put(store.Entry{Key: key, Value: encode(now), Revision: revision})
	}
	return err
}

// refresh reads a slot that was not as it was known.
func (m *Manager) refresh(ctx context.Context, pool string, block netip.Prefix) error {
	key := slotKey(pool, block)
	e, err := m.store.Get(ctx, key)
	if errors.Is(err, store.ErrNotFound) {
		m.view.drop(key)
		return nil
	}
	if err == nil {
		m.view.put(e)
	}
	return err
}

// want makes known that this node has no address left and found no block.
func (m *Manager) want(ctx context.Context, pool string, f family) error {
	key := wantKey(pool, f, m.cfg.Node)
	if m.lacked[key] || m.lease == nil {
		return nil
	}
	_, err := m.store.Create(ctx, key, encode(presence{Node: m.cfg.Node}), m.lease)
	if err == nil || errors.Is(err, store.ErrExists) {
		m.lacked[key] = true
		return nil
	}
	return err
}

func (m *Manager) unwant(ctx context.Context, pool string, f family) error {
	key := wantKey(pool, f, m.cfg.Node)
	if !m.lacked[key] {
		return nil
	}
	err := m.store.Delete(ctx, key, 0)
	if err == nil {
		delete(m.lacked, key)
	}
	return err
}
