package e2e

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/cells/store/storetest/etcdtest"
	"porin.dev/porin/internal/testutil"
)

// onEtcd returns a rig whose agent has its blocks from the etcd.
func onEtcd(t *testing.T, etcd *etcdtest.Server, flags ...string) *rig {
	t.Helper()
	cfg := etcd.Config()
	return newRig(t, append([]string{
		"--ipam-mode=multi-pool", "--ipam-pod-cidr=", "--store=etcd", "--store-etcd-endpoints=" + cfg.Etcd.Endpoints[0],
		"--ipam-default-pool=10.64.0.0/16,fd00:64::/64", "--ipam-quarantine=0s",
	}, flags...)...)
}

// TestMultiPoolTwoNodes has two nodes on one etcd. It stops, and they go on, over a restart of
// an agent too.
func TestMultiPoolTwoNodes(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t, nil)
	one, two := onEtcd(t, etcd, "--node-name=one"), onEtcd(t, etcd, "--node-name=two")
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
	if out, err := one.porin("pool", "delete", "default", "--timeout=20s"); err == nil {
		t.Errorf("a pool in use is deleted:\n%s", out)
	}
	etcd.Stop()
	one.pod()
	one.agent.Kill(t)
	one.agent.Start(t)
	a, b := one.pod(), one.pod()
	if err := testutil.Ping(a.Namespace, b.ipv4, time.Second); err != nil {
		t.Errorf("without etcd, after a restart: %v", err)
	}
	away := func(f v1.Finding) bool { return f.Kind == "store-unreachable" }
	if found := one.examined().Findings; !slices.ContainsFunc(found, away) {
		t.Errorf("without etcd the doctor finds %+v", found)
	}
	etcd.Start(t)
	one.agrees()
}
