package e2e

import (
	"errors"
	"maps"
	"net/netip"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"porin.dev/porin/bpf"
	"porin.dev/porin/bpf/abi"
	"porin.dev/porin/internal/testutil"
)

// breakage takes something from an endpoint.
type breakage struct {
	name  string
	do    func(r *rig, p pod, host *netlink.LinkAttrs) error
	kinds map[string]int // that the doctor finds about it
}

// breakages are what the kernel does not tell of.
var breakages = []breakage{
	{"no map entries", func(r *rig, p pod, host *netlink.LinkAttrs) error {
		return errors.Join(r.pinned(bpf.Endpoints).Delete(abi.AddrOf(p.ipv4)), r.pinned(bpf.Links).Delete(uint32(host.Index)))
	}, map[string]int{"map-entry-missing": 2}},
	{"another map entry", func(r *rig, p pod, host *netlink.LinkAttrs) error {
		return r.pinned(bpf.Endpoints).Put(abi.AddrOf(p.ipv6), abi.Endpoint{Ifindex: uint32(host.Index), Id: 999})
	}, map[string]int{"map-entry-differs": 1}},
}

// told are what the kernel tells of.
var told = []breakage{
	{name: "no filters", do: func(r *rig, _ pod, host *netlink.LinkAttrs) error {
		return r.node.Netlink(r).QdiscDel(testutil.Clsact(host.Index))
	}},
	{name: "no route", do: func(r *rig, p pod, host *netlink.LinkAttrs) error {
		return r.node.Netlink(r).RouteDel(testutil.HostRoute(host.Index, p.ipv6, 0))
	}},
	{name: "a route that leads elsewhere", do: func(r *rig, p pod, _ *netlink.LinkAttrs) error {
		return r.node.Netlink(r).RouteReplace(testutil.HostRoute(1, p.ipv4, 0))
	}},
	{name: "no neighbour", do: func(r *rig, p pod, host *netlink.LinkAttrs) error {
		return r.node.Netlink(r).NeighDel(testutil.PermanentNeighbour(host.Index, p.ipv4, nil))
	}},
	{name: "the host end is down", do: func(r *rig, _ pod, host *netlink.LinkAttrs) error {
		return r.node.Netlink(r).LinkSetDown(testutil.LinkAt(host.Index))
	}},
	{name: "the host end was down", do: func(r *rig, _ pod, host *netlink.LinkAttrs) error { // the kernel does not tell of its routes
		return errors.Join(r.node.Netlink(r).LinkSetDown(testutil.LinkAt(host.Index)), r.node.Netlink(r).LinkSetUp(testutil.LinkAt(host.Index)))
	}},
}

// TestTakenComesBack: what another program takes is back within a second, without the doctor.
func TestTakenComesBack(t *testing.T) {
	t.Parallel()
	r := newRig(t, "--doctor-interval=0s")
	for _, b := range told {
		p := r.pod()
		began := time.Now()
		if err := b.do(r, p, r.host(p.Container)); err != nil {
			t.Fatalf("%s: %v", b.name, err)
		}
		if err := testutil.Poll(time.Second, func() error { return r.cni.Check(p.Container) }); err != nil {
			t.Errorf("%s: CHECK after a second: %v", b.name, err)
		}
		t.Logf("%s: CHECK succeeds after %v", b.name, time.Since(began))
		r.reached(b.name, p)
		r.cni.MustDel(t, p.Container)
	}
	r.nothingLeft()
}

// reached checks that the node and the container reach each other.
func (r *rig) reached(what string, p pod) {
	r.Helper()
	for _, addr := range []netip.Addr{p.ipv4, p.ipv6} {
		if err := testutil.RoundTrip(r.node.Namespace, p.Echo(r, addr), reach); err != nil {
			r.Errorf("%s: %v", what, err)
		}
	}
}

func TestDoctorRepairsEndpoint(t *testing.T) {
	t.Parallel()
	r := newRig(t, "--doctor-interval=0s", "--metrics-address="+metricsAddress)
	var pods []pod
	for _, b := range breakages {
		p := r.pod()
		if err := b.do(r, p, r.host(p.Container)); err != nil {
			t.Fatalf("%s: %v", b.name, err)
		}
		pods = append(pods, p)
	}
	sound := r.pod()
	for i, b := range breakages {
		for kind := range b.kinds {
			failedWith(t, r.cni.Check(pods[i].Container), kind+": ")
		}
	}
	found := kindsOf(r.examined().Findings)
	for i, b := range breakages {
		if got := found[pods[i].ID+":eth0"]; !maps.Equal(got, b.kinds) {
			t.Errorf("%s: found %v, want %v", b.name, got, b.kinds)
		}
	}
	if len(found) != len(breakages) {
		t.Errorf("found %v, of which some is about none of them", found)
	}
	r.expect(map[string]float64{findingsGauge("map-entry-missing", "datapath"): 2, findingsGauge("map-entry-differs", "datapath"): 1})
	r.agrees()
	r.expect(map[string]float64{findingsGauge("map-entry-missing", "datapath"): 0, findingsGauge("map-entry-differs", "datapath"): 0})
	for i, p := range append(pods, sound) {
		name := append(breakages, breakage{name: "nothing"})[i].name
		r.reached(name, p)
		if err := r.cni.Check(p.Container); err != nil {
			t.Errorf("%s: CHECK after the repair: %v", name, err)
		}
		r.cni.MustDel(t, p.Container)
	}
	r.nothingLeft()
}

func TestDoctorLinkGone(t *testing.T) {
	t.Parallel()
	r := newRig(t, "--doctor-interval=0s")
	keep, lose := r.pod(), r.pod()
	if err := r.node.Netlink(t).LinkDel(r.node.HostLink(t, lose.Container)); err != nil {
		t.Fatal(err)
	}
	failedWith(t, r.cni.Check(lose.Container), "interface eth0 is missing in the container")
	found := kindsOf(r.examined().Findings)
	if got := found[lose.ID+":eth0"]; len(found) != 1 || got["link-missing"] != 1 {
		t.Errorf("found %v", found)
	}
	r.agrees()
	r.attached("after the repair", keep.Container)
	r.reached("the other", keep)
	r.cni.MustDel(t, lose.Container)
	r.cni.MustDel(t, keep.Container)
	r.nothingLeft()
}

func TestDoctorReportOnly(t *testing.T) {
	t.Parallel()
	r := newRig(t, "--doctor-interval=0s", "--doctor-repair=false")
	p := r.pod()
	b := breakages[0]
	if err := b.do(r, p, r.host(p.Container)); err != nil {
		t.Fatal(err)
	}
	testutil.Eventually(t, func() error {
		for _, f := range r.answered().Findings {
			if f.Times > 1 && f.Outcome == "" && f.Kind == "map-entry-missing" {
				return nil
			}
		}
		return errors.New("there are no two looks yet")
	})
	failedWith(t, r.cni.Check(p.Container), "map-entry-missing: ")
}
