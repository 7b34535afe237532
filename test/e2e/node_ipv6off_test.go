package e2e

import (
	"errors"
	"net/netip"
	"testing"

	"porin.dev/porin/internal/testutil"
)

// TestIPv6OffOnNode: a node on which a script turns IPv6 off, as some lists of hardening ask, goes on to attach
// containers of both families. Its containers keep what they have over a restart.
func TestIPv6OffOnNode(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	reach := func(when string, from, to pod) {
		t.Helper()
		for _, addr := range []netip.Addr{to.ipv4, to.ipv6} {
			if err := testutil.Ping(from.Namespace, addr, reach); err != nil {
				t.Errorf("%s: %v", when, err)
			}
		}
	}
	before, other := r.pod(), r.pod()
	r.node.Sysctl(t, "net/ipv6/conf/all/disable_ipv6", "1")
	after := r.pod()
	reach("attached afterwards", after, before)
	r.agent.Restart(t)
	reach("after a restart", before, other)
	reach("after a restart", other, after)
	err := r.cni.Check(before.Container)
	if err = errors.Join(err, r.cni.Check(after.Container)); err != nil {
		t.Errorf("CHECK: %v", err)
	}
}
