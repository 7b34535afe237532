package datapath

import (
	"fmt"
	"net/netip"

	"porin.dev/porin/cells/endpointmanager"
)

// Entry is an endpoint as the kernel has it.
type Entry struct {
	ID        uint16
	Link      int                 // index of the host end
	PodMAC    endpointmanager.MAC // of the container's end
	HostMAC   endpointmanager.MAC // of the host end, the gateway's MAC for the container
	Addresses endpointmanager.Addresses
}

// check refuses addresses that would cut the node from itself or from others. An IPAM of Porin gives none of these,
// but with an external one they come from the caller.
func (e Entry) check() error {
	if len(e.Addresses.List()) == 0 {
		return fmt.Errorf("endpoint %d has none: %w", e.ID, ErrAddress)
	}
	if v4 := e.Addresses.IPv4; v4.IsValid() && !v4.Is4() {
		return fmt.Errorf("%s as IPv4: %w", v4, ErrAddress)
	}
	if v6 := e.Addresses.IPv6; v6.IsValid() && (!v6.Is6() || v6.Is4In6() || v6.Zone() != "") {
		return fmt.Errorf("%s as IPv6: %w", v6, ErrAddress)
	}
	for _, addr := range e.Addresses.List() {
		if !addr.IsGlobalUnicast() { // private addresses are, too
			return fmt.Errorf("%s: %w", addr, ErrAddress)
		}
	}
	return nil
}

// hostPrefix is the address alone.
func hostPrefix(addr netip.Addr) netip.Prefix { return netip.PrefixFrom(addr, addr.BitLen()) }
