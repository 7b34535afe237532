package datapath_test

import (
	"slices"
	"testing"

	"github.com/vishvananda/netlink"

	"porin.dev/porin/bpf"
	"porin.dev/porin/cells/datapath"
	"porin.dev/porin/internal/testutil"
)

// TestDetachUplinks takes an agent's program off by either hook, and leaves other programs.
func TestDetachUplinks(t *testing.T) {
	withHooks(t, func(t *testing.T, n *node) {
		a, b := n.addUplink(t, "eth0"), n.addUplink(t, "eth1")
		n.require(t, true)
		must(t, n.Netlink(t).QdiscReplace(testutil.Clsact(a)))
		must(t, n.Netlink(t).FilterReplace(testutil.Filter(a, netlink.HANDLE_MIN_EGRESS, 1, 7, n.pinnedToUplink(t).FD())))
		must(t, n.Do(func() error {
			clsact := !n.datapath.UsesTCX()
			detached, err := datapath.DetachUplinks()
			if want := []datapath.Detached{{bpf.ToUplink, "eth0", clsact}, {bpf.ToUplink, "eth1", clsact}}; !slices.Equal(detached, want) {
				t.Errorf("detached %v, want %v", detached, want)
			}
			return err
		}))
		n.wantEgress(t, a, n.toUplink(t)) // the filter of another program
		n.wantEgress(t, b)
	})
}
