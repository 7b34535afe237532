package spec

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"porin.dev/porin/cmd/cni/internal/jsontext"
)

// maxRoutes bounds those of one container: the kernel takes some microseconds for each.
const maxRoutes = 512

// routes reads the destinations. A route of another table than the main one is not made, nor is one to all destinations,
// which a container has anyway.
func (g *Given) routes(value []byte) error {
	return jsontext.Items(value, func(value []byte) error {
		var dst netip.Prefix
		elsewhere := false
		err := jsontext.Fields(value, func(key string, value []byte) (err error) {
			switch {
			case jsontext.IsNull(value):
			case key == "dst":
				dst, err = readText(value, netip.ParsePrefix)
			case key == "table":
				elsewhere = true
			}
			return err
		})
		if err == nil && !dst.IsValid() {
			err = errors.New("want dst in each")
		}
		if err == nil {
			dst, err = unmapPrefix(dst)
		}
		if err == nil && !elsewhere && dst.Bits() > 0 {
			g.Routes = append(g.Routes, dst)
		}
		return err
	})
}

// unmapPrefix is the network alone; one of IPv4-mapped addresses is one of IPv4.
func unmapPrefix(p netip.Prefix) (netip.Prefix, error) {
	if !p.Addr().Is4In6() {
		return p.Masked(), nil
	}
	if p.Bits() < 96 {
		return p, fmt.Errorf("%s is of both families", p)
	}
	return netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96).Masked(), nil
}

// distinct has each destination once, in an order of its own.
func distinct(routes []netip.Prefix) []netip.Prefix {
	slices.SortFunc(routes, netip.Prefix.Compare)
	return slices.Compact(routes)
}
