package allocator

import (
	"encoding/binary"
	"fmt"
	"net/netip"
)

const (
	// maxIPv4Bits is the size of the largest IPv4 block, a /16: a node has no more endpoint numbers. A larger block than
	// that, which is one of IPv6, forgets what has rested.
	maxIPv4Bits = 16
	// maxIPv6Bits is the size of the largest IPv6 block, a /64.
	maxIPv6Bits = 64
	// maxCountedBits is the size that a larger block is said to have: sums of it overflow nothing, and JSON has it
	// exactly.
	maxCountedBits = 48
)

// block is one prefix that this node owns, with its known addresses.
type block struct {
	prefix      netip.Prefix
	list        *freeList
	first, last netip.Addr // that may be given out
	size        int64      // how many those are, as far as they are counted
	cursor      netip.Addr // before it nothing is unused, unless the block forgets
	known       map[netip.Addr]*address
	drained     bool // nothing is given out
	forgets     bool // what has rested is as if it had never been used
	spare       []*address

	used, resting, nodeOwn int64

	exclude       []netip.Prefix // of them nothing is given out
	excludedSize  int64          // how many of size those are
	excludedTaken int64          // and how many of these are in use, rest or are the node's all the same
}

// newBlock returns a block that may give out all its addresses, as a pod has its address as /32 or /128.
func newBlock(prefix netip.Prefix) *block {
	bits := min(prefix.Addr().BitLen()-prefix.Bits(), maxIPv6Bits)
	if prefix.Addr().Is4() {
		bits = min(bits, maxIPv4Bits)
	}
	b := &block{prefix: prefix, first: prefix.Addr(), cursor: prefix.Addr(), known: map[netip.Addr]*address{}, forgets: bits > maxIPv4Bits}
	b.last = offset(prefix.Addr(), 1<<bits-1) // which of 64 bits is all ones
	b.size = int64(1) << min(bits, maxCountedBits)
	return b
}

// newSubnet returns the block of a prefix that others may take for a subnet. It leaves out the network address (RFC
// 4291, section 2.6.1: the subnet-router anycast address), the gateway, which is the one after it, and the broadcast
// address of IPv4.
func newSubnet(prefix netip.Prefix) (*block, error) {
	b := newBlock(prefix)
	left := b.size - 2
	if prefix.Addr().Is4() && prefix.Bits() >= 32-maxIPv4Bits {
		b.last = b.last.Prev()
		left--
	}
	if left < 1 {
		return nil, fmt.Errorf("prefix %s: no address is left after network, gateway and broadcast: want /%d or larger",
			prefix, prefix.Addr().BitLen()-2)
	}
	b.first = offset(prefix.Addr(), 2)
	b.cursor, b.size = b.first, left
	return b, nil
}

// CheckSubnet says why the addresses of a prefix cannot be given out by [Pools.AddSubnet].
func CheckSubnet(prefix netip.Prefix) error {
	_, err := newSubnet(prefix)
	return err
}

// offset returns the address n after base. The last 64 bits do not carry.
func offset(base netip.Addr, n uint64) netip.Addr {
	raw := base.As16()
	low := raw[8:]
	binary.BigEndian.PutUint64(low, binary.BigEndian.Uint64(low)+n)
	if base.Is4() {
		return netip.AddrFrom16(raw).Unmap()
	}
	return netip.AddrFrom16(raw)
}

// canAllocate reports whether the block has the address and may give it out.
func (b *block) canAllocate(addr netip.Addr) bool {
	return addr.Compare(b.first) >= 0 && addr.Compare(b.last) <= 0 && addr.BitLen() == b.first.BitLen()
}

// refusal is the error for an address that the block does not give out.
func (b *block) refusal(addr netip.Addr) error {
	switch {
	case !b.prefix.Contains(addr):
		return fmt.Errorf("%w: it is not in %s", ErrOutside, b.prefix)
	case addr.Less(b.first):
		return fmt.Errorf("%w: it is the network or the gateway address of %s", ErrOutside, b.prefix)
	case addr == b.last.Next() && b.prefix.Bits() >= 32-maxIPv4Bits:
		return fmt.Errorf("%w: it is the broadcast address of %s", ErrOutside, b.prefix)
	}
	return fmt.Errorf("%w: the last of %s is %s", ErrOutside, b.prefix, b.last)
}

// address returns what is known of an address that the block has.
func (b *block) address(addr netip.Addr) *address {
	e := b.known[addr]
	if e == nil {
		e = b.newAddress()
		*e = address{addr: addr, block: b, since: never, excluded: b.excludes(addr)}
		b.known[addr] = e
	}
	return e
}

// newAddress reuses a forgotten one, so that no garbage is made.
func (b *block) newAddress() *address {
	if n := len(b.spare); n > 0 {
		e := b.spare[n-1]
		b.spare = b.spare[:n-1]
		return e
	}
	return new(address)
}

// remove makes an address unknown.
func (b *block) remove(e *address) {
	e.removeFromList()
	delete(b.known, e.addr)
	b.spare = append(b.spare, e)
}

// nextUnused returns the first unused address from the cursor on, or nil. In a block that forgets the cursor
// begins again behind the last.
func (b *block) nextUnused() *address {
	for range len(b.known) + len(b.exclude) + 1 {
		if !b.canAllocate(b.cursor) {
			if !b.forgets {
				return nil
			}
			b.cursor = b.first
		}
		if part := b.excludedPart(b.cursor); part.IsValid() {
			b.cursor = offset(part.Addr(), 1<<hostBits(part)-1).Next()
			continue
		}
		if e := b.known[b.cursor]; e == nil || e.state == unused {
			return b.address(b.cursor)
		}
		b.cursor = b.cursor.Next()
	}
	return nil
}

// countTaken counts an address that begins or ends to take up room.
func (b *block) countTaken(s state, by int64) {
	switch s {
	case inUse:
		b.used += by
	case nodeOwn:
		b.nodeOwn += by
	default:
		b.resting += by
	}
	if !b.drained && b.list != nil {
		b.list.available -= by
	}
}

func (b *block) capacity() int64 { return b.size - b.nodeOwn - b.excludedSize + b.excludedTaken }

func (b *block) left() int64 { return b.capacity() - b.used - b.resting }

// Block is what is given out of a block.
type Block struct {
	Prefix netip.Prefix
	// Capacity = Used + Resting + Free, without what is excluded and free. A block of more than 2^48 addresses is said
	// to have that many.
	Capacity, Used, Resting, Free int64
	// Drained says that free addresses are not given out any more.
	Drained bool
	// NodeAddresses are the node's own addresses. They count only while they have an owner besides.
	NodeAddresses []netip.Addr
}

func (b *block) shown() Block {
	return Block{Prefix: b.prefix, Capacity: b.capacity(), Used: b.used, Resting: b.resting, Free: b.left(), Drained: b.drained}
}
