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
	"golang.org/x/sys/unix"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/bpf"
	"porin.dev/porin/bpf/abi"
	"porin.dev/porin/internal/rtnl"
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
func (r *rig) host(c *testutil.Container) (link rtnl.Link) {
	r.Helper()
	if err := r.node.Conn(r).Do(rtnl.LinkByName(v1.HostInterfaceName(c.ID, c.IfName), &link)); err != nil {
		r.Fatal(err)
	}
	return link
}

// strangers makes what belongs to others, and looks a little like Porin's.
func (r *rig) strangers(host rtnl.Link) {
	r.Helper()
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.SchedCLS, License: "GPL", Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, -1), asm.Return()},
	})
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() { program.Close() })
	veth := rtnl.Veth{Name: "porter0", MAC: rtnl.MAC{2, 3}, Peer: rtnl.VethPeer{Name: "eth1", MAC: rtnl.MAC{2, 4}, NetNS: testutil.NetNS(r).FD()}}
	var porter rtnl.Link
	conn := r.node.Conn(r)
	err = errors.Join(
		conn.Do(rtnl.NewVeth(veth), rtnl.LinkByName("porter0", &porter)),
		conn.Do(
			rtnl.AddRoute(rtnl.Route{Dst: netip.MustParsePrefix("10.201.0.1/32"), Link: host.Index, Scope: unix.RT_SCOPE_LINK, Protocol: unix.RTPROT_STATIC}),
			rtnl.AddRoute(rtnl.Route{Dst: netip.MustParsePrefix("10.201.0.2/32"), Link: porter.Index, Scope: unix.RT_SCOPE_LINK, Protocol: rtnl.Protocol}),
			rtnl.AddClsact(porter.Index),
			rtnl.ReplaceFilter(rtnl.Filter{Link: porter.Index, Direction: rtnl.Ingress, Handle: 1, Priority: 1, Name: "theirs", Program: program.FD()}),
			rtnl.ReplaceFilter(rtnl.Filter{Link: host.Index, Direction: rtnl.Ingress, Handle: 1, Priority: 9, Name: "theirs", Program: program.FD()}),
			rtnl.ReplaceNeigh(rtnl.Neigh{Link: porter.Index, Addr: netip.MustParseAddr("10.201.0.2"), MAC: rtnl.MAC{2, 4}}),
		))
	if err != nil {
		r.Fatal(err)
	}
}

// orphans makes one of each thing that bears Porin's mark and belongs to nobody, and tells as what each is found.
func (r *rig) orphans(host rtnl.Link) (kinds map[string]int) {
	r.Helper()
	stray := netip.MustParseAddr("10.200.0.1")
	veth := rtnl.Veth{Name: "porabcdefghijkl", MAC: rtnl.MAC{2, 1}, Peer: rtnl.VethPeer{Name: "eth0", MAC: rtnl.MAC{2, 2}, NetNS: testutil.NetNS(r).FD()}}
	extra, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 4, MaxEntries: 1})
	if err != nil {
		r.Fatal(err)
	}
	defer extra.Close()
	used, err := ebpf.NewProgramFromID(ebpf.ProgramID(r.inspect().Programs[0].ID))
	if err != nil {
		r.Fatal(err)
	}
	defer used.Close()
	former := filepath.Join(r.node.BPFRoot, "programs", formerDigest)
	err = errors.Join(
		os.Mkdir(former, 0o700), used.Pin(filepath.Join(former, bpf.FromPod)),
		r.node.Conn(r).Do(
			rtnl.NewVeth(veth),
			rtnl.AddRoute(rtnl.Route{Dst: prefixOf(stray), Link: host.Index, Scope: unix.RT_SCOPE_LINK, Protocol: rtnl.Protocol}),
			rtnl.ReplaceNeigh(rtnl.Neigh{Link: host.Index, Addr: stray, MAC: rtnl.MAC{2, 9}}),
		),
		r.pinned(bpf.Endpoints).Put(abi.AddrOf(stray), abi.Endpoint{Ifindex: 9999, Id: 999}),
		r.pinned(bpf.Links).Put(uint32(9999), abi.Link{Id: 999}),
		extra.Pin(filepath.Join(r.node.BPFRoot, "maps", "extra")),
		os.Mkdir(filepath.Join(r.node.StateDir, "deletions"), 0o700), // as the first plugin does that finds no agent
		os.WriteFile(filepath.Join(r.node.StateDir, "deletions", "half.delete"), []byte(`{"containerID":`), 0o600),
	)
	if err != nil {
		r.Fatal(err)
	}
	return map[string]int{
		"link-orphan": 1, "route-orphan": 1, "neighbour-orphan": 1, "map-entry-orphan": 2, "map-orphan": 1, "program-orphan": 1, "deletion-record-waiting": 1,
	}
}

func TestTheDoctorRemovesWhatBelongsToNobodyAndNothingOfOthers(t *testing.T) {
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
	testutil.Eventually(t, 2*reach, func() error {
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

func TestALinkOfNobodyNamesTheContainerThatItWasMadeFor(t *testing.T) {
	r := newRig(t, "--doctor-repair=false")
	c := testutil.NewContainer(t)
	name := v1.HostInterfaceName(c.ID, c.IfName)
	veth := rtnl.Veth{Name: name, MAC: rtnl.MAC{2, 1}, Peer: rtnl.VethPeer{Name: "eth0", MAC: rtnl.MAC{2, 2}, NetNS: c.FD()}}
	if err := r.node.Conn(t).Do(rtnl.NewVeth(veth), rtnl.SetAlias(name, c.ID+":eth0 began=7")); err != nil {
		t.Fatal(err)
	}
	found := r.examined().Findings
	if len(found) != 1 || found[0].Kind != "link-orphan" || found[0].Endpoint != c.ID+":eth0" || !strings.Contains(found[0].Detail, name) {
		t.Errorf("findings: %+v", found)
	}
	r.cni.MustDel(t, c)
	r.agrees()
}
