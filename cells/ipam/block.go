package ipam

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	v1 "porin.dev/porin/api/v1"
)

// maxBlock bounds how many addresses of a prefix are given out, from its beginning: there are no more endpoint numbers on
// a node.
const maxBlock = 1 << 16

// chunkSize is how many slots are made at a time: an IPv6 /64 of which little is used stays small.
const chunkSize = 256

// block is one prefix that this node owns, and what is known of each of its addresses. It is not safe for concurrent use.
type block struct {
	prefix        netip.Prefix
	shelf         *shelf
	first, end    uint32 // offsets in the prefix that may be given out: first <= offset < end
	fresh         uint32 // no offset below is fresh
	chunks        []*[chunkSize]slot
	used, resting int  // how many; one that is due or held rests
	drained       bool // nothing is given out
}

// newBlock returns a block of which every address may be given out, as a pod has its address as /32 or /128.
func newBlock(prefix netip.Prefix) *block {
	size := uint32(maxBlock)
	if bits := prefix.Addr().BitLen() - prefix.Bits(); bits < 16 {
		size = 1 << bits
	}
	return &block{prefix: prefix, end: size, chunks: make([]*[chunkSize]slot, (size+chunkSize-1)/chunkSize)}
}

// newSubnet returns the block of a prefix that others may take for a subnet. It leaves out the network address (RFC 4291,
// section 2.6.1: the subnet-router anycast address), the gateway, which is the one after it, and the broadcast address of
// IPv4.
func newSubnet(prefix netip.Prefix) (*block, error) {
	b := newBlock(prefix)
	b.first, b.fresh = 2, 2
	if prefix.Addr().Is4() && prefix.Bits() >= 16 {
		b.end--
	}
	if b.first >= b.end {
		return nil, fmt.Errorf("prefix %s: no address is left after network, gateway and broadcast: want /%d or larger",
			prefix, prefix.Addr().BitLen()-2)
	}
	return b, nil
}

// at returns the slot of an offset below end.
func (b *block) at(offset uint32) *slot {
	chunk := b.chunks[offset/chunkSize]
	if chunk == nil {
		chunk = new([chunkSize]slot)
		b.chunks[offset/chunkSize] = chunk
	}
	s := &chunk[offset%chunkSize]
	if s.block == nil {
		s.block, s.offset, s.since = b, offset, never
	}
	return s
}

// find returns the slot of an address, or says why it is none that is given out.
func (b *block) find(addr netip.Addr) (*slot, error) {
	offset, err := b.offset(addr)
	if err != nil {
		return nil, err
	}
	return b.at(offset), nil
}

// nextFresh returns the first address that was never given out, or nil.
func (b *block) nextFresh() *slot {
	for ; b.fresh < b.end; b.fresh++ {
		if s := b.at(b.fresh); s.state == fresh {
			return s
		}
	}
	return nil
}

// known calls visit for every slot that is not fresh.
func (b *block) known(visit func(*slot)) {
	for _, chunk := range b.chunks {
		if chunk == nil {
			continue
		}
		for i := range chunk {
			if chunk[i].state != fresh {
				visit(&chunk[i])
			}
		}
	}
}

func (b *block) capacity() int { return int(b.end - b.first) }

func (b *block) status() v1.Range {
	return v1.Range{
		Prefix: b.prefix, Capacity: int64(b.capacity()), Used: int64(b.used), Quarantined: int64(b.resting),
		Free: int64(b.capacity() - b.used - b.resting), Drained: b.drained,
	}
}

func (s *slot) addr() netip.Addr {
	prefix := s.block.prefix
	raw := prefix.Addr().As16()
	low := raw[12:]
	binary.BigEndian.PutUint32(low, binary.BigEndian.Uint32(low)+s.offset) // no carry: the bits behind a prefix are 0
	addr := netip.AddrFrom16(raw)
	if prefix.Addr().Is4() {
		return addr.Unmap()
	}
	return addr
}

// offset is the reverse of addr, or says why the address is not one that is given out.
func (b *block) offset(addr netip.Addr) (uint32, error) {
	if !b.prefix.Contains(addr) {
		return 0, fmt.Errorf("%w: it is not in %s", ErrOutside, b.prefix)
	}
	raw, base := addr.As16(), b.prefix.Addr().As16()
	offset := binary.BigEndian.Uint32(raw[12:]) - binary.BigEndian.Uint32(base[12:])
	switch {
	case [12]byte(raw[:]) != [12]byte(base[:]) || offset > b.end:
		return 0, fmt.Errorf("%w: of %s only the first %d addresses are", ErrOutside, b.prefix, b.end)
	case offset < b.first:
		return 0, fmt.Errorf("%w: it is the network or the gateway address of %s", ErrOutside, b.prefix)
	case offset == b.end:
		return 0, fmt.Errorf("%w: it is the broadcast address of %s, or past its first %d", ErrOutside, b.prefix, b.end)
	}
	return offset, nil
}
