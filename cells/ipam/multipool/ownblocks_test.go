package multipool

import (
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"porin.dev/porin/cells/cluster"
	"porin.dev/porin/cells/ipam/allocator"
)

// newOwnBlocks returns the blocks of a node that has one, as of the checkpoint.
func newOwnBlocks(t *testing.T, state blockState, rebooted bool) (*ownBlocks, OwnBlock) {
	a, log := allocator.New(nil), slog.New(slog.DiscardHandler)
	pools := newKnownPools(nil)
	p := cluster.Pool{Name: "default", UID: "u", State: cluster.PoolAccepted, Prefixes: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/24")}, IPv4BlockBits: 28}
	pools.apply(cluster.Change[cluster.Pool]{Kind: cluster.Snapshot, All: []cluster.Pool{p}})
	b := OwnBlock{CIDR: netip.MustParsePrefix("10.0.0.0/28"), Pool: p.Name, PoolUID: p.UID, Claim: "c", State: state}
	ck := &checkpoint{checkpointFields: checkpointFields{Blocks: []OwnBlock{b}}, dir: t.TempDir(), rebooted: rebooted}
	all := &common{log: log, warnings: &warnings{log, map[string]string{}}, checkpoint: ck, addresses: addresses{a.Pools(), a, 0}, pools: pools}
	all.kubernetes = &kubernetesNode{common: all}
	o := &ownBlocks{all}
	o.addresses.configure(p)
	return o, b
}

// TestOwnBlocksResume counts what can be given out before the store was asked.
func TestOwnBlocksResume(t *testing.T) {
	for name, c := range map[string]struct {
		state    blockState
		rebooted bool
		want     int64
	}{
		"restart": {blockOwned, false, 16}, "boot": {blockOwned, true, 0}, "conflict": {blockConflict, false, 0},
		"claiming": {blockClaiming, false, 0}, "released": {blockReleased, false, 0},
	} {
		o, b := newOwnBlocks(t, c.state, c.rebooted)
		o.resume()
		if got := o.addresses.free(b.Pool, cluster.IPv4, netip.Prefix{}); got != c.want {
			t.Errorf("%s: %d free addresses, want %d", name, got, c.want)
		}
	}
}

// TestOwnBlocksRelease saves that a block is released before anything else.
func TestOwnBlocksRelease(t *testing.T) {
	o, b := newOwnBlocks(t, blockOwned, false)
	o.resume()
	if err := o.release(b.Pool, b.CIDR); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(o.checkpoint.dir, checkpointFile))
	if err != nil || !strings.Contains(string(text), string(blockReleased)) {
		t.Errorf("the checkpoint is %s, error %v", text, err)
	}
	if o.addresses.free(b.Pool, cluster.IPv4, netip.Prefix{}) != 0 || o.checkpoint.block(b.CIDR).State != blockReleased {
		t.Errorf("released: %+v", o.checkpoint.Blocks)
	}
}

// TestOwnBlocksConflict gives out nothing of a block that another node owns, until it is this node's again.
func TestOwnBlocksConflict(t *testing.T) {
	o, b := newOwnBlocks(t, blockOwned, false)
	o.resume()
	o.drain(b)
	if err := o.setConflict(b, "two/key"); err != nil {
		t.Fatal(err)
	}
	if got := o.otherOwners(); !o.hasUnownedBlocks() || len(got) != 1 || got[0] != "two/key" {
		t.Errorf("other owners %v", got)
	}
	if err := o.setOwned(*o.checkpoint.block(b.CIDR)); err != nil {
		t.Fatal(err)
	}
	if o.hasUnownedBlocks() || len(o.otherOwners()) > 0 || o.addresses.free(b.Pool, cluster.IPv4, netip.Prefix{}) != 16 {
		t.Errorf("owned again: %+v", o.checkpoint.Blocks)
	}
}
