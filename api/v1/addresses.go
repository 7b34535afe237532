package v1

import "net/netip"

// Addresses holds at most one address a family; a family that is not there is the zero netip.Addr, and left out in
// JSON.
type Addresses struct {
	IPv4 netip.Addr `json:"ipv4,omitzero"`
	IPv6 netip.Addr `json:"ipv6,omitzero"`
}

// List returns the addresses that there are, IPv4 first.
func (a Addresses) List() []netip.Addr {
	var list []netip.Addr
	for _, addr := range []netip.Addr{a.IPv4, a.IPv6} {
		if addr.IsValid() {
			list = append(list, addr)
		}
	}
	return list
}
