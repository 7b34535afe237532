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

func (c *policyCopy) addressKey(addr netip.Addr) abi.AddressKey {
	return abi.AddressKey{Addr: abi.AddrOf(addr), Copy: c.number}
}

func (c *policyCopy) prefixKey(cidr netip.Prefix) abi.PrefixKey {
	const copyBits, mappedBits = 32, 96
	k := abi.PrefixKey{Bits: copyBits + uint32(cidr.Bits()), Copy: c.number, Addr: cidr.Addr().As16()}
	if cidr.Addr().Is4() {
		k.Bits += mappedBits
	}
	return k
}

// setAddress says of which class the address of an endpoint is.
func (c *policyCopy) setAddress(e *engine.Engine, addr netip.Addr, class engine.ClassID) error {
	if _, ok := c.classes[addr]; !ok && len(c.classes) >= room(c.maps.Addresses) {
		return fmt.Errorf("%w: more than %d addresses", ErrNoRoom, room(c.maps.Addresses))
	}
	value := uint32(class)
	if e.Kind(addr) == model.Host {
		value |= abi.ClassHost
	}
	if err := c.maps.Addresses.Put(c.addressKey(addr), value); err != nil {
		return fmt.Errorf("write the class of %s: %w", addr, noRoom(err))
	}
	c.classes[addr] = class
	return nil
}

func (c *policyCopy) removeAddress(addr netip.Addr) error {
	if err := c.maps.Addresses.Delete(c.addressKey(addr)); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return fmt.Errorf("remove the class of %s: %w", addr, err)
	}
	delete(c.classes, addr)
	return nil
}

func (c *policyCopy) setPrefix(cidr netip.Prefix, class engine.ClassID) error {
	if _, ok := c.prefixes[cidr]; !ok && len(c.prefixes) >= room(c.maps.Prefixes) {
		return fmt.Errorf("%w: more than %d ranges of addresses", ErrNoRoom, room(c.maps.Prefixes))
	}
	if err := c.maps.Prefixes.Put(c.prefixKey(cidr), uint32(class)); err != nil {
		return fmt.Errorf("write the class of %s: %w", cidr, noRoom(err))
	}
	c.prefixes[cidr] = class
	return nil
}

func (c *policyCopy) removePrefix(cidr netip.Prefix) error {
	if cidr == allIPv4 {
		return c.setPrefix(cidr, engine.FixedClass(model.World))
	}
	if err := c.maps.Prefixes.Delete(c.prefixKey(cidr)); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return fmt.Errorf("remove the class of %s: %w", cidr, err)
	}
	delete(c.prefixes, cidr)
	return nil
}

// prefixClass is the class of an address that no endpoint has.
func (c *policyCopy) prefixClass(addr netip.Addr) engine.ClassID {
	class, longest := engine.FixedClass(model.World), -1
	for cidr, one := range c.prefixes {
		if cidr.Bits() > longest && cidr.Contains(addr) {
			class, longest = one, cidr.Bits()
		}
	}
	return class
}
