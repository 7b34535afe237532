package node

import (
	"net/netip"
	"slices"
	"time"

	"porin.dev/porin/cells/cluster"
)

// Self is what this node knows of itself.
type Self struct {
	Node      cluster.NodeID // without a key until that is known
	UID       string         // of its Kubernetes Node; "" when that is not known
	Addresses []netip.Addr
	Blocks    []netip.Prefix
	Health    []netip.Addr // of the health endpoint; nil as long as they are not known
	Routing   cluster.RoutingMode
	Tunnel    TunnelEnd
}

// TunnelEnd is what this node has so that others reach it by a tunnel, as soon as it receives by it.
type TunnelEnd struct {
	Observed  bool // false after a start, until it was looked for: the published value holds
	Port      int  // 0: there is none
	Addresses []netip.Addr
}

func (t TunnelEnd) equal(other TunnelEnd) bool {
	return t.Observed == other.Observed && t.Port == other.Port && slices.Equal(t.Addresses, other.Addresses)
}

// View is all that is known of the network of nodes at a time. It is a value: nothing in it changes.
type View struct {
	Self Self
	// Ready says that the store has told of all records since this agent has started, that there is no store, or that AsOf
	// is set.
	Ready bool
	// StoreAway says that the store has not answered since this agent has started, although it had some time to.
	StoreAway bool
	// AsOf is when the store had told of what is here, while it is away; zero when nothing is known, and when it has
	// answered.
	AsOf      time.Time
	Peers     []Peer // by name
	Conflicts []Conflict
	// Deleted are blocks and addresses of nodes that were deleted, as far as they are known: no record of them will come
	// again.
	Deleted []netip.Prefix
	// Own is this node's record in the store; nil when there is none.
	Own *cluster.NodeNetwork
	// Removed says that an administrator has deleted this node.
	Removed bool
}

// Tunnels reports whether packets between pods of this node and the peer are to go by a tunnel: in whichever direction,
// so that replies come the same way.
func (v View) Tunnels(p Peer) bool {
	return v.Self.Routing == cluster.RoutingVXLAN || p.Routing == cluster.RoutingVXLAN
}

// Peer is another node as its record says.
type Peer struct {
	// NodeNetwork is the record, without addresses that cannot be the node's.
	cluster.NodeNetwork
	// Blocks are the record's blocks that are the node's: see [Conflict].
	Blocks []netip.Prefix
	// Missing says that the store has lost the record, and that the node was not deleted.
	Missing bool
}

// own returns the addresses that are in the node's blocks: of others it is not believed.
func (p Peer) own(addrs []netip.Addr) (own []netip.Addr) {
	for _, addr := range addrs {
		if slices.ContainsFunc(p.Blocks, func(b netip.Prefix) bool { return b.Contains(addr) }) {
			own = append(own, addr)
		}
	}
	return own
}

// Conflict is a block of a record that does not count.
type Conflict struct {
	Node   cluster.NodeID
	Block  netip.Prefix
	Reason string
	// With is the node that the block is taken for; the zero ID when it is none of another node.
	With cluster.NodeID
}
