package policymap

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/cilium/ebpf"

	"porin.dev/porin/bpf/abi"
	"porin.dev/porin/cells/policy/engine"
	"porin.dev/porin/cells/policy/model"
)

// allIPv4 always has an entry: to the map, IPv4 addresses are a part of ::/0.
var allIPv4 = netip.PrefixFrom(netip.IPv4Unspecified(), 0)

func addressKey(addr netip.Addr, copyNumber uint32) abi.AddressKey {
	return abi.AddressKey{Addr: abi.AddrOf(addr), Copy: copyNumber}
}

// Bits of a prefix' key before those of an address, and of an IPv6 address before those of an IPv4 address.
const copyBits, mappedBits = 32, 96

func prefixKey(cidr netip.Prefix, copyNumber uint32) abi.PrefixKey {
	k := abi.PrefixKey{Bits: copyBits + uint32(cidr.Bits()), Copy: copyNumber, Addr: cidr.Addr().As16()}
	if cidr.Addr().Is4() {
		k.Bits += mappedBits
	}
	return k
}

func addressValue(e *engine.Engine, addr netip.Addr, class engine.ClassID) uint32 {
	if e.End(addr).Kind == model.Host {
		return uint32(class) | abi.ClassHost
	}
	return uint32(class)
}

// addresses is a copy's part of the maps addresses and prefixes.
type addresses struct {
	maps       Maps
	copyNumber uint32
	classes    map[netip.Addr]engine.ClassID
	prefixes   map[netip.Prefix]engine.ClassID
	members    map[engine.ClassID]int // how many of classes and prefixes are of it
}

func newAddresses(m Maps, copyNumber uint32) *addresses {
	return &addresses{
		maps: m, copyNumber: copyNumber, classes: map[netip.Addr]engine.ClassID{}, prefixes: map[netip.Prefix]engine.ClassID{},
		members: map[engine.ClassID]int{engine.FixedClass(model.World): 1}, // all addresses that the maps do not have
	}
}

// set says of which class the address of an endpoint is.
func (x *addresses) set(e *engine.Engine, addr netip.Addr, class engine.ClassID) error {
	if _, ok := x.classes[addr]; !ok && len(x.classes) >= room(x.maps.Addresses) {
		return fmt.Errorf("%w: more than %d addresses", ErrNoRoom, room(x.maps.Addresses))
	}
	if err := x.maps.Addresses.Put(addressKey(addr, x.copyNumber), addressValue(e, addr, class)); err != nil {
		return fmt.Errorf("write the class of %s: %w", addr, noRoom(err))
	}
	x.leave(addr)
	x.classes[addr] = class
	x.members[class]++
	return nil
}

func (x *addresses) remove(addr netip.Addr) error {
	if err := x.maps.Addresses.Delete(addressKey(addr, x.copyNumber)); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return fmt.Errorf("remove the class of %s: %w", addr, err)
	}
	x.leave(addr)
	return nil
}

func (x *addresses) leave(addr netip.Addr) {
	if class, ok := x.classes[addr]; ok {
		x.members[class]--
		delete(x.classes, addr)
	}
}

func (x *addresses) setPrefix(cidr netip.Prefix, class engine.ClassID) error {
	if _, ok := x.prefixes[cidr]; !ok && len(x.prefixes) >= room(x.maps.Prefixes) {
		return fmt.Errorf("%w: more than %d ranges of addresses", ErrNoRoom, room(x.maps.Prefixes))
	}
	if err := x.maps.Prefixes.Put(prefixKey(cidr, x.copyNumber), uint32(class)); err != nil {
		return fmt.Errorf("write the class of %s: %w", cidr, noRoom(err))
	}
	x.leavePrefix(cidr)
	x.prefixes[cidr] = class
	x.members[class]++
	return nil
}

func (x *addresses) leavePrefix(cidr netip.Prefix) {
	if class, ok := x.prefixes[cidr]; ok {
		x.members[class]--
		delete(x.prefixes, cidr)
	}
}

func (x *addresses) removePrefix(cidr netip.Prefix) error {
	if cidr == allIPv4 {
		return x.setPrefix(cidr, engine.FixedClass(model.World))
	}
	if err := x.maps.Prefixes.Delete(prefixKey(cidr, x.copyNumber)); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return fmt.Errorf("remove the class of %s: %w", cidr, err)
	}
	x.leavePrefix(cidr)
	return nil
}

// classOf is the class that an address has in the maps.
func (x *addresses) classOf(addr netip.Addr) engine.ClassID {
	if class, ok := x.classes[addr]; ok {
		return class
	}
	return longest(x.prefixes, netip.PrefixFrom(addr, addr.BitLen()))
}

// longest is the class of the addresses in a range that are in no longer one.
func longest(prefixes map[netip.Prefix]engine.ClassID, in netip.Prefix) engine.ClassID {
	class, bits := engine.FixedClass(model.World), -1
	for cidr, one := range prefixes {
		if cidr.Bits() > bits && cidr.Bits() <= in.Bits() && cidr.Contains(in.Addr()) {
			class, bits = one, cidr.Bits()
		}
	}
	return class
}
