package datapath

import (
	"fmt"
	"net/netip"

	"porin.dev/porin/bpf/abi"
	"porin.dev/porin/cells/endpoint"
)

// Entry is what the kernel has, or should have, of an endpoint.
type Entry struct {
	ID         uint16
	Attachment endpoint.Attachment // zero for an entry of the maps
	Link       int                 // index of the host end
	LinkName   string              // its name
	PodMAC     endpoint.MAC        // of the container's end
	HostMAC    endpoint.MAC        // of the host end, the gateway's MAC for the container
	Addresses  endpoint.Addresses
	// Limited says that the bandwidth is limited: all packets of the endpoint must pass the queues of its host end.
	Limited bool
}

// String is the attachment.
func (e Entry) String() string { return e.Attachment.String() }

// entryOf is the endpoint as it should be in the kernel.
func entryOf(ep endpoint.Endpoint) Entry {
	name := ep.Host.Name
	if name == "" { // the link is not made yet, or not on record
		name = ep.Spec.Attachment.HostEnd()
	}
	return Entry{
		ID: ep.ID, Attachment: ep.Spec.Attachment, Link: ep.Host.Index, LinkName: name, PodMAC: ep.Container.MAC, HostMAC: ep.Host.MAC, Addresses: ep.Addresses,
		Limited: ep.Spec.IsLimited(),
	}
}

func entriesOf(endpoints []endpoint.Endpoint) []Entry {
	entries := make([]Entry, len(endpoints))
	for i, ep := range endpoints {
		entries[i] = entryOf(ep)
	}
	return entries
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
	if e.Limited {
		value.Flags |= abi.EndpointLimited
	}
	return value
}

// hostPrefix is the address alone.
func hostPrefix(addr netip.Addr) netip.Prefix { return netip.PrefixFrom(addr, addr.BitLen()) }

// Desired is what endpoints should have in the kernel, by what names it there.
type Desired struct {
	Names     map[string]bool // of links
	Links     map[int]bool    // their indexes
	Addresses map[netip.Addr]bool
	IDs       map[uint32]bool // with the one of the node's own counters
}

// DesiredOf is what the endpoints should have. An endpoint may be among them several times, with what it had at
// different times.
func DesiredOf(entries []Entry) Desired {
	d := Desired{map[string]bool{}, map[int]bool{}, map[netip.Addr]bool{}, map[uint32]bool{abi.NoEndpoint: true}}
	for _, e := range entries {
		d.Names[e.LinkName], d.IDs[uint32(e.ID)], d.Links[e.Link] = true, true, true
		for _, addr := range e.Addresses.List() {
			d.Addresses[addr] = true
		}
	}
	return d
}
