package node

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/gaissmai/bart"

	"porin.dev/porin/cells/cluster"
)

// records are the store's records, and the records that it has lost. It is plain data.
type records struct {
	byName  map[string]*record
	removed map[string]bool // keys of nodes that were deleted
	// claims are the owners of blocks in conflict, as the store's claims say.
	claims    map[netip.Prefix]cluster.NodeID
	lastOrder uint64 // of the last record
	// deleted are the prefixes of nodes that a previous agent knew, and that were deleted before this agent has asked.
	deleted []netip.Prefix
}

type record struct {
	network cluster.NodeNetwork
	missing bool
	order   uint64
}

func newRecords() *records {
	return &records{byName: map[string]*record{}, removed: map[string]bool{}, claims: map[netip.Prefix]cluster.NodeID{}}
}

// apply remembers what a watch has told.
func (r *records) apply(c cluster.Change[cluster.NodeNetwork]) {
	switch c.Kind {
	case cluster.Snapshot:
		for _, known := range r.byName {
			known.missing = true
		}
		all := slices.SortedFunc(slices.Values(c.All), func(a, b cluster.NodeNetwork) int { return strings.Compare(a.Node.String(), b.Node.String()) })
		for _, n := range all {
			r.put(n)
		}
	case cluster.Put:
		r.put(c.Item)
	case cluster.Deleted:
		if known := r.byName[c.Name]; known != nil {
			known.missing = true
		}
	}
	r.deleteRemoved()
}

func (r *records) put(n cluster.NodeNetwork) {
	name := n.Node.RecordName()
	known := r.byName[name]
	if known == nil {
		r.lastOrder++
		known = &record{order: r.lastOrder}
		r.byName[name] = known
	}
	known.network, known.missing = n, false
}

// setRemoved remembers which nodes were deleted.
func (r *records) setRemoved(keys []string) {
	clear(r.removed)
	for _, key := range keys {
		r.removed[key] = true
	}
	r.deleteRemoved()
}

func (r *records) deleteRemoved() {
	maps.DeleteFunc(r.byName, func(_ string, known *record) bool { return known.missing && r.removed[known.network.Node.Key] })
}

// addDeleted records the prefixes of deleted nodes that a previous agent knew.
func (r *records) addDeleted(previous []cluster.NodeNetwork) {
	for _, n := range previous {
		if r.removed[n.Node.Key] {
			r.deleted = append(r.deleted, prefixesOf(n)...)
		}
	}
}

// prefixesOf are the blocks and the addresses that a record has.
func prefixesOf(n cluster.NodeNetwork) []netip.Prefix {
	all := slices.Clone(n.Blocks)
	for _, addr := range n.Addresses {
		all = append(all, netip.PrefixFrom(addr, addr.BitLen()))
	}
	return all
}

// deleteMissing deletes all records that the store does not have.
func (r *records) deleteMissing() {
	maps.DeleteFunc(r.byName, func(_ string, known *record) bool { return known.missing })
}

// view is what counts of the records for the node.
func (r *records) view(self Self) View {
	v := View{Ready: true, Self: self, Own: r.own(self.Node), Removed: r.removed[self.Node.Key]}
	peers := r.others(self.Node)
	for _, known := range peers {
		p := Peer{NodeNetwork: known.network, Missing: known.missing}
		p.Addresses = v.addressesOf(known.network)
		v.Peers = append(v.Peers, p)
	}
	v.assignBlocks(newBlockOwners(self, peers, r.claims), r.claims)
	v.Deleted = r.deletedPrefixes()
	slices.SortFunc(v.Peers, func(a, b Peer) int { return strings.Compare(a.Node.String(), b.Node.String()) })
	return v
}

// deletedPrefixes are the prefixes of deleted nodes, also of nodes that still have a record.
func (r *records) deletedPrefixes() []netip.Prefix {
	all := slices.Clone(r.deleted)
	for _, known := range r.byName {
		if r.removed[known.network.Node.Key] {
			all = append(all, prefixesOf(known.network)...)
		}
	}
	return all
}

// own returns a copy of the node's record, as a view does not change, or nil.
func (r *records) own(self cluster.NodeID) *cluster.NodeNetwork {
	for _, known := range r.byName {
		if own := known.network; own.Node == self && !known.missing {
			return &own
		}
	}
	return nil
}

// others returns the records of other nodes that were not deleted. Who comes first gets what others say is theirs, too.
func (r *records) others(self cluster.NodeID) (peers []*record) {
	for _, known := range r.byName {
		maybeOwn := self.Key == "" && known.network.Node.Name == self.Name
		if known.network.Node != self && !maybeOwn && !r.removed[known.network.Node.Key] {
			peers = append(peers, known)
		}
	}
	slices.SortFunc(peers, func(a, b *record) int {
		if a.missing != b.missing {
			if a.missing {
				return 1
			}
			return -1
		}
		return cmp.Compare(a.order, b.order)
	})
	return peers
}

// assignBlocks gives the peers the blocks of their records that are theirs: first to peers with claims.
func (v *View) assignBlocks(o *blockOwners, claims map[netip.Prefix]cluster.NodeID) {
	for _, p := range v.Peers {
		for _, block := range p.NodeNetwork.Blocks {
			if claim, ok := claims[block]; ok && claim == p.Node {
				o.assign(block, p.Node)
			}
		}
	}
	for i := range v.Peers {
		p := &v.Peers[i]
		for _, block := range p.NodeNetwork.Blocks {
			if conflict := o.assign(block, p.Node); conflict != nil {
				v.Conflicts = append(v.Conflicts, *conflict)
			} else {
				p.Blocks = append(p.Blocks, block)
			}
		}
		p.Health, p.Tunnel = p.own(p.Health), p.own(p.Tunnel)
	}
}

// addressesOf returns the node's addresses without this node's pods': each of these is a conflict.
func (v *View) addressesOf(n cluster.NodeNetwork) []netip.Addr {
	var addrs []netip.Addr
	for _, addr := range n.Addresses {
		own := slices.IndexFunc(v.Self.Blocks, func(b netip.Prefix) bool { return b.Contains(addr) })
		if own < 0 {
			addrs = append(addrs, addr)
			continue
		}
		v.Conflicts = append(v.Conflicts, Conflict{
			Node: n.Node, Block: netip.PrefixFrom(addr, addr.BitLen()), With: v.Self.Node,
			Reason: "as the node's address, it is in " + v.Self.Blocks[own].String() + " of node " + v.Self.Node.String(),
		})
	}
	return addrs
}

// blockOwners says which node each block is of.
type blockOwners struct {
	nodes  bart.Table[cluster.NodeID] // addresses of nodes
	blocks bart.Table[cluster.NodeID]
}

func newBlockOwners(self Self, peers []*record, claims map[netip.Prefix]cluster.NodeID) *blockOwners {
	o := &blockOwners{}
	for _, known := range peers {
		o.addNode(known.network.Node, known.network.Addresses)
	}
	o.addNode(self.Node, self.Addresses)
	for _, block := range self.Blocks {
		if owner, ok := claims[block]; !ok || owner == self.Node {
			o.blocks.Insert(block, self.Node)
		}
	}
	return o
}

func (o *blockOwners) addNode(id cluster.NodeID, addrs []netip.Addr) {
	for _, addr := range addrs {
		o.nodes.Insert(netip.PrefixFrom(addr, addr.BitLen()), id)
	}
}

// assign gives the block to the node, unless it is another's.
func (o *blockOwners) assign(block netip.Prefix, id cluster.NodeID) *Conflict {
	for of := range o.nodes.Subnets(block) {
		return &Conflict{Node: id, Block: block, Reason: "it has the address " + of.Addr().String() + " of a node"}
	}
	if !o.blocks.OverlapsPrefix(block) {
		o.blocks.Insert(block, id)
		return nil
	}
	if owner, ok := o.blocks.Get(block); ok && owner == id {
		return nil
	}
	c := &Conflict{Node: id, Block: block}
	for of, owner := range o.blocks.Supernets(block) {
		c.With, c.Reason = owner, "it is in "+of.String()
	}
	for of, owner := range o.blocks.Subnets(block) {
		c.With, c.Reason = owner, "it has "+of.String()
	}
	c.Reason += " of node " + c.With.String()
	if c.With == id { // of one record
		return nil
	}
	return c
}
