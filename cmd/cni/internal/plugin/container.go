package plugin

import (
	"errors"
	"fmt"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/cmd/cni/internal/spec"
	"porin.dev/porin/internal/rtnl"
)

// layer is what the container has of one address family.
type layer struct {
	prefix  netip.Prefix // the address, alone
	gateway netip.Addr   // next hop of the default route
	all     netip.Prefix // destination of the default route
}

func layers(ep v1.Endpoint) (list []layer) {
	for _, l := range []layer{
		{netip.PrefixFrom(ep.Addresses.IPv4, 32), ep.Gateways.IPv4, netip.PrefixFrom(netip.IPv4Unspecified(), 0)},
		{netip.PrefixFrom(ep.Addresses.IPv6, 128), ep.Gateways.IPv6, netip.PrefixFrom(netip.IPv6Unspecified(), 0)},
	} {
		if l.prefix.IsValid() {
			list = append(list, l)
		}
	}
	return list
}

// configure gives the container's end its addresses, default routes and neighbours, and brings it up, in one system
// call, and in another one for each thing that it finds in its way.
func (a *adding) configure() error {
	index := a.host.Peer
	err := a.pod.Do(a.configuration(0)...)
	if errors.Is(err, unix.EACCES) && a.endpoint.Addresses.IPv6.IsValid() {
		if err := a.enableIPv6(); err != nil {
			return &spec.Error{
				Code: spec.Internal, Msg: "turn IPv6 on for " + a.IfName + " in the container: " + err.Error(),
				Hint: "allow it there (sysctl net.ipv6.conf." + a.IfName + ".disable_ipv6=0), or give this node no IPv6 range",
			}
		}
		err = a.again(a.configuration(0))
	}
	if errors.Is(err, unix.EEXIST) {
		// Another interface has the default routes. It keeps them, and this one is there when it goes.
		err = a.again(a.configuration(uint32(secondMetric + index)))
	}
	if err == nil {
		return a.settle()
	}
	if errors.Is(err, unix.ENODEV) {
		return fmt.Errorf("configure %s in the container: %w", a.IfName, errLinkGone)
	}
	fault := kernelFault("configure "+a.IfName+" in the container", err)
	if errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EOPNOTSUPP) {
		fault.Hint = "the kernel lacks IPv6 (ipv6.disable=1?): give this node no IPv6 range"
	}
	return fault
}

// secondMetric is above the metric of a default route of either family that is made without one (0 and 1024).
const secondMetric = 1024

// configuration brings the link up first, for routes need that.
func (a *adding) configuration(metric uint32) []rtnl.Request {
	index := a.host.Peer
	requests := []rtnl.Request{rtnl.LinkUp(index)}
	for _, l := range layers(a.endpoint) {
		requests = append(requests,
			rtnl.ReplaceAddr(index, l.prefix),
			rtnl.ReplaceNeigh(rtnl.Neigh{Link: index, Addr: l.gateway, MAC: a.hostMAC}),
		)
		for _, dst := range a.ways(l) {
			requests = append(requests, rtnl.AddRoute(rtnl.Route{Dst: dst, Gateway: l.gateway, Link: index, OnLink: l.gateway.Is4(), Metric: metric}))
		}
		if l.prefix.Addr().Is6() {
			requests = append(requests, rtnl.LocalRoute(index, l.prefix.Addr()))
		}
	}
	var settled rtnl.Link
	return append(requests, rtnl.LinkByIndex(index, &settled)) // see settle
}

// settle has the kernel pass packets to the host end. A work queue begins to, some time after the container's end has come
// up, and drops them until then; whoever asks for the link has that done before it is answered (Linux 6.8, rtnl_getlink).
func (a *adding) settle() error {
	err := a.node.Do(rtnl.LinkByIndex(a.host.Index, &rtnl.Link{}))
	if errors.Is(err, unix.ENODEV) {
		return fmt.Errorf("look at %s on the node: %w", a.hostName, errLinkGone)
	}
	return err
}

// again takes the routes back that the last attempt made, with the link, and makes another.
func (a *adding) again(requests []rtnl.Request) error {
	return a.pod.Do(append([]rtnl.Request{rtnl.LinkDown(a.host.Peer)}, requests...)...)
}

// enableIPv6 turns it on for this interface, as the agent gave it an IPv6 address.
func (a *adding) enableIPv6() error {
	return rtnl.In(a.netns, func() error {
		return os.WriteFile("/proc/sys/net/ipv6/conf/"+a.IfName+"/disable_ipv6", []byte("0"), 0)
	})
}
