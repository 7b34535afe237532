package nodecheck

import (
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/bpf"
	"porin.dev/porin/bpf/abi"
	"porin.dev/porin/cells/cluster"
	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/node"
	"porin.dev/porin/internal/nl"
)

// OtherNode is another node of the cluster as its records say. Its addresses are on a link of the node that is looked
// at.
type OtherNode struct {
	cluster.NodeNetwork
	Groups  []cluster.EndpointGroup
	offLink bool // they are not
}

// offLinkNodes are the nodes of other checkers, as their agents say that they are.
func offLinkNodes(checkers []*Checker) (nodes []OtherNode, err error) {
	for _, c := range checkers {
		a, err := c.ask()
		if err != nil {
			return nil, err
		}
		c.api.Close()
		nodes = append(nodes, a.asOther())
	}
	return nodes, nil
}

// asOther is the node as others are to know it.
func (a answers) asOther() OtherNode {
	self := a.status.Network
	o := OtherNode{NodeNetwork: cluster.NodeNetwork{Addresses: self.Addresses, Routing: cluster.RoutingMode(self.Routing)}, offLink: true}
	if a.hasTunnel() {
		o.TunnelPort, o.Tunnel = uint16(self.Tunnel.Port), self.Tunnel.Addresses
	}
	for _, pool := range a.usage.Pools {
		for _, r := range pool.Ranges {
			o.Blocks = append(o.Blocks, r.Prefix)
		}
	}
	var pods []cluster.PublishedEndpoint
	for _, ep := range a.endpoints {
		if endpoint.Kind(ep.Kind) == endpoint.KindHealth {
			o.Health = append(o.Health, addresses(ep)...)
		} else {
			pods = append(pods, cluster.PublishedEndpoint{Addresses: addresses(ep)})
		}
	}
	o.Groups = []cluster.EndpointGroup{{Endpoints: pods}}
	return o
}

// pods are the addresses of the node's endpoints.
func (o OtherNode) pods() (list []netip.Addr) {
	for _, g := range o.Groups {
		for _, ep := range g.Endpoints {
			list = append(list, ep.Addresses...)
		}
	}
	return list
}

// speaksTo reports whether both nodes have an address of the same family.
func (o OtherNode) speaksTo(self v1.NetworkStatus) bool {
	mine := cluster.NodeNetwork{Addresses: self.Addresses}
	return slices.ContainsFunc(o.Addresses, func(addr netip.Addr) bool { return mine.Address(cluster.FamilyOf(addr)).IsValid() })
}

// via is the gateway of the route to a block; the zero Addr when there is to be none.
func (o OtherNode) via(block netip.Prefix, self v1.NetworkStatus) (none netip.Addr) {
	vxlan, external := string(cluster.RoutingVXLAN), string(cluster.RoutingExternal)
	modes := []string{self.Routing, string(o.Routing)}
	switch {
	case slices.Contains(modes, vxlan) && o.TunnelPort != 0 && block.Addr().Is4():
		return v1.GatewayIPv4
	case slices.Contains(modes, vxlan) && o.TunnelPort != 0:
		return v1.GatewayIPv6
	case slices.Contains(modes, external), o.offLink:
		return none
	}
	return o.Address(cluster.FamilyOf(block.Addr()))
}

// classesDue are the entries of the policy for the addresses of other nodes, and of their pods.
func (w Want) classesDue() (items []Item) {
	for _, o := range w.Others {
		for _, addr := range slices.Concat(o.Addresses, o.Tunnel, o.Health, o.pods()) {
			items = append(items, classEntry(addr))
		}
		for _, block := range o.Blocks {
			items = append(items, unmanagedEntry(block))
		}
	}
	return items
}

// hasBlockAround reports whether the range is a part of a block of another node: it is one of a policy.
func (w Want) hasBlockAround(cidr netip.Prefix) bool {
	return slices.ContainsFunc(w.Others, func(o OtherNode) bool {
		return slices.ContainsFunc(o.Blocks, func(block netip.Prefix) bool { return block.Overlaps(cidr) && block.Bits() < cidr.Bits() })
	})
}

// pathsDue are the ways to other nodes: routes, and the datapath's entries of their blocks.
func (a answers) pathsDue(want Want) (items []Item) {
	self := a.status.Network
	for _, o := range want.Others {
		for _, block := range o.Blocks {
			if via := o.via(block, self); via.IsValid() {
				items = append(items, pathItem(block, via))
			}
			if o.speaksTo(self) {
				items = append(items, remoteBlockEntry(block))
			}
		}
		if !a.hasTunnel() || !o.speaksTo(self) {
			continue
		}
		for _, block := range o.Blocks {
			items = append(items, ownerEntry(block, true, o.Addresses))
		}
		for _, addr := range o.Addresses {
			items = append(items, ownerEntry(netip.PrefixFrom(addr, addr.BitLen()), false, o.Addresses))
		}
	}
	return items
}

func pathItem(block netip.Prefix, via netip.Addr) Item {
	return Item{"route to another node", fmt.Sprintf("%s via %s", block, via)}
}

func unmanagedEntry(block netip.Prefix) Item {
	return Item{"entry of map " + bpf.Prefixes, block.String()}
}

func remoteBlockEntry(block netip.Prefix) Item {
	return Item{"entry of map " + bpf.RemoteBlocks, block.String()}
}

func ownerEntry(prefix netip.Prefix, pods bool, addrs []netip.Addr) Item {
	addrs = slices.SortedFunc(slices.Values(addrs), netip.Addr.Compare)
	return Item{"entry of map " + bpf.Owners, fmt.Sprintf("%s, of pods: %t: node %v", prefix, pods, addrs)}
}

// pathItems are the ways in the kernel. The doctor knows the tunnel's entries about this node itself.
func (c *Checker) pathItems(tunnel bool) (items []Item, err error) {
	routes, err1 := c.node.Routes(0)
	for _, r := range routes {
		if r.Protocol == node.RouteProtocol {
			items = append(items, pathItem(nl.Prefix(r.Dst), nl.Addr(r.Gw)))
		}
	}
	err2 := eachEntry(filepath.Join(c.node.BPFRoot, "maps", bpf.RemoteBlocks), func(k abi.CIDRKey, _ uint32) {
		items = append(items, remoteBlockEntry(k.Prefix()))
	})
	if !tunnel {
		return items, errors.Join(err1, err2)
	}
	err3 := eachEntry(filepath.Join(c.node.BPFRoot, "tunnel", "maps", bpf.Owners), func(k abi.CIDRKey, o abi.Owner) {
		if o.Flags&abi.OwnerSelf == 0 {
			items = append(items, ownerEntry(k.Prefix(), o.Flags&abi.OwnerPods != 0, addressesOf(o)))
		}
	})
	return items, errors.Join(err1, err2, err3)
}

// addressesOf are a node's addresses in the map.
func addressesOf(o abi.Owner) (addrs []netip.Addr) {
	for _, addr := range []abi.Addr{o.Ipv4, o.Ipv6} {
		if ip := addr.IP(); ip.IsValid() {
			addrs = append(addrs, ip)
		}
	}
	return addrs
}

// rangeOf is the range of addresses that a key is about.
func rangeOf(k abi.PrefixKey) netip.Prefix {
	const copyBits, mappedBits = 32, 96
	addr, bits := netip.AddrFrom16(k.Addr), int(k.Bits)-copyBits
	if addr.Is4In6() && bits >= mappedBits {
		addr, bits = addr.Unmap(), bits-mappedBits
	}
	return netip.PrefixFrom(addr, bits)
}
