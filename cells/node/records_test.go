package node

import (
	"net/netip"
	"slices"
	"testing"

	"porin.dev/porin/cells/cluster"
)

func prefixes(texts ...string) (all []netip.Prefix) {
	for _, text := range texts {
		all = append(all, netip.MustParsePrefix(text))
	}
	return all
}

func addresses(texts ...string) (all []netip.Addr) {
	for _, text := range texts {
		all = append(all, netip.MustParseAddr(text))
	}
	return all
}

// network is the record of a node in tests.
func network(name, addr string, blocks ...string) cluster.NodeNetwork {
	return cluster.NodeNetwork{
		Node: IDOfName(name), Agent: "a", Addresses: addresses(addr), Blocks: prefixes(blocks...), Routing: cluster.RoutingNative,
	}
}

func snapshot(all ...cluster.NodeNetwork) cluster.Change[cluster.NodeNetwork] {
	return cluster.Change[cluster.NodeNetwork]{Kind: cluster.Snapshot, All: all}
}

func put(n cluster.NodeNetwork) cluster.Change[cluster.NodeNetwork] {
	return cluster.Change[cluster.NodeNetwork]{Kind: cluster.Put, Name: n.Node.RecordName(), Item: n}
}

func deleted(n cluster.NodeNetwork) cluster.Change[cluster.NodeNetwork] {
	return cluster.Change[cluster.NodeNetwork]{Kind: cluster.Deleted, Name: n.Node.RecordName()}
}

var self = Self{Node: IDOfName("self"), Addresses: addresses("192.0.2.9"), Blocks: prefixes("10.9.0.0/24")}

// wantBlocks checks which blocks are whose.
func wantBlocks(t *testing.T, when string, r *records, want map[string][]netip.Prefix) View {
	t.Helper()
	v := r.view(self)
	if len(v.Peers) != len(want) {
		t.Errorf("%s: %d peers, want %d: %+v", when, len(v.Peers), len(want), v.Peers)
	}
	for _, p := range v.Peers {
		if !slices.Equal(p.Blocks, want[p.Node.Name]) {
			t.Errorf("%s: node %s has %v, want %v", when, p.Node.Name, p.Blocks, want[p.Node.Name])
		}
	}
	return v
}

// A record that the store has lost counts until an administrator deletes the node.
func TestRecordLost(t *testing.T) {
	r := newRecords()
	one, two := network("one", "192.0.2.1", "10.1.0.0/24"), network("two", "192.0.2.2", "10.2.0.0/24")
	all := map[string][]netip.Prefix{"one": one.Blocks, "two": two.Blocks}
	r.apply(snapshot(one, two))
	wantBlocks(t, "at first", r, all)
	r.apply(snapshot())
	if v := wantBlocks(t, "the store was wiped", r, all); !v.Peers[0].Missing || !v.Peers[1].Missing {
		t.Error("nothing says that the records are missing")
	}
	r.apply(put(one))
	if v := wantBlocks(t, "one is there again", r, all); v.Peers[0].Missing || !v.Peers[1].Missing {
		t.Errorf("missing %v and %v, want the second one", v.Peers[0].Missing, v.Peers[1].Missing)
	}
	r.apply(deleted(one))
	wantBlocks(t, "a record is gone", r, all)
	r.setRemoved([]string{two.Node.Key, one.Node.Key})
	wantBlocks(t, "both nodes were deleted", r, nil)
	r.apply(put(one))
	wantBlocks(t, "a record of a deleted node", r, nil)
	r.setRemoved(nil)
	wantBlocks(t, "the node is back", r, map[string][]netip.Prefix{"one": one.Blocks})
}

// A block has one node, and no record takes over what is another's.
func TestRecordsDisagree(t *testing.T) {
	one, two := network("one", "192.0.2.1", "10.1.0.0/24"), network("two", "192.0.2.2", "10.2.0.0/24")
	for name, hostile := range map[string]cluster.NodeNetwork{
		"another's block":            network("bad", "192.0.2.3", "10.1.0.0/24"),
		"part of another's block":    network("bad", "192.0.2.3", "10.1.0.128/25"),
		"more than another's block":  network("bad", "192.0.2.3", "10.0.0.0/14"),
		"this node's block":          network("bad", "192.0.2.3", "10.9.0.0/24"),
		"part of this node's block":  network("bad", "192.0.2.3", "10.9.0.7/32"),
		"another node's address":     network("bad", "192.0.2.3", "192.0.2.1/32"),
		"this node's address":        network("bad", "192.0.2.3", "192.0.2.8/31"),
		"its own address in a block": network("bad", "10.7.0.3", "10.7.0.0/24"),
	} {
		r := newRecords()
		r.apply(snapshot(one, two))
		r.apply(put(hostile))
		v := wantBlocks(t, name, r, map[string][]netip.Prefix{"one": one.Blocks, "two": two.Blocks, "bad": nil})
		if len(v.Conflicts) != 1 || v.Conflicts[0].Node.Name != "bad" || v.Conflicts[0].Reason == "" {
			t.Errorf("%s: conflicts %+v, want one", name, v.Conflicts)
		}
	}
}

// A record whose node says to have addresses of others is believed in everything else.
func TestRecordHasAddressesOfOthers(t *testing.T) {
	r := newRecords()
	one := network("one", "10.9.0.7", "10.1.0.0/24")
	one.Health, one.Tunnel = addresses("10.1.0.5", "2001:db8::7"), addresses("10.2.0.5")
	one.Addresses = append(one.Addresses, addresses("2001:db8::1")...)
	r.apply(snapshot(one))
	v := wantBlocks(t, "the address of a pod", r, map[string][]netip.Prefix{"one": one.Blocks})
	if want := addresses("2001:db8::1"); !slices.Equal(v.Peers[0].Addresses, want) {
		t.Errorf("addresses %v, want %v", v.Peers[0].Addresses, want)
	}
	if p := v.Peers[0]; !slices.Equal(p.Health, addresses("10.1.0.5")) || p.Tunnel != nil {
		t.Errorf("health %v and tunnel %v, want what is in its block", p.Health, p.Tunnel)
	}
	if len(v.Conflicts) != 1 || v.Conflicts[0].Node != one.Node || v.Conflicts[0].With != self.Node {
		t.Errorf("conflicts %+v, want one with this node", v.Conflicts)
	}
}

// The owner of a block's claim has the block. A missing record gives way.
func TestRecordsClaims(t *testing.T) {
	one, two := network("one", "192.0.2.1", "10.1.0.0/24"), network("two", "192.0.2.2", "10.1.0.0/24", "10.2.0.0/24")
	r := newRecords()
	r.apply(snapshot(one))
	r.apply(put(two))
	wantBlocks(t, "who was first", r, map[string][]netip.Prefix{"one": one.Blocks, "two": prefixes("10.2.0.0/24")})
	r.claims[one.Blocks[0]] = two.Node
	wantBlocks(t, "who has the claim", r, map[string][]netip.Prefix{"one": nil, "two": two.Blocks})
	r.claims[one.Blocks[0]] = one.Node
	r.apply(deleted(one))
	clear(r.claims)
	wantBlocks(t, "whose record is there", r, map[string][]netip.Prefix{"one": nil, "two": two.Blocks})
}
