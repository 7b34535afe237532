package e2e

import (
	"errors"
	"maps"
	"net/netip"
	"slices"
	"testing"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/internal/testutil"
)

// As Multus attaches a second network: of another pool, with the same agent.
func TestTwoNetworks(t *testing.T) {
	testutil.Root(t)
	for _, goes := range []string{"eth0", "net1"} {
		t.Run("DEL of "+goes, func(t *testing.T) {
			r := rigOn(t, testutil.NewNode(t), "--ipam-mode=multi-pool", "--ipam-pod-cidr=",
				"--ipam-default-pool=10.64.0.0/24,fd00:64::/112", "--ipam-quarantine=0s")
			r.putPool(v1.PoolSpec{Name: "blue", Prefixes: []netip.Prefix{netip.MustParsePrefix("10.65.0.0/24"), netip.MustParsePrefix("fd00:65::/112")}})
			blue := r.node.NewCNI(t, testutil.CNIConfig{Bin: testutil.Build(t), Network: "blue", Plugin: map[string]any{"pool": "blue"}})

			first := r.pod()
			second := *first.Container
			second.IfName = "net1"
			blue.MustAdd(t, &second)
			r.answersByEach(first.ID, "eth0", "net1")
			if err := errors.Join(r.cni.Check(first.Container), blue.Check(&second)); err != nil {
				t.Error(err)
			}
			if goes == "eth0" {
				r.cni.MustDel(t, first.Container)
				r.answersByEach(first.ID, "net1")
				blue.MustDel(t, &second)
			} else {
				blue.MustDel(t, &second)
				r.answersByEach(first.ID, "eth0")
				if err := testutil.Ping(first.Namespace, r.node.IPv6, reach); err != nil {
					t.Error(err)
				}
				r.cni.MustDel(t, first.Container)
			}
			r.nothingLeft()
		})
	}
}

// answersByEach sends requests to each address of the container, which has these interfaces, and wants each answer by
// the interface that has the address.
func (r *rig) answersByEach(container string, interfaces ...string) {
	r.Helper()
	sent := func() map[string]uint64 {
		packets := map[string]uint64{}
		for _, name := range interfaces {
			ep, err := r.api.Endpoint(r.Context(), "cni-attachment-id:"+container+":"+name)
			if err != nil || ep.Traffic == nil {
				r.Fatalf("%s: endpoint %+v, %v", name, ep, err)
			}
			packets[name] = ep.Traffic.FromPod.Packets
		}
		return packets
	}
	for _, name := range interfaces {
		ep, err := r.api.Endpoint(r.Context(), "cni-attachment-id:"+container+":"+name)
		if err != nil {
			r.Fatal(err)
		}
		if !ep.Addresses.IPv4.IsValid() || !ep.Addresses.IPv6.IsValid() {
			r.Fatalf("%s has %v and %v, want both families", name, ep.Addresses.IPv4, ep.Addresses.IPv6)
		}
		for _, addr := range []netip.Addr{ep.Addresses.IPv4, ep.Addresses.IPv6} {
			before := sent()
			for range 5 {
				if err := testutil.Ping(r.node.Namespace, addr, reach); err != nil {
					r.Errorf("%s: %v", name, err)
				}
			}
			for other, packets := range sent() {
				if other == name && packets-before[other] < 5 || other != name && packets-before[other] >= 5 {
					r.Errorf("%d packets left by %s while %s of %s was asked", packets-before[other], other, addr, name)
				}
			}
		}
	}
}

// gVisor takes the addresses off eth0 and serves them itself. Putting them back would cut the pod off.
func TestContainerChangesInterface(t *testing.T) {
	r := newRig(t)
	p := r.pod()
	handle, eth0 := p.Netlink(t), p.Link(t, "eth0")
	addrs, err := p.Addrs(eth0.Attrs().Index)
	if err != nil {
		t.Fatal(err)
	}
	for _, addr := range addrs {
		if addr.IP.IsGlobalUnicast() {
			if err := handle.AddrDel(eth0, &addr); err != nil {
				t.Fatal(err)
			}
		}
	}
	inside := func() []string {
		r.Helper()
		addrs, err := p.Addrs(eth0.Attrs().Index)
		if err != nil {
			t.Fatal(err)
		}
		list := map[string]bool{}
		for _, addr := range addrs {
			list[addr.IPNet.String()] = true
		}
		return slices.Sorted(maps.Keys(list))
	}
	moved := inside()
	r.agent.Restart(t)
	if got := inside(); !slices.Equal(got, moved) {
		t.Errorf("after a restart eth0 has %v, want %v as the container left it", got, moved)
	}
	if out, err := r.porin("doctor"); err != nil {
		t.Errorf("doctor: %v\n%s", err, out)
	}
	if err := r.cni.Check(p.Container); err == nil {
		t.Error("CHECK finds nothing, want what is missing inside")
	}
	if got := inside(); !slices.Equal(got, moved) {
		t.Errorf("after CHECK eth0 has %v, want %v", got, moved)
	}
	r.cni.MustDel(t, p.Container)
	r.nothingLeft()
}
