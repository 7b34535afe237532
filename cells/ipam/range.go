package ipam

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"time"

	v1 "porin.dev/porin/api/v1"
)

// maxRange bounds how many addresses of a prefix are given out, from its beginning: there are no more endpoint
// numbers on a node, and what is remembered of released addresses stays small.
const maxRange = 1 << 16

// addressRange gives out the addresses of one prefix. It is not safe for concurrent use.
//
// Addresses from fresh on were never given out, and are the longest free. After them comes the queue of released
// ones, oldest first. An address of the queue that is taken by name leaves its entry behind, to be skipped or swept
// later. So each operation takes constant time in the long run.
type addressRange struct {
	prefix     netip.Prefix
	quarantine time.Duration
	first, end uint32 // offsets in the prefix that may be given out: first <= offset < end
	fresh      uint32
	slots      map[uint32]slot // what was given out at least once
	queue      []rest
	used       int
}

// slot is the last that is known of an address.
type slot struct {
	used     bool
	released time.Time
}

// rest is an entry of the queue. It is stale when the slot of its offset says something else.
type rest struct {
	offset   uint32
	released time.Time
}

// newRange leaves out the network address (RFC 4291, section 2.6.1: the subnet-router anycast address), the gateway,
// which is the one after it, and the broadcast address of IPv4.
func newRange(prefix netip.Prefix, quarantine time.Duration) (*addressRange, error) {
	size := uint32(maxRange)
	if bits := prefix.Addr().BitLen() - prefix.Bits(); bits < 16 {
		size = 1 << bits
	}
	r := &addressRange{prefix: prefix, quarantine: quarantine, first: 2, fresh: 2, end: size, slots: map[uint32]slot{}}
	if prefix.Addr().Is4() && prefix.Bits() >= 16 {
		r.end--
	}
	if r.first >= r.end {
		return nil, fmt.Errorf("prefix %s: no address is left after network, gateway and broadcast: want /%d or larger",
			prefix, prefix.Addr().BitLen()-2)
	}
	return r, nil
}

// allocate gives out the address that has been free for the longest time, or is false.
func (r *addressRange) allocate(now time.Time) (netip.Addr, bool) {
	for r.fresh < r.end {
		offset := r.fresh
		r.fresh++
		if _, known := r.slots[offset]; !known {
			return r.use(offset), true
		}
	}
	for len(r.queue) > 0 {
		head := r.queue[0]
		if r.stale(head) {
			r.queue = r.queue[1:]
			continue
		}
		if now.Before(head.released.Add(r.quarantine)) {
			break // and so are all behind it
		}
		r.queue = r.queue[1:]
		return r.use(head.offset), true
	}
	return netip.Addr{}, false
}

func (r *addressRange) stale(e rest) bool {
	return r.slots[e.offset] != slot{released: e.released}
}

// take gives out this very address.
func (r *addressRange) take(addr netip.Addr, now time.Time) error {
	offset, err := r.offset(addr)
	if err != nil {
		return err
	}
	s := r.slots[offset]
	if s.used {
		return ErrInUse
	}
	if free := s.released.Add(r.quarantine); now.Before(free) {
		return fmt.Errorf("%w: it is free again in %s", ErrQuarantined, free.Sub(now).Round(time.Second))
	}
	r.use(offset)
	return nil
}

// adopt takes an address that was in use before the agent started.
func (r *addressRange) adopt(addr netip.Addr) error {
	offset, err := r.offset(addr)
	if err != nil {
		return err
	}
	if r.slots[offset].used {
		return ErrInUse
	}
	r.use(offset)
	return nil
}

func (r *addressRange) use(offset uint32) netip.Addr {
	r.slots[offset] = slot{used: true}
	r.used++
	return r.address(offset)
}

// release takes back an address that is in use.
func (r *addressRange) release(addr netip.Addr, now time.Time) {
	if offset, err := r.offset(addr); err == nil && r.slots[offset].used {
		r.used--
		r.enqueue(offset, now)
	}
}

// giveBack takes back an address that was never used. It goes before all others: those behind it may be in quarantine.
func (r *addressRange) giveBack(addr netip.Addr) {
	offset, err := r.offset(addr)
	if err != nil || !r.slots[offset].used {
		return
	}
	r.used--
	if offset == r.fresh-1 {
		r.fresh--
		delete(r.slots, offset)
		return
	}
	r.slots[offset] = slot{}
	r.queue = slices.DeleteFunc(r.queue, func(e rest) bool { return e.offset == offset })
	r.queue = slices.Insert(r.queue, 0, rest{offset: offset})
}

// yield takes back an address that another IPAM had given. Ours never gave it, so it needs no rest; but the other may
// give it again, so of all that are free it is the last to be given.
func (r *addressRange) yield(addr netip.Addr, now time.Time) {
	offset, err := r.offset(addr)
	if err != nil || !r.slots[offset].used {
		return
	}
	r.used--
	rested := now.Add(-r.quarantine)
	r.slots[offset] = slot{released: rested}
	r.queue = slices.DeleteFunc(r.queue, func(e rest) bool { return e.offset == offset })
	at := slices.IndexFunc(r.queue, func(e rest) bool { return e.released.After(rested) })
	if at < 0 {
		at = len(r.queue)
	}
	r.queue = slices.Insert(r.queue, at, rest{offset, rested})
}

// remember records an address that was released before the agent started. Calls come in the order of release.
func (r *addressRange) remember(addr netip.Addr, released time.Time) {
	if offset, err := r.offset(addr); err == nil && !r.slots[offset].used {
		r.enqueue(offset, released)
	}
}

func (r *addressRange) enqueue(offset uint32, released time.Time) {
	r.slots[offset] = slot{released: released}
	r.queue = append(r.queue, rest{offset, released})
	if len(r.queue) > 2*len(r.slots) { // the larger part is stale
		r.queue = slices.DeleteFunc(r.queue, r.stale)
	}
}

// status counts the addresses. It takes time by the length of the queue.
func (r *addressRange) status(now time.Time) v1.Range {
	var quarantined int64
	for _, e := range r.queue {
		if now.Before(e.released.Add(r.quarantine)) && !r.stale(e) {
			quarantined++
		}
	}
	capacity, used := int64(r.end-r.first), int64(r.used)
	return v1.Range{
		Prefix: r.prefix, Capacity: capacity, Used: used, Quarantined: quarantined, Free: capacity - used - quarantined,
	}
}

// nextFree is how long it takes until the oldest address in quarantine is free; 0 when there is none.
func (r *addressRange) nextFree(now time.Time) time.Duration {
	for _, e := range r.queue {
		if !r.stale(e) {
			return e.released.Add(r.quarantine).Sub(now)
		}
	}
	return 0
}

func (r *addressRange) address(offset uint32) netip.Addr {
	raw := r.prefix.Addr().As16()
	low := raw[12:]
	binary.BigEndian.PutUint32(low, binary.BigEndian.Uint32(low)+offset) // no carry: the bits behind a prefix are 0
	addr := netip.AddrFrom16(raw)
	if r.prefix.Addr().Is4() {
		return addr.Unmap()
	}
	return addr
}

// offset is the reverse of address, or says why the address is not one that is given out.
func (r *addressRange) offset(addr netip.Addr) (uint32, error) {
	if !r.prefix.Contains(addr) {
		return 0, fmt.Errorf("%w: it is not in %s", ErrOutside, r.prefix)
	}
	raw, base := addr.As16(), r.prefix.Addr().As16()
	offset := binary.BigEndian.Uint32(raw[12:]) - binary.BigEndian.Uint32(base[12:])
	switch {
	case [12]byte(raw[:]) != [12]byte(base[:]) || offset > r.end:
		return 0, fmt.Errorf("%w: of %s only the first %d addresses are", ErrOutside, r.prefix, r.end)
	case offset < r.first:
		return 0, fmt.Errorf("%w: it is the network or the gateway address of %s", ErrOutside, r.prefix)
	case offset == r.end:
		return 0, fmt.Errorf("%w: it is the broadcast address of %s, or past its first %d", ErrOutside, r.prefix, r.end)
	}
	return offset, nil
}
