package ipam

import (
	"context"
	"net/netip"

	"go.uber.org/fx"
)

// Namer knows who still names addresses that were released: connections, redirects. It is asked without a lock about many
// addresses at once, by one goroutine at a time, and returns those that somebody names. An address that is named rests on,
// for as long as [maxRest] at the most, and is asked about again after [askAgain]. Who cannot tell, or not before ctx ends,
// names none.
type Namer interface {
	Named(ctx context.Context, addrs []netip.Addr) []netip.Addr
}

// Quiet contributes the Namer that newNamer builds:  ipam.Quiet(ipam.NewConntrack)
func Quiet(newNamer any) fx.Option {
	return fx.Provide(fx.Annotate(newNamer, fx.As(new(Namer)), fx.ResultTags(`group:"ipam.namers"`)))
}
