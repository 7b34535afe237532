package node

import (
	"context"
	"crypto/sha256"
	"encoding/base32"
	"net/netip"
	"strings"

	"porin.dev/porin/cells/cluster"
	"porin.dev/porin/cells/node/cache"
)

// Sources are what a [Node] asks. All but Blocks may be nil.
type Sources struct {
	Blocks     Blocks
	Health     Health           // nil: there is no health endpoint
	Addresses  AddressSource    // nil: the tunnel device has no addresses
	DirectPath DirectPath       // nil: all connections go through the stack
	Backend    *cluster.Backend // nil: there are no other nodes
	Cache      *cache.Cache     // nil: other nodes are not remembered
	Kubernetes Kubernetes       // nil: there are no Node objects
}

// Kubernetes has the Node objects of the cluster.
type Kubernetes interface {
	// Identity returns the UID and the InternalIPs of this node's object, the zero values before it is known, and a
	// channel that is closed when they change.
	Identity() (uid string, internalIPs []netip.Addr, changed <-chan struct{})
	// HasPodCIDR reports whether there is a Node of that name with that podCIDR. It asks the API server.
	HasPodCIDR(ctx context.Context, name string, cidr netip.Prefix) (bool, error)
}

// noKubernetes has no Node objects.
type noKubernetes struct{}

func (noKubernetes) Identity() (string, []netip.Addr, <-chan struct{}) { return "", nil, nil }

func (noKubernetes) HasPodCIDR(context.Context, string, netip.Prefix) (bool, error) {
	return false, nil
}

// Blocks says which prefixes the addresses of this node's pods are of.
type Blocks interface {
	// Blocks returns the node's ID, without a key until that is known, and the prefixes, and a channel that is closed when
	// either changes.
	Blocks() (cluster.NodeID, []netip.Prefix, <-chan struct{})
}

// Static are blocks that never change.
type Static struct {
	Node     cluster.NodeID
	Prefixes []netip.Prefix
}

// Blocks implements [Blocks].
func (s Static) Blocks() (cluster.NodeID, []netip.Prefix, <-chan struct{}) {
	return s.Node, s.Prefixes, nil
}

// Named are blocks of a node that is known by its name.
type Named struct {
	Name     string
	Prefixes func() ([]netip.Prefix, <-chan struct{}) // and a channel that is closed when they change
}

// Blocks implements [Blocks].
func (n Named) Blocks() (cluster.NodeID, []netip.Prefix, <-chan struct{}) {
	prefixes, changed := n.Prefixes()
	return IDOfName(n.Name), prefixes, changed
}

// IDOfName is the ID of a node whose prefixes come with its name: whoever has the name is the node.
func IDOfName(name string) cluster.NodeID {
	sum := sha256.Sum256([]byte("node " + name))
	return cluster.NodeID{Name: name, Key: strings.ToLower(base32.StdEncoding.EncodeToString(sum[:7]))[:10]}
}

// Health has the addresses of the node's health endpoint.
type Health interface {
	// Addresses are nil as long as they are not known.
	Addresses() []netip.Addr
	// Changed returns a channel that is closed at the next change of them.
	Changed() <-chan struct{}
}

// noHealth is a node without a health endpoint.
type noHealth struct{}

func (noHealth) Addresses() []netip.Addr  { return []netip.Addr{} }
func (noHealth) Changed() <-chan struct{} { return nil }

// Kernel is what the kernel of the node knows.
type Kernel interface {
	// Addresses returns the address of each family that the node reaches the world with: at most one of each.
	Addresses() ([]netip.Addr, error)
	// Local returns the addresses that an interface has.
	Local(addrs []netip.Addr) ([]netip.Addr, error)
	// Watch returns a channel that gets a token when addresses, links or routes have changed, except pods'. It is
	// closed when ctx ends, and when notifications were lost.
	Watch(ctx context.Context) (<-chan struct{}, error)
}

// AddressSource gives the tunnel device addresses of this node's blocks, so that what others send to them comes by the
// tunnel.
type AddressSource interface {
	// Keep takes the device's previous addresses. It keeps the addresses that it has already.
	Keep(addrs []netip.Addr) error
	// Allocate returns what the device has, or one address of each family. It may wait for a store.
	Allocate(ctx context.Context) ([]netip.Addr, error)
	// LacksFamily reports whether the device could have an address of a family that it has none of.
	LacksFamily() bool
	// Release gives them back.
	Release()
}

// DirectPath has packets between pods of two nodes bypass this node's stack. It is the datapath.
type DirectPath interface {
	// SetRemoteBlocks sets the blocks of other nodes, in place of the last call's.
	SetRemoteBlocks(blocks []netip.Prefix) error
}
