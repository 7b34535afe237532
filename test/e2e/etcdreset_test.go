package e2e

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"porin.dev/porin/cells/cluster"
	"porin.dev/porin/cells/cluster/onstore"
	"porin.dev/porin/cells/store"
	"porin.dev/porin/cells/store/storetest"
	"porin.dev/porin/cells/store/storetest/etcdtest"
	"porin.dev/porin/internal/testutil"
)

// TestEtcdBeginsAnew wipes etcd: pods keep their network, nodes claim again what they have in use, an administrator ends the recovery, and nodes make the
// pool again, and go on.
func TestEtcdBeginsAnew(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t, nil)
	one, two := onEtcd(t, etcd, "--node-name=one"), onEtcd(t, etcd, "--node-name=two")
	a, b, c := one.pod(), one.pod(), two.pod()
	etcd.Wipe(t)
	s := storetest.Open(t, one.storeConfig(etcd))
	began := time.Now()
	for name, p := range map[string]pod{"one": a, "two": c} {
		testutil.Eventually(t, func() error { return owns(s, name, p.ipv4, p.ipv6) })
	}
	t.Logf("claimed again after %s", time.Since(began).Round(time.Millisecond))
	if err := testutil.Ping(a.Namespace, b.ipv4, reach); err != nil {
		t.Error(err)
	}
	testutil.Eventually(t, func() error { // the agents have begun a recovery, which an administrator ends when both have written their blocks
		if done := one.cli("ipam", "recover", "--end"); done.code != 0 {
			return fmt.Errorf("porin ipam recover --end: %+v", done)
		}
		return nil
	})
	given := map[netip.Addr]bool{a.ipv4: true, b.ipv4: true, c.ipv4: true}
	three := onEtcd(t, etcd, "--node-name=three")
	for _, r := range []*rig{one, two, three} {
		ctr := testutil.NewContainer(r)
		testutil.Eventually(t, func() error { // the agents create the default pool again after the recovery
			_, err := r.cni.Add(ctr)
			return err
		})
		p := r.add(ctr) // the same answer
		if given[p.ipv4] {
			t.Errorf("%s is given out twice", p.ipv4)
		}
		given[p.ipv4] = true
	}
	for _, r := range []*rig{one, two, three} {
		testutil.Eventually(t, func() error {
			if answer := r.checked(); len(answer.Findings)+len(answer.Errors) > 0 {
				return fmt.Errorf("%+v %v", answer.Findings, answer.Errors)
			}
			return nil
		})
	}
}

// owns is nil when a node owns the blocks of addresses for the store.
func owns(s store.Service, node string, addrs ...netip.Addr) error {
	var owned []cluster.Block
	for b, err := range onstore.New(s).Blocks.All(context.Background(), cluster.BlockFilter{}) {
		if err != nil {
			return err
		}
		if b.Owner.Name == node {
			owned = append(owned, b)
		}
	}
	for _, addr := range addrs {
		if !slices.ContainsFunc(owned, func(b cluster.Block) bool { return b.CIDR.Contains(addr) }) {
			return fmt.Errorf("%s is not of %s, which has %v", addr, node, owned)
		}
	}
	return nil
}
