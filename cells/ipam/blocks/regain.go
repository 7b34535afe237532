package blocks

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"porin.dev/porin/internal/fault"
)

// errAmiss is that the store does not know any more what this node owns: it was restored from a backup, or begun anew. Or the
// node was gone for so long that others took it.
var errAmiss = fault.New(fault.Unavailable, "the cluster's store does not know blocks of this node any more, and so perhaps of others: none are claimed until those have claimed theirs again")

// standing is how far the store can be relied on.
type standing struct {
	unsure  bool          // whether it knows what it knew
	calm    time.Duration // nothing new is claimed before
	wasBack bool          // it was set back in this life of the agent
	lacking bool          // addresses in use here are another node's
}

// amiss has this node claim nothing new for as long as the others need to find out, too: with its next sign of life each
// one does, and begins with what it has in use.
func (m *Manager) amiss() {
	if m.settled() == nil {
		m.log.Error("the cluster's store does not know blocks of this node any more: it was set back, or the node was gone for too long", "retry", m.cfg.LeaseTTL)
	}
	m.calm = m.clock() + m.cfg.LeaseTTL
}

// settled is nil when new blocks may be claimed.
func (m *Manager) settled() error {
	if left := m.calm - m.clock(); left > 0 {
		return fmt.Errorf("%w, for %s", errAmiss, left.Round(time.Second))
	}
	return nil
}

// regain claims again what this node has addresses of in use and does not own any more, because the store has lost it, or
// others took it while the node was gone and need it no longer. Pools do not matter: the addresses are in use.
func (m *Manager) regain(ctx context.Context) error {
	var errs []error
	m.lacking = false
	for _, pool := range m.local.Wanted() {
		for _, u := range m.local.Usage(pool) {
			if !u.empty() && !m.own.covers(pool, u.Block) && !m.own.inDoubt(pool, u.Block) {
				errs = append(errs, m.claimAgain(ctx, pool, u.Block))
			}
		}
	}
	return errors.Join(errs...)
}

func (m *Manager) claimAgain(ctx context.Context, pool string, part netip.Prefix) error {
	at := slotID{pool, m.blockAround(pool, part)}
	for range claimTries {
		was, err := m.read(ctx, at)
		if err != nil {
			return err
		}
		free, ok := was.freeOf(at.block, part)
		if !ok {
			m.lacking = m.complain(pool, part, was) || m.lacking
			return nil
		}
		if err = m.claimPart(ctx, at, was, free); err == nil {
			m.log.Warn("block claimed again", "pool", pool, "cidr", free)
		}
		if !lost(err) && (err != nil || free == part) {
			return err
		}
	}
	return nil
}

// complain tells of what another node has: two containers of the cluster may have an address.
func (m *Manager) complain(pool string, part netip.Prefix, s versioned) (yes bool) {
	for _, other := range s.Parts {
		if other.Node != m.cfg.Node && other.Prefix.Overlaps(part) {
			m.log.Error("addresses in use here are another node's", "pool", pool, "cidr", part, "node", other.Node)
			yes = true
		}
	}
	return yes
}

// blockAround returns the block of which a part is, by the pool as it is or, when it is no more, as it was.
func (m *Manager) blockAround(pool string, part netip.Prefix) netip.Prefix {
	for _, p := range []Pool{m.notices.pools[pool], m.pools[pool]} {
		if bits := p.blockBits(part); bits > 0 && bits <= part.Bits() {
			return netip.PrefixFrom(part.Addr(), bits).Masked()
		}
	}
	return part
}

// freeOf returns a part, or the first piece of it, that nobody has.
func (s versioned) freeOf(block, part netip.Prefix) (free netip.Prefix, ok bool) {
	for _, free := range s.free(block) {
		switch {
		case s.opaque || !free.Overlaps(part):
		case free.Bits() <= part.Bits():
			return part, true
		default:
			return free, true
		}
	}
	return free, false
}

// ahead tells whether the node knows of a later revision than the store, which has all of it. Nobody else changes what is a
// node's as long as that lives.
func (o *owned) ahead(c census) bool {
	for at, s := range o.slots {
		if !o.doubts[at] && c[at].revision < s.revision {
			return true
		}
	}
	return false
}

// covers tells whether the node owns all of a prefix.
func (o *owned) covers(pool string, prefix netip.Prefix) bool {
	return slices.ContainsFunc(o.holdings(), func(h holding) bool {
		return h.pool == pool && h.part.Bits() <= prefix.Bits() && h.part.Contains(prefix.Addr())
	})
}
