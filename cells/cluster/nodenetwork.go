package cluster

import (
	"errors"
	"fmt"
	"net/netip"
	"time"
)

// RoutingMode is how the pods of a node are reached from other nodes.
type RoutingMode string

// The modes.
const (
	// RoutingNative is by the node's address: a peer on the same link has a route for each block.
	RoutingNative RoutingMode = "native"
	// RoutingExternal is by the network between the nodes, which knows the blocks itself.
	RoutingExternal RoutingMode = "external"
	// RoutingVXLAN is by a tunnel between the nodes, over any network.
	RoutingVXLAN RoutingMode = "vxlan"
)

// NodeNetwork is a node's second record, written by its agent alone: how the node and its pods are reached.
type NodeNetwork struct {
	Node NodeID `json:"node"`
	// Agent is random for each start of an agent. Another one than the own means that two machines have the node's name.
	Agent     string         `json:"agent"`
	Addresses []netip.Addr   `json:"addresses"`        // of the node, at most one of each family
	Blocks    []netip.Prefix `json:"blocks,omitempty"` // which its pods' addresses are of
	Routing   RoutingMode    `json:"routing"`
	// Health are the addresses of the node's health endpoint, at most one of each family.
	Health []netip.Addr `json:"health,omitempty"`
	// TunnelPort is the UDP port of the node's VXLAN device; 0 while it has none. Tunnel are the device's addresses, of
	// the node's blocks, at most one of each family.
	TunnelPort   uint16       `json:"tunnelPort,omitempty"`
	Tunnel       []netip.Addr `json:"tunnel,omitempty"`
	AgentVersion string       `json:"agentVersion,omitempty"`
	// Started is when the agent started, by the node's clock; zero in records of previous versions.
	Started time.Time `json:"started,omitzero"`
	// NodeUID is the UID of the Kubernetes Node that the agent runs on; "" without Kubernetes.
	NodeUID string `json:"nodeUID,omitempty"`

	Deleting bool    `json:"-"`
	Version  Version `json:"-"`
}

// Address returns the node's address of that family, the zero Addr when it has none.
func (n NodeNetwork) Address(f Family) netip.Addr {
	for _, addr := range n.Addresses {
		if FamilyOf(addr) == f {
			return addr
		}
	}
	return netip.Addr{}
}

// The limits of a node's record. Other nodes have routes for it, so a record with more is [ErrUnreadable].
const (
	maxNodeBlocks    = 4096
	maxNodeAddresses = 2
	// A block is not so large that others would send a part of the Internet to the node, nor has a node so many pods.
	minBlockBitsIPv4, minBlockBitsIPv6 = 12, 48
)

// Validate reports values that other nodes do not accept.
func (n NodeNetwork) Validate() error {
	errs := []error{n.Node.Validate(), checkFamilies("addresses", n.Addresses), checkFamilies("health addresses", n.Health), checkFamilies("tunnel addresses", n.Tunnel)}
	if len(n.Blocks) > maxNodeBlocks {
		return fmt.Errorf("%d blocks, more than %d", len(n.Blocks), maxNodeBlocks)
	}
	for _, b := range n.Blocks {
		least := map[bool]int{true: minBlockBitsIPv4, false: minBlockBitsIPv6}[b.Addr().Is4()]
		if !b.IsValid() || b != b.Masked() || b.Bits() < least || isSpecial(b.Addr()) {
			errs = append(errs, fmt.Errorf("block %s: want a prefix of pods' addresses, of at least %d bits by IPv4 and %d by IPv6", b, minBlockBitsIPv4, minBlockBitsIPv6))
		}
	}
	return errors.Join(errs...)
}

// checkFamilies wants at most one address of each family that a packet on a network between nodes can have.
func checkFamilies(what string, addrs []netip.Addr) error {
	if len(addrs) > maxNodeAddresses || len(addrs) == 2 && FamilyOf(addrs[0]) == FamilyOf(addrs[1]) {
		return fmt.Errorf("%s: want at most one address of each family", what)
	}
	for _, addr := range addrs {
		if !addr.IsValid() || addr.Is4In6() || addr.Zone() != "" || isSpecial(addr) {
			return fmt.Errorf("%s: %s is no address of a node or a pod", what, addr)
		}
	}
	return nil
}

func isSpecial(addr netip.Addr) bool {
	return addr.IsUnspecified() || addr.IsLoopback() || addr.IsMulticast() || addr.IsLinkLocalUnicast() || addr == netip.AddrFrom4([4]byte{255, 255, 255, 255})
}
