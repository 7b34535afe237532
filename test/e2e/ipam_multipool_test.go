package e2e

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/internal/testutil"
)

// TestMultiPoolTwoNodes has two nodes of one API server. It stops, and they go on, over a restart of
// an agent too.
func TestMultiPoolTwoNodes(t *testing.T) {
	t.Parallel()
	api := newAPI(t)
	one, two := api.newRig("--node-name=one"), api.newRig("--node-name=two")
	pool := netip.MustParsePrefix("10.64.0.0/16")
	blocks := map[netip.Prefix]bool{}
	for _, r := range []*rig{one, two} {
		p := r.pod()
		if !pool.Contains(p.ipv4) || !p.ipv6.IsValid() {
			t.Errorf("addresses %s and %s", p.ipv4, p.ipv6)
		}
		blocks[netip.PrefixFrom(p.ipv4, 26).Masked()] = true
	}
	if len(blocks) != 2 {
		t.Errorf("both nodes have addresses of %v", blocks)
	}
	if out, err := one.porin("pool", "list"); err != nil || !strings.Contains(out, "10.64.0.0/16 fd00:64::/64") {
		t.Errorf("pool list: %v\n%s", err, out)
	}
	if out := api.asAdmin("pool", "delete", "default", "--timeout=20s"); out.code == 0 {
		t.Errorf("a pool in use is deleted: %+v", out)
	}
	one.server.stop()
	one.pod()
	one.agent.Kill(t)
	one.agent.Start(t)
	a, b := one.pod(), one.pod()
	if err := testutil.Ping(a.Namespace, b.ipv4, time.Second); err != nil {
		t.Errorf("without the API server, after a restart: %v", err)
	}
	away := func(f v1.Finding) bool { return f.Kind == "api-server-unreachable" }
	if found := one.examined().Findings; !slices.ContainsFunc(found, away) {
		t.Errorf("without the API server the doctor finds %+v", found)
	}
	one.server.listen()
	one.agrees()
}
