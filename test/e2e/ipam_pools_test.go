package e2e

import (
	"context"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/internal/testutil"
)

// codeConflict is Porin's own: the wanted address belongs to another pod.
const codeConflict = 101

// withPools returns a rig whose agent has these pools in its embedded store, besides "default", 10.64.0.0/24. Its
// runtime uses the configuration from the agent.
func withPools(t *testing.T, pools map[string]string, flags ...string) *rig {
	t.Helper()
	testutil.Root(t)
	node := testutil.NewNode(t)
	path := filepath.Join(node.Dir, "net.d", "05-porin.conflist")
	r := rigOn(t, node, append(poolFlags(path), flags...)...)
	for name, prefix := range pools {
		r.putPool(v1.PoolSpec{Name: name, Prefixes: []netip.Prefix{netip.MustParsePrefix(prefix)}})
	}
	r.cni.List = loadList(t, path)
	return r
}

func poolFlags(conflist string) []string {
	return []string{"--ipam-mode=multi-pool", "--ipam-default-pool=10.64.0.0/24", "--cni-conf-path=" + conflist}
}

func (r *rig) putPool(pool v1.PoolSpec) {
	r.Helper()
	if _, err := r.api.PutPool(r.Context(), pool); err != nil {
		r.Fatal(err)
	}
}

// restartWith starts another agent with other settings of pools.
func (r *rig) restartWith(flags ...string) {
	r.Helper()
	r.agent.Restart(r, append(poolFlags(filepath.Join(r.node.Dir, "net.d", "05-porin.conflist")), flags...)...)
}

// asking returns a container that is attached with CNI_ARGS, and with the annotation of its pod unless that is "".
func asking(t *testing.T, annotation string, args ...string) *testutil.Container {
	t.Helper()
	c := testutil.NewContainer(t)
	for _, arg := range args {
		key, value, _ := strings.Cut(arg, "=")
		c.Args = append(c.Args, [2]string{key, value})
	}
	if annotation != "" {
		c.Caps = map[string]any{"io.kubernetes.cri.pod-annotations": map[string]string{"app": "web", "porin.dev/pool": annotation}}
	}
	return c
}

// pooled returns the pools by address, as GET /v1/ipam says.
func (r *rig) pooled() map[netip.Addr]string {
	r.Helper()
	pools := map[netip.Addr]string{}
	for _, a := range r.usage().Allocations {
		pools[a.Address] = a.Pool
	}
	return pools
}

func TestPoolOfPod(t *testing.T) {
	prefixes := map[string]string{"blue": "10.65.0.0/24", "green": "10.66.0.0/24", "red": "10.67.0.0/24"}
	r := withPools(t, prefixes, "--ipam-namespace-pool=shop=red", "--ipam-node-pool=green")
	prefixes["default"] = "10.64.0.0/24"
	want := map[netip.Addr]string{}
	var first pod
	for name, c := range map[string]struct {
		*testutil.Container
		pool string
	}{
		"CNI_ARGS":              {asking(t, "", "PORIN_POOL=blue", "K8S_POD_NAMESPACE=shop", "K8S_POD_NAME=a"), "blue"},
		"annotation":            {asking(t, "blue", "K8S_POD_NAMESPACE=shop", "K8S_POD_NAME=b"), "blue"},
		"annotation to default": {asking(t, "default"), "default"},
		"both":                  {asking(t, "green", "PORIN_POOL=blue"), "blue"},
		"namespace":             {asking(t, "", "K8S_POD_NAMESPACE=shop", "K8S_POD_NAME=c"), "red"},
		"node":                  {asking(t, ""), "green"},
	} {
		p := r.add(c.Container)
		if !netip.MustParsePrefix(prefixes[c.pool]).Contains(p.ipv4) {
			t.Errorf("%s: address %s, want one of pool %s", name, p.ipv4, c.pool)
		}
		want[p.ipv4] = c.pool
		if name == "node" {
			first = p
		}
	}
	for _, c := range []*testutil.Container{asking(t, "", "PORIN_POOL=purple"), asking(t, "purple")} {
		r.refuses(c, `pool "purple": no such pool: the pools are: blue, default, green, red`)
	}
	r.restartWith("--ipam-node-pool=red")
	if got := r.pooled(); !maps.Equal(got, want) {
		t.Errorf("after a restart with other settings the pools are %v, want %v", got, want)
	}
	ep, err := r.api.Endpoint(context.Background(), "container-id:"+first.ID)
	if err != nil || ep.Pool != "green" {
		t.Errorf("the endpoint is of pool %q, %v", ep.Pool, err)
	}
	again, err := r.api.CreateEndpoint(context.Background(), ep.ContainerID, ep.IfName, first.File(), v1.EndpointRequest{Network: ep.Network, Pod: ep.Pod, NetNS: ep.NetNS})
	if err != nil || again.ID != ep.ID || again.Addresses != ep.Addresses || again.Pool != "green" {
		t.Errorf("the same request got %+v, %v, before %+v", again, err, ep)
	}
	r.agrees()
}

func TestPoolOfNetwork(t *testing.T) {
	r := withPools(t, map[string]string{"blue": "10.65.0.0/24"}, "--ipam-namespace-pool=shop=default")
	r.cni = r.node.NewCNI(t, testutil.CNIConfig{Bin: testutil.Build(t), Plugin: map[string]any{"pool": "blue"}})
	inShop := []string{"K8S_POD_NAMESPACE=shop", "K8S_POD_NAME=a"}
	if p := r.add(asking(t, "", inShop...)); r.pooled()[p.ipv4] != "blue" {
		t.Errorf("the network's pool is not before the namespace's: %s", p.ipv4)
	}
	if p := r.add(asking(t, "", append(inShop, "PORIN_POOL=default")...)); r.pooled()[p.ipv4] != "default" {
		t.Errorf("the pod's pool is not before the network's: %s", p.ipv4)
	}
}

func TestPoolReservation(t *testing.T) {
	r := withPools(t, map[string]string{"blue": "10.65.0.0/24"})
	reserved, err := r.api.Reserve(t.Context(), v1.ReservationRequest{Owner: "migration", Pool: "blue"})
	if err != nil {
		t.Fatal(err)
	}
	_, err = r.cni.Add(asking(t, "", "PORIN_RESERVATION=4UFXKSCNGRY3KIRXEYBGT6NQXC"))
	failedAs(t, err, codeConflict)
	failedWith(t, err, "no such reservation, or it is over")
	p := r.add(asking(t, "", "PORIN_RESERVATION="+reserved.Token))
	if p.ipv4 != reserved.Addresses.IPv4 {
		t.Errorf("it got %s, reserved was %s", p.ipv4, reserved.Addresses.IPv4)
	}
	r.restartWith()
	if got := r.pooled(); got[p.ipv4] != "blue" || len(got) != 1 {
		t.Errorf("after a restart the pools are %v", got)
	}
	r.cni.MustDel(t, p.Container)
	if got := r.pooled(); len(got) > 0 {
		t.Errorf("after its DEL there is %v", got)
	}
}

// refuses tells that an ADD of the container fails, and that trying again is of no use.
func (r *rig) refuses(c *testutil.Container, why string) {
	r.Helper()
	_, err := r.cni.Add(c)
	failedAs(r.T, err, codeInvalidConfig)
	failedWith(r.T, err, why)
}

func TestPoolNodeSelector(t *testing.T) {
	r := withPools(t, nil)
	r.putPool(v1.PoolSpec{
		Name: "gpu", Prefixes: []netip.Prefix{netip.MustParsePrefix("10.65.0.0/24")}, NodeSelector: map[string]string{"zone": "b"},
	})
	c := asking(t, "gpu")
	r.refuses(c, "pool gpu is not for this node: it is for nodes with zone=b")
	r.restartWith("--node-labels=zone=a")
	r.refuses(c, "pool gpu is not for this node: it is for nodes with zone=b")
	r.restartWith("--node-labels=accelerator=a100,zone=b")
	if p := r.add(c); r.pooled()[p.ipv4] != "gpu" {
		t.Errorf("a node with the label gave %s", p.ipv4)
	}
}

func TestPoolDisabled(t *testing.T) {
	r := withPools(t, nil)
	pool := v1.PoolSpec{Name: "blue", Prefixes: []netip.Prefix{netip.MustParsePrefix("10.65.0.0/24")}, Disabled: true}
	r.putPool(pool)
	c := asking(t, "", "PORIN_POOL=blue")
	r.refuses(c, "pool blue is disabled")
	if got := r.pooled(); len(got) > 0 {
		t.Errorf("what was refused left %v", got)
	}
	pool.Disabled = false
	r.putPool(pool)
	if p := r.add(c); r.pooled()[p.ipv4] != "blue" {
		t.Errorf("after it was enabled it gave %s", p.ipv4)
	}
	r.agrees()
}

func TestPoolsAfterBoot(t *testing.T) {
	r := withPools(t, map[string]string{"blue": "10.65.0.0/24"})
	before := r.add(asking(t, "blue"))
	r.cni.MustDel(t, before.Container)
	r.agent.Stop(t)
	if err := os.RemoveAll(r.node.StateDir); err != nil { // it is on a tmpfs
		t.Fatal(err)
	}
	r.agent.Start(t)
	pools, err := r.api.Pools(t.Context())
	if err != nil || len(pools) != 2 || pools[0].Name != "blue" {
		t.Fatalf("the pools are %+v, %v", pools, err)
	}
	if p := r.add(asking(t, "blue")); r.pooled()[p.ipv4] != "blue" {
		t.Errorf("after the boot blue gave %s", p.ipv4)
	}
	r.agrees()
}

func TestPoolsOtherMode(t *testing.T) {
	r := newRig(t)
	const want = "this agent runs --ipam-mode pod-cidr: pools are there in multi-pool, and nodes there and with --store kubernetes"
	for _, args := range [][]string{{"pool", "list"}, {"pool", "get", "a"}, {"pool", "delete", "a"}} {
		if got := r.cli(args...); got.code != 3 || !strings.Contains(got.err, want) {
			t.Errorf("porin %v: %+v", args, got)
		}
	}
}

// TestPoolExcludeAndNamespaces is a pool of one block, with an address that no pod gets, for the pods of one namespace.
func TestPoolExcludeAndNamespaces(t *testing.T) {
	r := withPools(t, nil)
	if out, err := r.porin("pool", "create", "blue", "--prefix=10.65.0.0/30", "--ipv4-block=30", "--exclude=10.65.0.0/31,10.65.0.3", "--allowed-namespace=shop"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	inShop, inWeb := []string{"K8S_POD_NAMESPACE=shop", "K8S_POD_NAME=a"}, []string{"K8S_POD_NAMESPACE=web", "K8S_POD_NAME=a"}
	r.refuses(asking(t, "blue", inWeb...), `pool blue: not for this namespace: it is for pods of shop, and not of "web"`)
	r.refuses(asking(t, "", append(inWeb, "PORIN_POOL=blue")...), "not for this namespace")
	r.refuses(asking(t, "blue", append(inShop, "IP=10.65.0.3")...), "excluded")
	if p := r.add(asking(t, "blue", inShop...)); p.ipv4.String() != "10.65.0.2" {
		t.Errorf("address %s, and only 10.65.0.2 is not excluded", p.ipv4)
	}
	if _, err := r.cni.Add(asking(t, "blue", inShop...)); err == nil || !strings.Contains(err.Error(), "no free address") {
		t.Errorf("a second pod: error %v", err)
	}
	if out, err := r.porin("pool", "set", "blue", "--exclude=10.66.0.0/24"); err == nil || !strings.Contains(out, "exclude 10.66.0.0/24: it is in no prefix of the pool") {
		t.Errorf("an exclusion outside of the pool: %v\n%s", err, out)
	}
	r.agrees()
}

// TestPoolOfSingleAddresses has a fixed address: a permanent reservation in a pool of single addresses without a
// quarantine.
func TestPoolOfSingleAddresses(t *testing.T) {
	t.Parallel()
	r := withPools(t, nil)
	if out, err := r.porin("pool", "create", "fixed", "--prefix=10.65.0.0/28", "--ipv4-block=32", "--quarantine=0s"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	db := decoded[v1.Reservation](r, "ipam", "reserve", "--permanent", "--owner=db", "--pool=fixed", "10.65.0.5")
	for range 2 {
		c := asking(t, "", "PORIN_RESERVATION="+db.Token)
		testutil.Eventually(t, func() error { // the connections of the pod before are deleted first
			_, err := r.cni.Add(c)
			return err
		})
		p := r.add(c) // the same again
		if p.ipv4 != db.Addresses.IPv4 {
			t.Errorf("the pod got %s, want %s", p.ipv4, db.Addresses.IPv4)
		}
		r.agent.Kill(t)
		r.agent.Start(t)
		r.agrees()
		r.cni.MustDel(t, p.Container)
		if out, err := r.porin("ipam", "list"); err != nil || !strings.Contains(out, "reserved permanently") {
			t.Errorf("after its DEL: %v\n%s", err, out)
		}
	}
	if other := r.add(asking(t, "fixed")); other.ipv4 == db.Addresses.IPv4 || r.pooled()[other.ipv4] != "fixed" {
		t.Errorf("a pod without the token got %s", other.ipv4)
	}
	r.agrees()
}
