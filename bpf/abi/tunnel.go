package abi

import "net/netip"

// The relation of the node that owns a prefix to this one: bits.
const (
	OwnerSelf = uint32(cOwnerFlagOWNER_SELF)
	OwnerPods = uint32(cOwnerFlagOWNER_PODS)
	OwnerIPv6 = uint32(cOwnerFlagOWNER_IPV6)
)

// CIDRKeyOf is the prefix as a key of the maps owners and remote_blocks.
func CIDRKeyOf(p netip.Prefix) CIDRKey {
	key := CIDRKey{Bits: uint32(p.Bits()), Addr: AddrOf(p.Addr()).Byte}
	if p.Addr().Is4() {
		key.Bits += 96
	}
	return key
}

// Prefix is the reverse of [CIDRKeyOf].
func (k CIDRKey) Prefix() netip.Prefix {
	addr := netip.AddrFrom16(k.Addr)
	if addr.Is4In6() && k.Bits >= 96 {
		return netip.PrefixFrom(addr.Unmap(), int(k.Bits)-96)
	}
	return netip.PrefixFrom(addr, int(k.Bits))
}

// TunnelNetwork is the number of the network in the VXLAN header.
const TunnelNetwork = 0x504f52

// TunnelDrop is why a packet in a tunnel, or on its way there, was dropped.
type TunnelDrop = cTunnelDrop

// The reasons.
const (
	TunnelDropMalformed   = cTunnelDropTUNNEL_DROP_MALFORMED
	TunnelDropLink        = cTunnelDropTUNNEL_DROP_LINK
	TunnelDropNoNode      = cTunnelDropTUNNEL_DROP_NO_NODE
	TunnelDropNetwork     = cTunnelDropTUNNEL_DROP_NETWORK
	TunnelDropUnknownNode = cTunnelDropTUNNEL_DROP_UNKNOWN_NODE
	TunnelDropSource      = cTunnelDropTUNNEL_DROP_SOURCE
	TunnelDropDestination = cTunnelDropTUNNEL_DROP_DESTINATION

	TunnelDropOuterDestination = cTunnelDropTUNNEL_DROP_OUTER_DESTINATION
)

// tunnelDrops are the reasons' names in the API and in metrics: never renamed.
var tunnelDrops = [...]string{
	TunnelDropMalformed:   "malformed",
	TunnelDropLink:        "link",
	TunnelDropNoNode:      "no-node",
	TunnelDropNetwork:     "network",
	TunnelDropUnknownNode: "unknown-node",
	TunnelDropSource:      "source",
	TunnelDropDestination: "destination",

	TunnelDropOuterDestination: "outer-destination",
}

// TunnelDropReasons are all reasons there are.
func TunnelDropReasons() (reasons []TunnelDrop) {
	for i := TunnelDropMalformed; int(i) < len(tunnelDrops); i++ {
		reasons = append(reasons, i)
	}
	return reasons
}

// String is the reason's name.
func (d TunnelDrop) String() string { return tunnelDrops[d] }

// Add adds what one CPU has counted.
func (d *TunnelDrops) Add(other TunnelDrops) {
	for i := range d.ToTunnel {
		d.ToTunnel[i] += other.ToTunnel[i]
		d.FromTunnel[i] += other.FromTunnel[i]
	}
}
