package adminapi

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/cells/cluster"
	"porin.dev/porin/cells/cluster/admin"
)

// specs returns pools as the API has them, with how full they are and warnings. They come without that when a block
// cannot be read: the doctor says which, and the pools can be changed all the same.
func (s Routes) specs(ctx context.Context, pools []cluster.Pool) []v1.PoolSpec {
	specs := make([]v1.PoolSpec, len(pools))
	for i, p := range pools {
		specs[i] = specOf(p)
	}
	s.warn(ctx, pools, specs)
	var blocks []cluster.Block
	for b, err := range s.backend.Blocks.All(ctx, cluster.BlockFilter{}) {
		if err != nil {
			return specs
		}
		blocks = append(blocks, b)
	}
	for i, p := range pools {
		specs[i].Use, specs[i].Draining = poolUse(p, blocks), poolDraining(p, blocks)
	}
	return specs
}

// warn names pools of which not every node of the cluster can have a block. Nodes' labels are not in the store,
// so a pool with a node selector is left out. When the nodes cannot be listed there is no warning.
func (s Routes) warn(ctx context.Context, pools []cluster.Pool, specs []v1.PoolSpec) {
	names := map[string]bool{} // a machine that was replaced is another incarnation of one name
	for n, err := range s.backend.Nodes.All(ctx) {
		if err != nil && !errors.Is(err, cluster.ErrUnreadable) {
			return
		}
		names[n.ID.Name] = true
	}
	nodes := uint64(len(names))
	for i, p := range pools {
		for _, f := range cluster.Families {
			if n := p.Blocks(f); n > 0 && n < nodes && len(p.NodeSelector) == 0 && !p.Disabled {
				specs[i].Warnings = append(specs[i].Warnings, fmt.Sprintf(
					"it has %s, and the cluster has %d nodes: not every node can have one; add prefixes, or create a pool with smaller blocks", blocksText(n, f), nodes))
			}
		}
	}
}

// blocksText is "1 IPv4 block" or "2 IPv6 blocks".
func blocksText(n uint64, f cluster.Family) string {
	family := map[cluster.Family]string{cluster.IPv4: "IPv4", cluster.IPv6: "IPv6"}[f]
	if n == 1 {
		return "1 " + family + " block"
	}
	return fmt.Sprintf("%d %s blocks", n, family)
}

func specOf(p cluster.Pool) v1.PoolSpec {
	prefixes := p.Prefixes
	if p.State == cluster.PoolPending {
		prefixes = p.Pending
	}
	return v1.PoolSpec{
		Name: p.Name, State: string(p.State), Prefixes: prefixes, IPv4BlockBits: p.IPv4BlockBits, IPv6BlockBits: p.IPv6BlockBits,
		Exclude: p.Exclude, NodeSelector: p.NodeSelector, AllowedNamespaces: p.AllowedNamespaces, Disabled: p.Disabled,
		Quarantine: &p.Quarantine, ReuseResting: p.ReuseResting, Version: shownVersion(p.Version),
	}
}

// shownVersion is a version as people and the API know it: the store may have the whole record as one.
func shownVersion(v cluster.Version) string {
	sum := sha256.Sum256([]byte(v))
	return hex.EncodeToString(sum[:8])
}

// poolOf is the pool that a request asks for, without its version.
func poolOf(s v1.PoolSpec) cluster.Pool {
	quarantine := cluster.DefaultQuarantine
	if s.Quarantine != nil {
		quarantine = *s.Quarantine
	}
	return cluster.Pool{
		Name: s.Name, Prefixes: s.Prefixes, IPv4BlockBits: s.IPv4BlockBits, IPv6BlockBits: s.IPv6BlockBits,
		Exclude: s.Exclude, NodeSelector: s.NodeSelector, AllowedNamespaces: s.AllowedNamespaces, Disabled: s.Disabled,
		Quarantine: quarantine, ReuseResting: s.ReuseResting,
	}
}

// poolUse counts the blocks of the pool as it is now. What nodes still have of a prefix that was taken out of it, or
// excluded, is in poolDraining.
func poolUse(p cluster.Pool, blocks []cluster.Block) (list []v1.PoolUse) {
	for _, f := range cluster.Families {
		if p.Blocks(f) == 0 {
			continue
		}
		use, nodes := v1.PoolUse{Family: f.String(), Blocks: int64(p.Blocks(f))}, map[cluster.NodeID]bool{}
		for _, b := range blocks {
			if b.PoolUID == p.UID && cluster.FamilyOf(b.CIDR.Addr()) == f && p.HasBlock(b.CIDR) && p.Usable(b.CIDR) {
				use.Owned++
				nodes[b.Owner] = true
			}
		}
		use.Nodes = len(nodes)
		list = append(list, use)
	}
	return list
}

func poolDraining(p cluster.Pool, blocks []cluster.Block) (list []v1.PoolBlock) {
	left := slices.DeleteFunc(slices.Clone(blocks), func(b cluster.Block) bool { return !p.Draining(b) })
	for _, b := range cluster.SortedBlocks(left) {
		list = append(list, v1.PoolBlock{CIDR: b.CIDR, Node: b.Owner.Name, Key: b.Owner.Key})
	}
	return list
}

func nodeOf(n admin.NodeStatus) v1.Node {
	node := v1.Node{
		Name: n.Node.ID.Name, Key: n.Node.ID.Key, State: string(n.Node.State), Created: n.Node.Created, Blocks: []v1.NodeBlock{},
	}
	if n.Session != nil {
		node.LastContact, node.Contested = n.Session.Contact, n.Session.Contested != ""
	}
	for _, b := range n.Blocks {
		node.Blocks = append(node.Blocks, v1.NodeBlock{CIDR: b.CIDR, Pool: b.Pool})
	}
	if n.Network == nil {
		return node
	}
	node.Addresses = n.Network.Addresses
	if n.Session == nil {
		node.LastContact = n.Network.Started
	}
	if n.Node.Created.IsZero() { // it has prefixes of its own, and no claims
		for _, cidr := range n.Network.Blocks {
			node.Blocks = append(node.Blocks, v1.NodeBlock{CIDR: cidr})
		}
	}
	return node
}
