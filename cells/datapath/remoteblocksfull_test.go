package datapath_test

import (
	"net/netip"
	"testing"
)

// TestSetRemoteBlocksFull: blocks that no node has any more make room for others.
func TestSetRemoteBlocksFull(t *testing.T) {
	n := newNode(t)
	many := make([]netip.Prefix, 131072)
	for i := range many {
		many[i] = netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), 32)
	}
	must(t, n.datapath.SetRemoteBlocks(many))
	if err := n.datapath.SetRemoteBlocks(append(many, remoteBlocks...)); err == nil {
		t.Error("a map that is full took another block")
	}
	must(t, n.datapath.SetRemoteBlocks(remoteBlocks))
	n.wantBlocks(t, remoteBlocks...)
}
