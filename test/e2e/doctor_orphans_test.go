package e2e

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/bpf"
	"porin.dev/porin/bpf/abi"
	"porin.dev/porin/internal/testutil"
)

// pinned opens one of the agent's maps, as another program may.
func (r *rig) pinned(name string) *ebpf.Map {
	r.Helper()
	m, err := ebpf.LoadPinnedMap(filepath.Join(r.node.BPFRoot, "maps", name), nil)
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() { m.Close() })
	return m
}

// host is the host end of the container.
func (r *rig) host(c *testutil.Container) *netlink.LinkAttrs {
	r.Helper()
	return r.node.HostLink(r, c).Attrs()
}

// strangers makes what belongs to others, and looks a little like Porin's.
func (r *rig) strangers(host *netlink.LinkAttrs) {
	r.Helper()
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.SchedCLS, License: "GPL", Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, -1), asm.Return()},
	})
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() { program.Close() })
	link, err := r.node.AddVeth(testutil.Veth{Name: "porter0", MAC: testutil.MAC(2, 3), Peer: testutil.NetNS(r), PeerName: "eth1"})
	if err != nil {
		r.Fatal(err)
	}
	handle, porter := r.node.Netlink(r), link.Attrs().Index
	one, two := netip.MustParseAddr("10.201.0.1"), netip.MustParseAddr("10.201.0.2")
	err = errors.Join(
		handle.RouteAdd(testutil.HostRoute(host.Index, one, unix.RTPROT_STATIC)),
		handle.RouteAdd(testutil.HostRoute(porter, two, testutil.RouteProtocol)),
		handle.QdiscAdd(testutil.Clsact(porter)),
		handle.FilterReplace(testutil.Filter(porter, netlink.HANDLE_MIN_INGRESS, 1, 1, program.FD())),
		handle.FilterReplace(testutil.Filter(host.Index, netlink.HANDLE_MIN_INGRESS, 1, 9, program.FD())),
		handle.NeighSet(testutil.PermanentNeighbour(porter, two, testutil.MAC(2, 4))),
	)
	if err != nil {
		r.Fatal(err)
	}
}

// orphans makes one of each thing that bears Porin's mark and has no owner, and returns the finding for each.
func (r *rig) orphans(host *netlink.LinkAttrs) (kinds map[string]int) {
	r.Helper()
	stray := netip.MustParseAddr("10.200.0.1")
	if _, err := r.node.AddVeth(testutil.Veth{Name: "porabcdefghijkl", MAC: testutil.MAC(2, 1), Peer: testutil.NetNS(r), PeerName: "eth0"}); err != nil {
		r.Fatal(err)
	}
	err := errors.Join(
		r.node.Netlink(r).RouteAdd(testutil.HostRoute(host.Index, stray, testutil.RouteProtocol)),
		r.node.Netlink(r).NeighSet(testutil.PermanentNeighbour(host.Index, stray, testutil.MAC(2, 9))),
		r.pinned(bpf.Endpoints).Put(abi.AddrOf(stray), abi.Endpoint{Ifindex: 9999, Id: 999}),
		r.pinned(bpf.Links).Put(uint32(9999), abi.Link{Id: 999}),
		os.Mkdir(filepath.Join(r.node.StateDir, "deletions"), 0o700), // as the first plugin does that finds no agent
		os.WriteFile(filepath.Join(r.node.StateDir, "deletions", "half.delete"), []byte(`{"containerID":`), 0o600),
	)
	if err != nil {
		r.Fatal(err)
	}
	return map[string]int{
		"link-orphan": 1, "route-orphan": 1, "neighbour-orphan": 1, "map-entry-orphan": 2, "deletion-record-waiting": 1,
	}
}

func TestDoctorOrphans(t *testing.T) {
	t.Parallel()
	r := newRig(t, "--doctor-interval=1s", "--metrics-address="+metricsAddress)
	p := r.pod()
	host := r.host(p.Container)
	r.strangers(host)
	r.agrees()
	kernel, inspection := kernelState(t, r.node), fmt.Sprint(r.inspect())
	want := r.orphans(host)
	if diff := cmp.Diff(want, kindsOf(r.examined().Findings)[""]); diff != "" {
		t.Errorf("kinds (-want +got):\n%s", diff)
	}
	r.expect(map[string]float64{findingsGauge("link-orphan", "datapath"): 1, findingsGauge("map-entry-orphan", "datapath"): 2})

	// The record that cannot be read is set aside, for a person.
	unreadable := map[string]int{"deletion-record-unreadable": 1}
	testutil.Eventually(t, func() error {
		if found := kindsOf(r.answered().Findings)[""]; !maps.Equal(found, unreadable) {
			return fmt.Errorf("found %v", found)
		}
		return nil
	})
	delete(want, "deletion-record-waiting") // whose repair has failed for that reason
	for kind, n := range want {
		name := fmt.Sprintf(`porin_doctor_repairs_total{kind=%q,outcome="repaired"}`, kind)
		if got := r.metrics()[name]; got != float64(n) {
			t.Errorf("%s is %v, want %d", name, got, n)
		}
	}
	r.expect(map[string]float64{findingsGauge("link-orphan", "datapath"): 0, findingsGauge("deletion-record-unreadable", "endpointmanager"): 1})
	if diff := cmp.Diff(kernel, kernelState(t, r.node)); diff != "" {
		t.Errorf("the node's kernel (-before +now):\n%s", diff)
	}
	if now := fmt.Sprint(r.inspect()); now != inspection {
		t.Errorf("programs, maps and filters were\n%s\nand are\n%s", inspection, now)
	}
	if bad := filepath.Join(r.node.StateDir, "deletions", "half.bad"); os.Remove(bad) != nil {
		t.Errorf("%s is not there", bad)
	}
	r.agrees()
}

func TestDoctorOrphanLink(t *testing.T) {
	r := newRig(t, "--doctor-repair=false")
	c := testutil.NewContainer(t)
	name := v1.HostInterfaceName(c.ID, c.IfName)
	link, err := r.node.AddVeth(testutil.Veth{Name: name, MAC: testutil.MAC(2, 1), Peer: c.Namespace, PeerName: "eth0"})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.node.Netlink(t).LinkSetAlias(link, c.ID+":eth0 began=7"); err != nil {
		t.Fatal(err)
	}
	found := r.examined().Findings
	if len(found) != 1 || found[0].Kind != "link-orphan" || found[0].Endpoint != c.ID+":eth0" || !strings.Contains(found[0].Detail, name) {
		t.Errorf("findings: %+v", found)
	}
	r.cni.MustDel(t, c)
	r.agrees()
}
