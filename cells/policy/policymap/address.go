package policymap

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/cilium/ebpf"
	"github.com/gaissmai/bart"

	"porin.dev/porin/bpf/abi"
	"porin.dev/porin/cells/policy/engine"
	"porin.dev/porin/cells/policy/model"
)

// allIPv4 always has an entry: to the map, IPv4 addresses are a part of ::/0.
var allIPv4 = netip.PrefixFrom(netip.IPv4Unspecified(), 0)

func addressKey(addr netip.Addr, copyNumber uint32) abi.AddressKey {
	return abi.AddressKey{Addr: abi.AddrOf(addr), Copy: copyNumber}
}

// Bits of a prefix' key before an address, and of an IPv6 address before an IPv4 address.
const copyBits, mappedBits = 32, 96

func prefixKey(cidr netip.Prefix, copyNumber uint32) abi.PrefixKey {
	k := abi.PrefixKey{Bits: copyBits + uint32(cidr.Bits()), Copy: copyNumber, Addr: cidr.Addr().As16()}
	if cidr.Addr().Is4() {
		k.Bits += mappedBits
	}
	return k
}

func addressValue(e *engine.Engine, addr netip.Addr, class engine.ClassID) uint32 {
	switch e.End(addr).Kind {
	case model.Host:
		return uint32(class) | abi.ClassHost
	case model.Unmanaged:
		return uint32(class) | abi.ClassUnmanaged
	}
	return uint32(class)
}

func prefixValue(e *engine.Engine, cidr netip.Prefix, class engine.ClassID) uint32 {
	if e.IsUnmanaged(cidr) {
		return uint32(class) | abi.ClassUnmanaged
	}
	return uint32(class)
}

// addresses is a copy's part of the maps addresses and prefixes. The engine knows the class of an address: there may be
// a million.
type addresses struct {
	maps       Maps
	copyNumber uint32
	count      int // of the map addresses
	prefixes   bart.Table[engine.ClassID]
	members    map[engine.ClassID]int // how many addresses and prefixes are of it
}

// set sets the class of the address of an endpoint. Its class was another one before, or 0 for none.
func (x *addresses) set(e *engine.Engine, addr netip.Addr, before, class engine.ClassID) error {
	if before == 0 && x.count >= room(x.maps.Addresses) {
		return fmt.Errorf("%w: more than %d addresses", ErrNoRoom, room(x.maps.Addresses))
	}
	if err := x.maps.Addresses.Put(addressKey(addr, x.copyNumber), addressValue(e, addr, class)); err != nil {
		return fmt.Errorf("write the class of %s: %w", addr, noRoom(err))
	}
	x.leave(before)
	x.count++
	x.members[class]++
	return nil
}

func (x *addresses) remove(addr netip.Addr, before engine.ClassID) error {
	if err := x.maps.Addresses.Delete(addressKey(addr, x.copyNumber)); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return fmt.Errorf("remove the class of %s: %w", addr, err)
	}
	x.leave(before)
	return nil
}

func (x *addresses) leave(class engine.ClassID) {
	if class != 0 {
		x.members[class]--
		x.count--
	}
}

func (x *addresses) setPrefix(e *engine.Engine, cidr netip.Prefix, class engine.ClassID) error {
	if _, ok := x.prefixes.Get(cidr); !ok && x.prefixes.Size() >= room(x.maps.Prefixes) {
		return fmt.Errorf("%w: more than %d ranges of addresses", ErrNoRoom, room(x.maps.Prefixes))
	}
	if err := x.maps.Prefixes.Put(prefixKey(cidr, x.copyNumber), prefixValue(e, cidr, class)); err != nil {
		return fmt.Errorf("write the class of %s: %w", cidr, noRoom(err))
	}
	x.leavePrefix(cidr)
	x.prefixes.Insert(cidr, class)
	x.members[class]++
	return nil
}

func (x *addresses) leavePrefix(cidr netip.Prefix) {
	if class, ok := x.prefixes.Get(cidr); ok {
		x.members[class]--
		x.prefixes.Delete(cidr)
	}
}

func (x *addresses) removePrefix(e *engine.Engine, cidr netip.Prefix) error {
	if cidr == allIPv4 {
		return x.setPrefix(e, cidr, engine.FixedClass(model.World))
	}
	if err := x.maps.Prefixes.Delete(prefixKey(cidr, x.copyNumber)); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return fmt.Errorf("remove the class of %s: %w", cidr, err)
	}
	x.leavePrefix(cidr)
	return nil
}

// classBefore is the class that an address has in the maps before a change.
func (x *addresses) classBefore(c engine.AddressChange) engine.ClassID {
	if c.Before != 0 {
		return c.Before
	}
	return x.prefixClass(netip.PrefixFrom(c.Address, c.Address.BitLen()))
}

// prefixClass is the class of the addresses in a range that are in no more specific one.
func (x *addresses) prefixClass(in netip.Prefix) engine.ClassID {
	if class, ok := x.prefixes.LookupPrefix(in); ok {
		return class
	}
	return engine.FixedClass(model.World)
}
