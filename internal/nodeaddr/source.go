// Package nodeaddr lists the addresses of the node's interfaces, and watches for changes.
package nodeaddr

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"

	"porin.dev/porin/internal/nl"
)

// Source has the addresses of the interfaces of the node. Left out are link-local ones of IPv6, as every interface has
// one, and the IPv4 dummy address (RFC 7600), which interfaces without senders have, such as the proxy's.
type Source interface {
	// List returns all of them, each with the name of an interface that has it.
	List() (map[netip.Addr]string, error)
	// Watch returns a channel of the addresses that come or go from now on. The channel is closed when ctx ends, and when
	// the kernel has dropped notifications.
	Watch(ctx context.Context) (<-chan netip.Addr, error)
}

// kernel asks the kernel of the network namespace that the caller's thread is in.
type kernel struct{}

// NewKernel returns the kernel as a [Source].
func NewKernel() Source { return kernel{} }

// List implements [Source].
func (kernel) List() (map[netip.Addr]string, error) {
	addrs, err := nl.Dump(func() ([]netlink.Addr, error) { return netlink.AddrList(nil, netlink.FAMILY_ALL) })
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) { // interrupted by a change. Watch notifies of it: then List is called again
		return nil, fmt.Errorf("list the addresses of the node: %w", err)
	}
	links, err := nl.Dump(netlink.LinkList)
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		return nil, fmt.Errorf("list the interfaces of the node: %w", err)
	}
	names := map[int]string{}
	for _, l := range links {
		names[l.Attrs().Index] = l.Attrs().Name
	}
	ofNode := map[netip.Addr]string{}
	for _, a := range addrs {
		addr, ok := netip.AddrFromSlice(a.IP)
		if !ok || isOfInterface(addr) {
			continue
		}
		name := names[a.LinkIndex]
		if name == "" {
			name = fmt.Sprintf("interface %d", a.LinkIndex)
		}
		ofNode[addr.Unmap()] = name
	}
	return ofNode, nil
}

// Watch implements [Source].
func (kernel) Watch(ctx context.Context) (<-chan netip.Addr, error) {
	updates := make(chan netlink.AddrUpdate, 16)
	if err := netlink.AddrSubscribe(updates, ctx.Done()); err != nil {
		return nil, fmt.Errorf("subscribe to the addresses of the node: %w", err)
	}
	changes := make(chan netip.Addr)
	go func() {
		defer close(changes)
		for u := range updates { // to its end, so that the library's goroutine is not left behind
			addr, ok := netip.AddrFromSlice(u.LinkAddress.IP)
			if !ok || isOfInterface(addr) {
				continue
			}
			select {
			case changes <- addr.Unmap():
			case <-ctx.Done():
			}
		}
	}()
	return changes, nil
}

var dummyAddress = netip.AddrFrom4([4]byte{192, 0, 0, 8})

// isOfInterface reports whether the address means something on one interface alone.
func isOfInterface(addr netip.Addr) bool {
	return addr.Unmap() == dummyAddress || addr.Is6() && !addr.Is4In6() && addr.IsLinkLocalUnicast()
}
