package datapath

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"porin.dev/porin/bpf/abi"
	"porin.dev/porin/cells/endpointmanager"
	"porin.dev/porin/internal/nl"
)

var _ endpointmanager.Finder = (*Step)(nil)

// Find completes the endpoints found, by the index of their host end, with what the maps know of them; and with the addresses
// of routes where the maps know none. The kernel removes the routes of a link that goes down. For an entry whose link is not
// among them it adds an endpoint: the link may be in another network namespace, and need the entry.
func (s *Step) Find(_ context.Context, found []endpointmanager.Endpoint) ([]endpointmanager.Endpoint, error) {
	entries, err := s.maps.Entries()
	if err != nil {
		return nil, fmt.Errorf("read what the programs know of links: %w", err)
	}
	routes, err := s.links.HostRoutes()
	if err != nil {
		return nil, fmt.Errorf("list the routes to links: %w", err)
	}
	for i, ep := range found {
		e := entries[ep.Host.Index]
		ep.ID, ep.Addresses = e.ID, e.Addresses
		ep.Container = endpointmanager.Interface{Name: ep.Spec.Attachment.IfName, MAC: e.PodMAC}
		for _, addr := range routes[ep.Host.Index] {
			if addr.Is4() && !ep.Addresses.IPv4.IsValid() {
				ep.Addresses.IPv4 = addr
			} else if addr.Is6() && !ep.Addresses.IPv6.IsValid() {
				ep.Addresses.IPv6 = addr
			}
		}
		found[i] = ep
		delete(entries, ep.Host.Index)
	}
	for _, index := range slices.Sorted(maps.Keys(entries)) {
		e := entries[index]
		ep := endpointmanager.Endpoint{ID: e.ID, Addresses: e.Addresses, Host: endpointmanager.Interface{Index: index}}
		ep.Spec.Attachment = endpointmanager.Unnamed(fmt.Sprintf("link/%d", index)) // which is the name of no interface
		found = append(found, ep)
	}
	return found, nil
}

// HostRoutes are the addresses that Porin's routes lead to each link, by the link's index.
func (n *nodeLinks) HostRoutes() (map[int][]netip.Addr, error) {
	if n.lists == nil {
		return nil, ErrNotStarted
	}
	routes, err := ourRoutes(n.lists)
	if err != nil {
		return nil, err
	}
	led := map[int][]netip.Addr{}
	for _, r := range routes {
		dst := nl.Prefix(r.Dst)
		if addr := dst.Addr(); addr.IsValid() && dst == hostPrefix(addr) {
			led[r.LinkIndex] = append(led[r.LinkIndex], addr)
		}
	}
	return led, nil
}

func (k *kernelMaps) Entries() (map[int]Entry, error) {
	entries := map[int]Entry{}
	err := k.use(func(m *pinnedMaps) error {
		all, err := readAll[uint32, abi.Link](m.links)
		for index, link := range all {
			entries[int(index)] = Entry{
				ID: link.Id, Link: int(index), PodMAC: link.PodMac.Byte,
				Addresses: endpointmanager.Addresses{IPv4: addrOrNone(link.Ipv4), IPv6: addrOrNone(link.Ipv6)},
			}
		}
		return err
	})
	return entries, err
}

// addrOrNone is the zero netip.Addr where an entry has no address of the family.
func addrOrNone(a abi.Addr) netip.Addr {
	if a == (abi.Addr{}) {
		return netip.Addr{}
	}
	return a.IP()
}
