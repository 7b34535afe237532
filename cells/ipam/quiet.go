package ipam

import (
	"net/netip"

	"go.uber.org/fx"
)

// Namer knows whether somebody still names an address that was released: a connection, a redirect. It is asked before the
// address is given out, without a lock, and may be asked concurrently. While one says yes the address rests on, for as
// long as [maxRest] at the most. Who cannot tell says no.
type Namer interface{ Names(addr netip.Addr) bool }

// Quiet contributes the Namer that newNamer builds:  ipam.Quiet(ipam.NewConntrack)
func Quiet(newNamer any) fx.Option {
	return fx.Provide(fx.Annotate(newNamer, fx.As(new(Namer)), fx.ResultTags(`group:"ipam.namers"`)))
}

// named tells whether somebody names an address; nobody names none.
func (a *allocator) named(addr netip.Addr) bool {
	if !addr.IsValid() {
		return false
	}
	for _, n := range a.quiet {
		if n.Names(addr) {
			return true
		}
	}
	return false
}
