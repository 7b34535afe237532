package e2e

import (
	"os"
	"strings"
	"testing"
)

// TestHeldAddressesOfPools starts an agent without its ledger beside pods of a pool. The pool of their addresses is
// unknown, and all works as if it were known: the block around them counts them, keeps its pool, and lets them rest
// when they are released.
func TestHeldAddressesOfPools(t *testing.T) {
	t.Parallel()
	r := withPools(t, map[string]string{"blue": "10.65.0.0/24"})
	var pods []pod
	for range 5 {
		pods = append(pods, r.add(asking(t, "blue", "K8S_POD_NAMESPACE=shop", "K8S_POD_NAME="+string(rune('a'+len(pods))))))
	}
	r.agent.Kill(t)
	if err := os.RemoveAll(r.node.StateDir); err != nil {
		t.Fatal(err)
	}
	r.agent.Start(t)
	if held := r.status().Held.Count; held != len(pods) {
		t.Fatalf("%d attachments are held, want %d", held, len(pods))
	}
	for _, p := range pods {
		if pool, ok := r.pooled()[p.ipv4]; !ok || pool != "" {
			t.Errorf("%s is of pool %q, %v, want none", p.ipv4, pool, ok)
		}
		if done := r.cli("ipam", "list"); !hasRow(done.out, p.ipv4.String(), "-", "-", "eth0", p.ID[:12]) {
			t.Errorf("porin ipam list: %+v", done)
		}
	}
	used, resting := r.usesOf("blue")
	if used != 5 || resting != 0 {
		t.Errorf("of blue %d are in use and %d rest, want 5 and none", used, resting)
	}
	if done := r.cli("pool", "delete", "blue"); done.code == 0 {
		t.Errorf("a pool with held endpoints is deleted: %+v", done)
	}
	another := r.add(asking(t, "blue", "K8S_POD_NAMESPACE=shop", "K8S_POD_NAME=z"))
	if pool := r.pooled()[another.ipv4]; pool != "blue" {
		t.Errorf("a new pod has %s of pool %q", another.ipv4, pool)
	}
	if done := r.cli("ipam", "list"); !hasRow(done.out, another.ipv4.String(), "blue", "shop/z", "eth0", another.ID[:12]) {
		t.Errorf("porin ipam list: %+v", done)
	}
	for _, p := range pods {
		r.cni.MustDel(t, p.Container)
	}
	if used, resting := r.usesOf("blue"); used != 1 || resting != 5 || len(r.pooled()) != 1 {
		t.Errorf("after the DELs %d of blue are in use and %d rest, and there is %v", used, resting, r.pooled())
	}
	r.agrees()
}

// hasRow reports whether a table has a line that begins with these cells.
func hasRow(table string, cells ...string) bool {
	for line := range strings.Lines(table) {
		if fields := strings.Fields(line); len(fields) >= len(cells) && strings.Join(fields[:len(cells)], " ") == strings.Join(cells, " ") {
			return true
		}
	}
	return false
}

// usesOf counts what of a pool is in use on the node, and what rests.
func (r *rig) usesOf(pool string) (used, resting int64) {
	r.Helper()
	for _, p := range r.usage().Pools {
		for _, one := range p.Ranges {
			if p.Name == pool {
				used, resting = used+one.Used, resting+one.Quarantined
			}
		}
	}
	return used, resting
}
