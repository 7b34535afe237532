package blocks

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"net/netip"
	"slices"

	"porin.dev/porin/cells/store"
	"porin.dev/porin/internal/fault"
)

// owned is what this node knows of the blocks that it has a part of. Nobody else changes that part as long as the node
// lives, so it follows nothing: what another one changes of the rest of a block, a compare-and-swap finds out.
type owned struct {
	self  string
	slots map[slotID]versioned
	// doubts are blocks of which it is not known what they are: an answer was lost, or the node was away. What the node gives
	// out of them stays as it is until settle has found out.
	doubts map[slotID]bool
}

func newOwned(self string) owned {
	return owned{self: self, slots: map[slotID]versioned{}, doubts: map[slotID]bool{}}
}

// learn takes in what a block is.
func (o *owned) learn(at slotID, s versioned) {
	delete(o.doubts, at)
	if len(s.ownedBy(o.self)) > 0 {
		o.slots[at] = s
	} else {
		delete(o.slots, at)
	}
}

// compare takes in what is known of a pool, or for "" of all. What this node has not known of its own is in doubt: it was not
// written in this life, so another node may be about to take it.
func (o *owned) compare(pool string, known area) {
	c := known.census
	for at := range o.slots {
		if (pool == "" || pool == at.pool) && known.covers(at.block) && !o.doubts[at] && o.knows(at, c[at]) {
			o.learn(at, c[at])
		}
	}
	for at, s := range c {
		if !o.knows(at, s) {
			o.doubts[at] = true
		}
	}
}

// knows tells whether the node has known all that it owns of a block.
func (o *owned) knows(at slotID, s versioned) bool {
	known := o.slots[at].ownedBy(o.self)
	return !slices.ContainsFunc(s.ownedBy(o.self), func(part netip.Prefix) bool { return !slices.Contains(known, part) })
}

// doubtAll has all be found out anew.
func (o *owned) doubtAll() {
	for at := range o.slots {
		o.doubts[at] = true
	}
}

// inDoubt tells whether a part is of a block in doubt.
func (o *owned) inDoubt(pool string, part netip.Prefix) bool {
	for at := range o.doubts {
		if at.pool == pool && at.block.Overlaps(part) {
			return true
		}
	}
	return false
}

// holdings returns the node's parts, in order.
func (o *owned) holdings() []holding {
	return census(o.slots).holdings(func(node string) bool { return node == o.self })
}

// find returns the block that a part of this node's is of.
func (o *owned) find(pool string, part netip.Prefix) (slotID, bool) {
	for at, s := range o.slots {
		if at.pool == pool && slices.Contains(s.ownedBy(o.self), part) {
			return at, true
		}
	}
	return slotID{}, false
}

// read asks the store what a block is.
func (m *Manager) read(ctx context.Context, at slotID) (versioned, error) {
	e, err := m.store.Get(ctx, at.key())
	if errors.Is(err, store.ErrNotFound) {
		return versioned{}, nil
	}
	if err != nil {
		return versioned{}, err
	}
	s, err := decodeSlot(e)
	return versioned{s, e.Revision, err != nil}, nil
}

// write replaces a block as it is known, in one compare-and-swap. One without owners is removed. Without a clear answer the
// block is in doubt.
func (m *Manager) write(ctx context.Context, at slotID, was versioned, now slot) error {
	revision, err := m.swap(ctx, at.key(), was.revision, now)
	switch {
	case err == nil:
		m.own.learn(at, versioned{slot: now, revision: revision})
	case !lost(err):
		m.own.doubts[at] = true
	}
	return err
}

// lost tells whether another node was quicker, for certain.
func lost(err error) bool {
	return errors.Is(err, store.ErrConflict) || errors.Is(err, store.ErrExists)
}

func (m *Manager) swap(ctx context.Context, key string, was int64, now slot) (int64, error) {
	switch {
	case len(now.Parts) == 0:
		return 0, m.store.Delete(ctx, key, was)
	case was == 0:
		return m.store.Create(ctx, key, encode(now), nil)
	}
	return m.store.CompareAndSwap(ctx, key, was, encode(now))
}

// change makes a block what edit makes of it, as long as the part of it is this node's. A block that another node has
// changed meanwhile is read anew.
func (m *Manager) change(ctx context.Context, h holding, was versioned, edit func(slot) slot) (err error) {
	for range claimTries {
		if !slices.Contains(was.ownedBy(m.cfg.Node), h.part) {
			m.own.learn(h.slotID, was)
			return nil
		}
		if err = m.write(ctx, h.slotID, was, edit(was.slot)); !lost(err) {
			return err
		}
		if was, err = m.read(ctx, h.slotID); err != nil {
			break
		}
	}
	m.own.doubts[h.slotID] = true
	return cmp.Or(err, store.ErrConflict)
}

// settle finds out what blocks in doubt are, and which pools there are. A block of which this node has a part is written
// once more: an attempt of ours that is still on its way, and one of a node that took ours for gone, find another revision.
func (m *Manager) settle(ctx context.Context) error {
	if len(m.own.doubts) == 0 {
		return nil
	}
	for _, at := range slices.SortedFunc(maps.Keys(m.own.doubts), slotID.compare) {
		s, err := m.read(ctx, at)
		if err == nil && s.revision < m.own.slots[at].revision {
			m.amiss()
		}
		if err == nil {
			s, err = m.disown(ctx, at, s)
		}
		if err == nil {
			err = m.confirm(ctx, at, s)
		}
		if isAway(err) {
			return err
		}
		if err != nil { // the others are not to wait for it
			m.suspend(at)
			m.warn(err, "a block is not given out from")
		}
	}
	if err := m.readPools(ctx); !errors.Is(err, errUnreadable) { // with those the node goes on as it was
		return err
	}
	return nil
}

// isAway tells whether an error is about the store, and not about one entry.
func isAway(err error) bool {
	return err != nil && (fault.KindOf(err) == fault.Unavailable || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded))
}

// suspend has nothing be given out from a block until it is not in doubt any more.
func (m *Manager) suspend(at slotID) {
	m.own.doubts[at] = true
	for _, u := range m.local.Usage(at.pool) {
		if u.Block.Overlaps(at.block) {
			m.local.Drain(at.pool, u.Block)
		}
	}
}

func (m *Manager) confirm(ctx context.Context, at slotID, s versioned) error {
	parts := s.ownedBy(m.cfg.Node)
	if len(parts) == 0 {
		m.own.learn(at, s)
		return nil
	}
	return m.change(ctx, holding{at, parts[0], m.cfg.Node}, s, func(s slot) slot { return s })
}

// readPools asks the store which pools there are.
func (m *Manager) readPools(ctx context.Context) error {
	pools, err := decodeList(m.store.Get(ctx, poolsKey))
	if err == nil {
		m.notices.setPools(pools)
	}
	return err
}

func (at slotID) compare(other slotID) int {
	return cmp.Or(cmp.Compare(at.pool, other.pool), at.block.Addr().Compare(other.block.Addr()), cmp.Compare(at.block.Bits(), other.block.Bits()))
}
