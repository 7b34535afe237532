package e2e

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"testing"

	"porin.dev/porin/internal/testutil"
)

func TestAttachAndDetach(t *testing.T) {
	r := newRig(t)
	a, b := r.pod(), r.pod()
	for _, to := range []netip.Addr{b.ipv4, b.ipv6, r.node.IPv4, r.node.IPv6} {
		if err := testutil.Ping(a.Namespace, to, reach); err != nil {
			t.Error(err)
		}
	}
	for _, addr := range []netip.Addr{b.ipv4, b.ipv6} {
		server := b.Echo(t, addr)
		for name, from := range map[string]*testutil.Namespace{"the other container": a.Namespace, "the node": r.node.Namespace} {
			if err := testutil.RoundTrip(from, server, reach); err != nil {
				t.Errorf("TCP from %s to %s: %v", name, addr, err)
			}
		}
		if err := testutil.Ping(r.node.Namespace, addr, reach); err != nil {
			t.Error(err)
		}
	}
	for _, addr := range []netip.Addr{r.node.IPv4, r.node.IPv6} {
		if err := testutil.RoundTrip(a.Namespace, r.node.Echo(t, addr), reach); err != nil {
			t.Errorf("TCP to the node at %s: %v", addr, err)
		}
	}
	if err := r.cni.Check(a.Container); err != nil {
		t.Errorf("CHECK: %v", err)
	}
	r.cni.MustDel(t, a.Container)
	r.cni.MustDel(t, b.Container)
	r.nothingLeft()
}

func TestTrafficCounters(t *testing.T) {
	r := newRig(t)
	a, b := r.pod(), r.pod()
	if err := testutil.RoundTrip(a.Namespace, b.Echo(t, b.ipv4), reach); err != nil {
		t.Fatal(err)
	}
	for _, p := range []pod{a, b} {
		ep, err := r.api.Endpoint(context.Background(), "container-id:"+p.ID)
		if err != nil {
			t.Fatal(err)
		}
		// 10,000 bytes there and back, in segments that may be joined
		if tr := ep.Traffic; tr == nil || tr.FromPod.Packets < 4 || tr.ToPod.Packets < 4 || tr.FromPod.Bytes < 10_000 || tr.ToPod.Bytes < 10_000 {
			t.Errorf("traffic of %.12s: %+v", p.ID, tr)
		}
	}
}

func TestCNIVersions(t *testing.T) {
	r := newRig(t)
	for _, version := range []string{"0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"} {
		t.Run(version, func(t *testing.T) {
			cni := r.node.NewCNI(t, testutil.CNIConfig{Bin: testutil.Build(t), Version: version})
			c := testutil.NewContainer(t)
			result, err := cni.Add(c)
			if err != nil {
				t.Fatal(err)
			}
			if result.Version() != version {
				t.Errorf("the result has version %s", result.Version())
			}
			if err := testutil.Ping(c.Namespace, r.node.IPv4, reach); err != nil {
				t.Error(err)
			}
			if err := cni.Del(c); err != nil {
				t.Error(err)
			}
		})
	}
	r.nothingLeft()
}

func TestTwoAttachments(t *testing.T) {
	r := newRig(t)
	first := r.pod()
	second := *first.Container
	second.IfName = "net1"
	other := r.add(&second)
	if all := r.endpoints(); len(all) != 2 || all[0].ContainerID != all[1].ContainerID || other.ipv4 == first.ipv4 {
		t.Fatalf("endpoints: %+v", all)
	}
	r.cni.MustDel(t, &second)
	if err := testutil.Ping(first.Namespace, r.node.IPv4, reach); err != nil {
		t.Errorf("after the DEL of net1, eth0: %v", err)
	}
	r.add(&second)
	if out, err := r.porin("endpoint", "delete", "container-id:"+first.ID); err != nil {
		t.Errorf("porin endpoint delete: %v\n%s", err, out)
	}
	r.nothingLeft()
}

func TestAttachConcurrently(t *testing.T) {
	r := newRig(t)
	const n = 64
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range n / 8 {
				c := testutil.NewContainer(t)
				if _, err := r.cni.Add(c); err != nil {
					t.Errorf("ADD: %v", err)
					return
				}
				if err := testutil.Ping(c.Namespace, r.node.IPv6, reach); err != nil {
					t.Error(err)
				}
				if err := r.cni.Del(c); err != nil {
					t.Errorf("DEL: %v", err)
				}
			}
		})
	}
	wg.Wait()
	r.nothingLeft()
}

func TestTwoAgents(t *testing.T) {
	testutil.Root(t)
	fabric := testutil.NewFabric(t)
	var rigs []*rig
	for range 3 {
		rigs = append(rigs, rigOn(t, fabric.NewNode(t)))
	}
	seen := map[string]bool{}
	for _, r := range rigs {
		p := r.pod()
		if seen[p.ipv4.String()] {
			t.Errorf("%s was given out twice", p.ipv4)
		}
		seen[p.ipv4.String()] = true
		if err := testutil.Ping(p.Namespace, r.node.IPv4, reach); err != nil {
			t.Error(err)
		}
		if n := len(r.endpoints()); n != 1 {
			t.Errorf("%s has %d endpoints", r.node.Name, n)
		}
	}
}

func TestRequestedAddress(t *testing.T) {
	r := newRig(t)
	ask := func(address string) *testutil.Container {
		c := testutil.NewContainer(t)
		c.Args = [][2]string{{"IgnoreUnknown", "1"}, {"IP", address}}
		return c
	}
	want := r.node.PodIPv4.Addr().As4()
	want[3] = 77
	addr := netip.AddrFrom4(want)
	if got := r.add(ask(addr.String())); got.ipv4 != addr {
		t.Errorf("got %s, want %s", got.ipv4, addr)
	}
	refused(t, r, ask(addr.String()), "in use")
	refused(t, r, ask("192.168.55.5"), "in no prefix of pool default")
	refused(t, r, ask("nonsense"), "nonsense")
}

// refused checks that ADD fails with the words and leaves nothing in the container.
func refused(t *testing.T, r *rig, c *testutil.Container, words string) {
	t.Helper()
	before := r.endpoints()
	_, err := r.cni.Add(c)
	failedWith(t, err, words)
	if names := c.LinkNames(t); len(names) != 1 {
		t.Errorf("links in the container: %v", names)
	}
	if after := r.endpoints(); fmt.Sprint(ids(before)) != fmt.Sprint(ids(after)) {
		t.Errorf("endpoints: %v, before: %v", ids(after), ids(before))
	}
}
