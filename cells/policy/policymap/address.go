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

// setAddress says of which class the address of an endpoint is.
func (c *policyCopy) setAddress(e *engine.Engine, addr netip.Addr, class engine.ClassID) error {
	if _, ok := c.classes[addr]; !ok && len(c.classes) >= room(c.maps.Addresses) {
		return fmt.Errorf("%w: more than %d addresses", ErrNoRoom, room(c.maps.Addresses))
	}
	if err := c.maps.Addresses.Put(addressKey(addr, c.number), addressValue(e, addr, class)); err != nil {
		return fmt.Errorf("write the class of %s: %w", addr, noRoom(err))
	}
	c.leave(addr)
	c.classes[addr] = class
	c.members[class]++
	return nil
}

func (c *policyCopy) removeAddress(addr netip.Addr) error {
	if err := c.maps.Addresses.Delete(addressKey(addr, c.number)); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return fmt.Errorf("remove the class of %s: %w", addr, err)
	}
	c.leave(addr)
	return nil
}

func (c *policyCopy) leave(addr netip.Addr) {
	if class, ok := c.classes[addr]; ok {
		c.members[class]--
		delete(c.classes, addr)
	}
}

func (c *policyCopy) setPrefix(cidr netip.Prefix, class engine.ClassID) error {
	if _, ok := c.prefixes[cidr]; !ok && len(c.prefixes) >= room(c.maps.Prefixes) {
		return fmt.Errorf("%w: more than %d ranges of addresses", ErrNoRoom, room(c.maps.Prefixes))
	}
	if err := c.maps.Prefixes.Put(prefixKey(cidr, c.number), uint32(class)); err != nil {
		return fmt.Errorf("write the class of %s: %w", cidr, noRoom(err))
	}
	c.leavePrefix(cidr)
	c.prefixes[cidr] = class
	c.members[class]++
	return nil
}

func (c *policyCopy) leavePrefix(cidr netip.Prefix) {
	if class, ok := c.prefixes[cidr]; ok {
		c.members[class]--
		delete(c.prefixes, cidr)
	}
}

func (c *policyCopy) removePrefix(cidr netip.Prefix) error {
	if cidr == allIPv4 {
		return c.setPrefix(cidr, engine.FixedClass(model.World))
	}
	if err := c.maps.Prefixes.Delete(prefixKey(cidr, c.number)); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return fmt.Errorf("remove the class of %s: %w", cidr, err)
	}
	c.leavePrefix(cidr)
	return nil
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
