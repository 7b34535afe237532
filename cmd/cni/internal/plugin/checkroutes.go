package plugin

import (
	"fmt"
	"net/netip"
	"slices"

	"porin.dev/porin/internal/rtnl"
)

// ways wants the default routes, and those that ADD has made beside them.
func (c *checking) ways() string {
	for _, l := range layers(c.endpoint) {
		if !slices.ContainsFunc(c.routes, func(r rtnl.Route) bool { return r.Dst == l.all && r.Gateway == l.gateway }) {
			return fmt.Sprintf("route to %s by %s is missing on interface %s", l.all, l.gateway, c.IfName)
		}
		if dst := c.missingRoute(l); dst.IsValid() {
			return fmt.Sprintf("route to %s by %s is missing on interface %s", dst, l.gateway, c.IfName)
		}
	}
	return ""
}

// missingRoute is a destination that ADD has made a route to, and that has none. What is not by the gateway is another
// plugin's.
func (c *checking) missingRoute(l layer) netip.Prefix {
	for _, want := range c.result.Routes {
		made := func(r rtnl.Route) bool { return r.Dst == want.Dst && r.Gateway == l.gateway }
		if want.GW == l.gateway && !slices.ContainsFunc(c.routes, made) {
			return want.Dst
		}
	}
	return netip.Prefix{}
}
