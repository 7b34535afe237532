package node

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/cells/cluster"
	"porin.dev/porin/cells/node/tunnel"
)

// outer is the pair of outer addresses of packets to the peer: IPv4 if both nodes have it.
func outer(self Self, p Peer) (local, remote netip.Addr) {
	for _, family := range []cluster.Family{cluster.IPv4, cluster.IPv6} {
		local, remote = cluster.NodeNetwork{Addresses: self.Addresses}.Address(family), p.Address(family)
		if local.IsValid() && remote.IsValid() {
			return local, remote
		}
	}
	return netip.Addr{}, netip.Addr{}
}

// updateTunnel makes the tunnel as the view says, if there is to be one. It returns the index of its device, or 0; the
// error says what is not as it should be.
func (r *router) updateTunnel(view View, uplinks map[netip.Addr]int) (index int, err error) {
	needed := r.mode == cluster.RoutingVXLAN || slices.ContainsFunc(view.Peers, func(p Peer) bool { return p.Routing == cluster.RoutingVXLAN })
	if needed {
		r.needed = time.Now()
	} else if ended, err := r.endTunnel(); ended || err != nil {
		return 0, err
	}
	r.addresses.need(true, view.Self.Blocks)
	d := r.desiredTunnel(view, uplinks)
	index, err = r.tunnel.Apply(d)
	if index == 0 {
		r.setEnd(TunnelEnd{Observed: true})
	} else {
		r.setEnd(TunnelEnd{Observed: true, Port: r.tunnel.Port(), Addresses: d.Addresses})
	}
	return index, err
}

func (r *router) desiredTunnel(view View, uplinks map[netip.Addr]int) tunnel.Desired {
	addrs, _ := r.addresses.addrs.Get()
	var devices []netip.Addr
	for _, p := range view.Peers {
		devices = append(devices, p.own(p.Tunnel)...)
	}
	return tunnel.Desired{
		MTU: tunnelMTU(uplinks), Addresses: addrs, Owners: tunnelOwners(view), Devices: devices,
		Keeps: func(prefix netip.Prefix, o tunnel.Owner) bool { return r.keepsOwner(view, prefix, o) },
	}
}

// compareTunnel says what is not as it should be of a tunnel that was made.
func (r *router) compareTunnel(view View) ([]string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if end, _ := r.end.Get(); end.Port == 0 {
		return nil, nil
	}
	uplinks, err := r.uplinkMTUs(view.Self.Addresses)
	if err != nil {
		return nil, err
	}
	return r.tunnel.Compare(r.desiredTunnel(view, uplinks))
}

func (r *router) setEnd(end TunnelEnd) {
	if was, _ := r.end.Get(); !was.equal(end) {
		r.end.Set(end)
	}
}

// endTunnel is for a node that needs no tunnel, and reports whether there is none. What there is stays for [keepTime]
// after it was needed, or after a start. First the others are told.
func (r *router) endTunnel() (ended bool, err error) {
	index, _, err := r.tunnel.Device()
	if err != nil {
		return false, err
	}
	since := r.begun
	if r.needed.After(since) {
		since = r.needed
	}
	if index != 0 && time.Since(since) < keepTime {
		return false, nil
	}
	r.addresses.need(false, nil)
	end, _ := r.end.Get()
	r.setEnd(TunnelEnd{Observed: true})
	if end.Port != 0 { // the next round removes it
		return true, nil
	}
	if index != 0 {
		if err := r.tunnel.Remove(); err != nil {
			return true, err
		}
	}
	return true, r.addresses.release()
}

// tunnelOwners are the nodes of all prefixes: also this node's, and nodes that are reached without a tunnel now. A node
// cannot have this node's prefixes.
func tunnelOwners(view View) map[netip.Prefix]tunnel.Owner {
	all := map[netip.Prefix]tunnel.Owner{}
	for _, block := range view.Self.Blocks {
		all[block] = tunnel.Owner{Pods: true}
	}
	for _, addr := range view.Self.Addresses {
		all[netip.PrefixFrom(addr, addr.BitLen())] = tunnel.Owner{}
	}
	for _, p := range view.Peers {
		local, _ := outer(view.Self, p)
		if !local.IsValid() {
			continue
		}
		for _, block := range p.Blocks {
			if _, ok := all[block]; !ok {
				all[block] = tunnel.Owner{Addresses: p.Addresses, Local: local, Pods: true}
			}
		}
		for _, addr := range p.Addresses {
			one := netip.PrefixFrom(addr, addr.BitLen())
			if _, ok := all[one]; !ok && !slices.ContainsFunc(view.Self.Blocks, one.Overlaps) {
				all[one] = tunnel.Owner{Addresses: p.Addresses, Local: local}
			}
		}
	}
	return all
}

// keepsOwner reports whether an entry stays that no record asks for: its record may come again.
func (r *router) keepsOwner(view View, prefix netip.Prefix, o tunnel.Owner) bool {
	if !o.Local.IsValid() || r.published[prefix] || !r.begun.IsZero() && time.Since(r.begun) > keepTime || overlapsNode(prefix, view.Self.Blocks, view.Self.Addresses) {
		return false
	}
	return !slices.ContainsFunc(view.Peers, func(p Peer) bool {
		return overlapsNode(prefix, p.Blocks, p.Addresses) || slices.ContainsFunc(o.Addresses, func(a netip.Addr) bool { return slices.Contains(p.Addresses, a) })
	})
}

func overlapsNode(prefix netip.Prefix, blocks []netip.Prefix, addrs []netip.Addr) bool {
	return slices.ContainsFunc(blocks, prefix.Overlaps) || slices.ContainsFunc(addrs, prefix.Contains)
}

// tunnelHop is the way to a block of the peer by the tunnel.
func tunnelHop(index int, block netip.Prefix, self Self, p Peer, uplinks map[netip.Addr]int) hop {
	to := hop{link: index, via: v1.GatewayIPv4}
	if block.Addr().Is6() {
		to.via = v1.GatewayIPv6
	}
	local, _ := outer(self, p)
	if mtu := max(uplinks[local]-overhead(local), minMTU); mtu < tunnelMTU(uplinks) {
		to.mtu = mtu
	}
	return to
}

// tunnelFault is why the peer cannot be reached by a tunnel though it has one.
func (r *router) tunnelFault(self Self, p Peer, index int) error {
	switch local, _ := outer(self, p); {
	case int(p.TunnelPort) != r.tunnel.Port():
		return fmt.Errorf("it receives at UDP port %d, and this node at %d: give all agents the same --vxlan-port", p.TunnelPort, r.tunnel.Port())
	case !local.IsValid():
		return errors.New("the two have no addresses of the same family")
	case index == 0 && self.Node.Key != "": // else there will be one soon
		return errors.New("this node has no VXLAN device")
	}
	return nil
}

// throughTunnel reports whether tunnelHop has made the way.
func (h hop) throughTunnel() bool { return h.via == v1.GatewayIPv4 || h.via == v1.GatewayIPv6 }

// prepare is for the start, before anything is known of other nodes.
func (r *router) prepare(o *observer) error {
	addrs, err := o.addresses()
	if err != nil {
		return err
	}
	uplinks, err := r.uplinkMTUs(addrs)
	if err != nil {
		return err
	}
	index, _, err := r.tunnel.Device()
	if r.mode == cluster.RoutingVXLAN {
		err = r.tunnel.Prepare(tunnelMTU(uplinks))
	}
	r.updatePodMTU(uplinks, index != 0 || r.mode == cluster.RoutingVXLAN)
	return err
}

const (
	// overheadIPv4 and overheadIPv6 are what the outer headers take of the MTU, by the outer family.
	overheadIPv4 = 50
	overheadIPv6 = 70
	minMTU       = 1280 // without which a device has no IPv6
	defaultMTU   = 1500
)

func overhead(outer netip.Addr) int {
	if outer.Is4() {
		return overheadIPv4
	}
	return overheadIPv6
}

// uplinkMTUs are the MTUs of the interfaces that have the node's addresses.
func (r *router) uplinkMTUs(addrs []netip.Addr) (map[netip.Addr]int, error) {
	mtus := map[netip.Addr]int{}
	for _, addr := range addrs {
		mtu, err := r.kernel.mtuOf(addr)
		if err != nil {
			return nil, err
		}
		mtus[addr] = cmp.Or(mtu, defaultMTU)
	}
	return mtus, nil
}

// tunnelMTU is the device's MTU: it fits the outer family with the most room. Routes of others have their own.
func tunnelMTU(uplinks map[netip.Addr]int) int {
	mtu := 0
	for addr, of := range uplinks {
		mtu = max(mtu, of-overhead(addr))
	}
	return max(cmp.Or(mtu, defaultMTU-overheadIPv6), minMTU)
}

// updatePodMTU has new pods get what fits on the way to other nodes.
func (r *router) updatePodMTU(uplinks map[netip.Addr]int, tunnelled bool) {
	mtu := 0
	for _, of := range uplinks {
		if mtu == 0 || of < mtu {
			mtu = of
		}
	}
	if tunnelled {
		mtu = min(cmp.Or(mtu, tunnelMTU(uplinks)), tunnelMTU(uplinks))
	}
	if mtu != 0 {
		mtu = max(mtu, minMTU)
	}
	r.podMTU.Store(int64(mtu))
}
