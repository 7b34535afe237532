package allocator

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"porin.dev/porin/internal/fault"
)

// Pools is the side of the allocator that says what there is to give out: pools, and this node's blocks of them. Who
// owns which block is not known here. No method blocks.
type Pools struct{ a *Allocator }

// Pools returns that side.
func (a *Allocator) Pools() Pools { return Pools{a} }

// largestBlock says what Add takes.
const largestBlock = "want an IPv4 prefix of /16 or longer, or an IPv6 prefix of /64 or longer"

var errOverlap = fault.New(fault.Conflict, "it overlaps another block")

// Configure says how a pool's addresses are given out, now and from now on. Nothing is given out of a pool before that.
func (p Pools) Configure(name string, s Settings) {
	a := p.a
	a.mu.Lock()
	defer a.mu.Unlock()
	changed := !slices.Equal(a.core.pools.pool(name).settings.Exclude, s.Exclude)
	one := a.core.pools.configure(name, s)
	a.core.expire(time.Since(a.start)) // by what holds now
	if changed {
		for _, b := range one.blocks() {
			b.setExclude(s.Exclude)
		}
	}
}

// DeletePool says that there is no such pool any more. Addresses in use stay.
func (p Pools) DeletePool(name string) {
	p.a.mu.Lock()
	defer p.a.mu.Unlock()
	if one := p.a.core.pools.byName[name]; one != nil {
		one.known = false
		p.a.core.pools.deleteIfEmpty(one)
	}
}

// AddSubnet adds a prefix that others may take for a subnet: the network, gateway and broadcast address are not given
// out, and of a larger prefix than Add takes only the beginning. The subnets of a pool are used up in the order in
// which they were added. A subnet that is there is drained no longer.
func (p Pools) AddSubnet(name string, prefix netip.Prefix) error {
	p.a.mu.Lock()
	defer p.a.mu.Unlock()
	b, err := newSubnet(prefix)
	if err != nil {
		return err
	}
	if known := p.a.core.pools.block(name, prefix); known != nil {
		known.list.undrain(known)
		return nil
	}
	if others := p.a.core.pools.index.overlapping(prefix); len(others) > 0 {
		return fmt.Errorf("add prefix %s: %w, %s", prefix, errOverlap, others[0].prefix)
	}
	p.a.core.pools.add(b, p.a.core.pools.pool(name).newList(familyOf(prefix.Addr())))
	return nil
}

// Add lets a block be given out from, but for what is in use of it or rests already. One that is there is drained no
// longer.
func (p Pools) Add(name string, prefix netip.Prefix) error {
	if bits := prefix.Addr().BitLen() - prefix.Bits(); !prefix.IsValid() || prefix != prefix.Masked() || prefix.Addr().Is4() && bits > maxIPv4Bits || bits > maxIPv6Bits {
		return fault.New(fault.Invalid, fmt.Sprintf("add block %s: %s", prefix, largestBlock))
	}
	a := p.a
	a.lock()
	defer a.mu.Unlock()
	if b := a.core.pools.block(name, prefix); b != nil {
		b.list.undrain(b)
		return nil
	}
	for _, b := range a.core.pools.index.overlapping(prefix) {
		return fmt.Errorf("add block %s of pool %s: %w, %s of pool %s", prefix, name, errOverlap, b.prefix, b.list.pool.name)
	}
	a.core.pools.add(newBlock(prefix), a.core.pools.pool(name).list(familyOf(prefix.Addr())))
	return nil
}

// Drain ends allocations from a block. Addresses in use stay.
func (p Pools) Drain(name string, prefix netip.Prefix) {
	p.a.lock()
	defer p.a.mu.Unlock()
	if b := p.a.core.pools.block(name, prefix); b != nil {
		b.list.drain(b)
	}
}

// Remove removes a block without addresses in use or in quarantine; else it is [ErrBlockInUse], and nothing changes. A
// block that is not there is a success.
func (p Pools) Remove(name string, prefix netip.Prefix) error {
	a := p.a
	a.lock()
	defer a.mu.Unlock()
	b := a.core.pools.block(name, prefix)
	if b == nil {
		return nil
	}
	if n := b.used + b.resting; n > 0 {
		return fmt.Errorf("remove block %s of pool %s: %w: %d", prefix, name, ErrBlockInUse, n)
	}
	a.core.pools.remove(b)
	return nil
}

// Blocks returns the blocks of a pool, in no order.
func (p Pools) Blocks(name string) (list []Block) {
	p.a.lock()
	defer p.a.mu.Unlock()
	if one := p.a.core.pools.byName[name]; one != nil {
		for _, b := range one.blocks() {
			list = append(list, b.shown())
		}
	}
	return list
}

// Names returns the pools that are configured or have blocks.
func (p Pools) Names() []string {
	p.a.mu.Lock()
	defer p.a.mu.Unlock()
	return p.a.core.pools.names()
}

// Suspend stops allocation: Allocate returns the reason, until it is called with nil. An owner of an address keeps it.
func (p Pools) Suspend(reason error) {
	p.a.mu.Lock()
	defer p.a.mu.Unlock()
	p.a.core.suspended = reason
}

// Low receives when a pool has come to have fewer free addresses of a family than its [Settings].LowWatermark.
func (p Pools) Low() <-chan struct{} { return p.a.core.pools.low }
