package datapath

import (
	"fmt"
	"net/netip"

	"porin.dev/porin/bpf/abi"
	"porin.dev/porin/cells/endpointmanager"
)

// Entry is an endpoint as the kernel has it.
type Entry struct {
	ID        uint16
	Link      int                 // index of the host end
	LinkName  string              // its name, where sysctls are written for it
	PodMAC    endpointmanager.MAC // of the container's end
	HostMAC   endpointmanager.MAC // of the host end, the gateway's MAC for the container
	Addresses endpointmanager.Addresses
	// Leased says that another IPAM gave the addresses: it may have leased them, and renews the lease on the container's link.
	Leased bool
}

// entryOf is the endpoint as it should be in the kernel.
func entryOf(ep endpointmanager.Endpoint) Entry {
	return Entry{
		ID: ep.ID, Link: ep.Host.Index, PodMAC: ep.Container.MAC, HostMAC: ep.Host.MAC, Addresses: ep.Addresses,
		Leased: ep.Spec.ExternalIPAM,
	}
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

// linkValue is what the programs know of the endpoint by its link.
func linkValue(e Entry) abi.Link {
	return abi.Link{
		Ipv4: abi.AddrOf(e.Addresses.IPv4), Ipv6: abi.AddrOf(e.Addresses.IPv6),
		PodMac: abi.MAC{Byte: e.PodMAC}, Id: e.ID,
	}
}

// endpointValue is what they know of it by each of its addresses.
func endpointValue(e Entry) abi.Endpoint {
	value := abi.Endpoint{
		Ifindex: uint32(e.Link), Id: e.ID, PodMac: abi.MAC{Byte: e.PodMAC}, HostMac: abi.MAC{Byte: e.HostMAC},
	}
	if e.Leased {
		value.Flags = abi.EndpointDHCP
	}
	return value
}

// hostPrefix is the address alone.
func hostPrefix(addr netip.Addr) netip.Prefix { return netip.PrefixFrom(addr, addr.BitLen()) }
