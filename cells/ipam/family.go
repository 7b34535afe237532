package ipam

import (
	"net/netip"

	"porin.dev/porin/cells/endpointmanager"
)

// family is one of IP.
type family int

const (
	ipv4 family = iota
	ipv6
	families // how many there are
)

func familyOf(addr netip.Addr) family {
	if addr.Is4() {
		return ipv4
	}
	return ipv6
}

func (f family) String() string {
	if f == ipv6 {
		return "IPv6"
	}
	return "IPv4"
}

// of returns the address of the family.
func (f family) of(a endpointmanager.Addresses) netip.Addr {
	if f == ipv6 {
		return a.IPv6
	}
	return a.IPv4
}

// set is the reverse of of.
func (f family) set(a *endpointmanager.Addresses, addr netip.Addr) {
	if f == ipv6 {
		a.IPv6 = addr
	} else {
		a.IPv4 = addr
	}
}
