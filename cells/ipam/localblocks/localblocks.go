// Package localblocks makes the node's allocator what package blocks gives its blocks to. It is a package of its own so that
// package ipam needs no store.
//
//	store <-- [blocks.Manager] -- [blocks.Local] --> [Local] --> [ipam.MultiPool]
package localblocks

import (
	"errors"
	"net/netip"

	"porin.dev/porin/cells/ipam"
	"porin.dev/porin/cells/ipam/blocks"
	"porin.dev/porin/internal/fault"
)

// Local is an allocator as a [blocks.Local].
type Local struct{ ipam.MultiPool }

var _ blocks.Local = Local{}

// New returns the one of an allocator.
func New(m ipam.MultiPool) Local { return Local{m} }

// Configure implements [blocks.Local].
func (l Local) Configure(p blocks.Pool) { l.MultiPool.Configure(p.Name, SettingsOf(p)) }

// Usage implements [blocks.Local].
func (l Local) Usage(pool string) (list []blocks.Usage) {
	for _, b := range l.Blocks(pool) {
		list = append(list, blocks.Usage{Block: b.Prefix, Capacity: b.Capacity, Used: b.Used, Resting: b.Resting, Drained: b.Drained})
	}
	return list
}

// Remove implements [blocks.Local].
func (l Local) Remove(pool string, block netip.Prefix) error {
	err := l.MultiPool.Remove(pool, block)
	if errors.Is(err, ipam.ErrBlockInUse) {
		return fault.Wrap(fault.Conflict, errors.Join(blocks.ErrInUse, err))
	}
	return err
}

// SettingsOf returns how the addresses of a pool of the cluster are given out.
func SettingsOf(p blocks.Pool) ipam.Settings {
	s := ipam.Settings{Quarantine: p.Quarantine, ReuseResting: p.ReuseResting}
	for _, prefix := range p.Prefixes {
		s.IPv4 = s.IPv4 || prefix.Addr().Is4()
		s.IPv6 = s.IPv6 || prefix.Addr().Is6()
	}
	return s
}
