package ipam

import (
	"context"
	"net/netip"
	"time"

	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/ipam/allocator"
)

// TunnelOwner has the addresses of the node's tunnel device. It is no attachment's handle.
const TunnelOwner allocator.Handle = "porin-tunnel"

// TunnelAddresses gives the node's tunnel device addresses, of the default pool.
type TunnelAddresses struct{ source *allocator.Source }

// NewTunnelAddresses returns the tunnel addresses of a source.
func NewTunnelAddresses(s *allocator.Source) *TunnelAddresses { return &TunnelAddresses{s} }

// Keep takes the addresses that the device had before.
func (t *TunnelAddresses) Keep(addrs []netip.Addr) error {
	held := allocator.Allocation{Owner: TunnelOwner, Pool: allocator.DefaultPool, Since: time.Now()}
	for _, addr := range addrs {
		if addr.Is4() {
			held.Addresses.IPv4 = addr
		} else {
			held.Addresses.IPv6 = addr
		}
	}
	return t.source.Allocator().Adopt(held)
}

// Allocate returns what the device has, or one address of each family of the pool.
func (t *TunnelAddresses) Allocate(ctx context.Context) ([]netip.Addr, error) {
	got, err := t.source.Allocate(ctx, allocator.Request{Owner: TunnelOwner})
	return endpoint.Addresses(got.Addresses).List(), err
}

// LacksFamily reports whether the device has addresses, and could have one of another family by now.
func (t *TunnelAddresses) LacksFamily() bool { return t.source.Allocator().LacksFamily(TunnelOwner) }

// Release gives the addresses back.
func (t *TunnelAddresses) Release() { t.source.Allocator().Release(TunnelOwner) }
