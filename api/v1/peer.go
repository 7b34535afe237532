package v1

import (
	"net/netip"
	"time"
)

// NetworkStatus is how this node stands in the network of all nodes.
type NetworkStatus struct {
	Addresses    []netip.Addr `json:"addresses"` // where other nodes reach this one
	Blocks       int          `json:"blocks"`    // of its pods' addresses
	Routing      string       `json:"routing"`   // "native", "vxlan" or "external"
	Published    bool         `json:"published"` // the store has the record that tells the others of it
	Peers        int          `json:"peers"`
	MissingPeers int          `json:"missingPeers,omitempty"` // nodes whose records the store has lost
	// StoreAway says that the store has not answered since the start of the agent. AsOf is the time of its last data,
	// which count now; zero when nothing is known of other nodes.
	StoreAway bool      `json:"storeAway,omitempty"`
	AsOf      time.Time `json:"asOf,omitzero"`
	Errors    int       `json:"errors,omitempty"` // blocks of other nodes without their route
	// Tunnel is this node's end of the tunnels to others; nil when it has none.
	Tunnel *TunnelStatus `json:"tunnel,omitempty"`
	// Masquerade is what leaves the cluster with the node's address.
	Masquerade MasqueradeStatus `json:"masquerade"`
}

// TunnelStatus is the node's end of tunnels.
type TunnelStatus struct {
	Port      int          `json:"port,omitempty"`      // UDP; 0 while the node receives none
	Addresses []netip.Addr `json:"addresses,omitempty"` // of its device, which are of the node's blocks
	// Dropped counts packets that came by a tunnel and were refused, by the reason.
	Dropped map[string]uint64 `json:"dropped,omitempty"`
	Error   string            `json:"error,omitempty"` // why it is not as it should be
}

// MasqueradeStatus is how pods' traffic leaves the cluster.
type MasqueradeStatus struct {
	Families    []string       `json:"families"`           // the masqueraded ones: "ipv4", "ipv6"
	Excluded    []netip.Prefix `json:"excluded,omitempty"` // destinations that see the pods' addresses
	Connections uint64         `json:"connections"`        // that were masqueraded since the rules were made
	Error       string         `json:"error,omitempty"`    // why it is not as it should be
}

// Peer is another node as this one knows it.
type Peer struct {
	Name      string       `json:"name"`
	Key       string       `json:"key"`
	Addresses []netip.Addr `json:"addresses"`
	Routing   string       `json:"routing"`
	Health    []netip.Addr `json:"health,omitempty"`
	Version   string       `json:"version,omitempty"`
	Missing   bool         `json:"missing,omitempty"` // the store has lost its record, and the node was not deleted
	Blocks    []PeerBlock  `json:"blocks"`
}

// PeerBlock is a block of another node.
type PeerBlock struct {
	CIDR netip.Prefix `json:"cidr"`
	// Reach is how pods of this node reach it: "route", "tunnel", "external" (the network knows it), "off-link" (left to
	// the network, as the node is not on a link of this one), or "no-family" (not at all: the node has no address of the
	// family).
	Reach string `json:"reach,omitempty"`
	Error string `json:"error,omitempty"`
}
