package plugin

import (
	"fmt"
	"net/netip"
	"slices"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/cmd/cni/internal/spec"
	"porin.dev/porin/internal/rtnl"
)

// checkGiven refuses an address of the node itself: the datapath would take the node's packets to the container.
func (a *adding) checkGiven() error {
	own, err := a.node.Addrs(0)
	if err != nil {
		return kernelFault("look at the addresses of the node", err)
	}
	for _, addr := range []netip.Addr{a.given.Addresses.IPv4, a.given.Addresses.IPv6} {
		if slices.ContainsFunc(own, func(o rtnl.Addr) bool { return o.Prefix.Addr() == addr }) {
			return &spec.Error{
				Code: spec.Conflict, Msg: fmt.Sprintf("the IPAM plugin %s gave the address %s, which is one of the node", a.Config.IPAM, addr),
				Hint: `have it give others ("ipam" in the network configuration)`,
			}
		}
	}
	return nil
}

// asked are the addresses that the agent is asked for.
func (a *adding) asked() v1.Addresses {
	if a.delegated() {
		return a.given.Addresses // what the runtime asked for, the IPAM plugin has read
	}
	return a.Addresses
}

// gateway is the one of a family that the result has: the IPAM plugin's if it named one, as its CHECK may look for it.
func (a *adding) gateway(l layer) netip.Addr {
	theirs := a.given.Gateways.IPv6
	if l.gateway.Is4() {
		theirs = a.given.Gateways.IPv4
	}
	if theirs.IsValid() {
		return theirs
	}
	return l.gateway
}

// ways are the destinations of a family that have a route: all, and those that the IPAM plugin names. They are of use to a
// container whose default route is by another interface. The next hop is always Porin's: on this link there is no other.
func (a *adding) ways(l layer) []netip.Prefix {
	list := []netip.Prefix{l.all}
	for _, dst := range a.given.Routes {
		if dst.Addr().Is4() == l.gateway.Is4() {
			list = append(list, dst)
		}
	}
	return list
}

// dns is that of the configuration, or else of the IPAM plugin, as in the reference plugins.
func (a *adding) dns() []byte {
	if a.Config.DNS != nil {
		return a.Config.DNS
	}
	return a.given.DNS
}
