package datapath

import (
	"net/netip"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"porin.dev/porin/bpf"
	"porin.dev/porin/cells/datapath/loader"
	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/internal/nl"
	"porin.dev/porin/internal/reconcile/reconciletest"
	"porin.dev/porin/internal/testutil"
)

// opsNode is a network namespace with two links.
type opsNode struct {
	*testutil.Namespace
	handle, reader     *netlink.Handle
	owner, other, heir Entry
}

func newOpsNode(t *testing.T) *opsNode {
	n := &opsNode{Namespace: testutil.NetNS(t)}
	n.handle = n.Netlink(t)
	n.reader = n.handle
	addrs := endpoint.Addresses{IPv4: addr4, IPv6: addr6}
	n.owner = Entry{ID: 1, Link: n.addLink(t, "one"), LinkName: "one", PodMAC: endpoint.MAC{2, 5: 1}, Addresses: addrs}
	n.other = Entry{
		ID: 2, Link: n.addLink(t, "two"), LinkName: "two", PodMAC: endpoint.MAC{2, 5: 2}, Addresses: endpoint.Addresses{IPv4: other4},
	}
	n.heir = n.owner
	n.heir.Addresses = endpoint.Addresses{}
	return n
}

func (n *opsNode) addLink(t *testing.T, name string) int {
	t.Helper()
	link, err := n.AddVeth(testutil.Veth{Name: name, Peer: testutil.NetNS(t), PeerName: "eth0"})
	if err != nil {
		t.Fatal(err)
	}
	return link.Attrs().Index
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestPodRoutesOperations(t *testing.T) {
	reconciletest.TestOperations(t, func(t *testing.T) reconciletest.Subject[Entry, placed, podRoute] {
		n := newOpsNode(t)
		return reconciletest.Subject[Entry, placed, podRoute]{
			Table: newPodRoutes(n.handle, n.reader, nil), Owner: n.owner, Other: n.other, Heir: n.heir,
			Take: func(t testing.TB, key placed) {
				check(t, n.handle.RouteDel(testutil.HostRoute(key.link, key.dst.Addr(), 0)))
			},
			Change: func(t testing.TB, key placed) {
				check(t, n.handle.RouteReplace(testutil.HostRoute(n.other.Link, key.dst.Addr(), unix.RTPROT_STATIC)))
			},
		}
	})
}

func TestPodNeighboursOperations(t *testing.T) {
	reconciletest.TestOperations(t, func(t *testing.T) reconciletest.Subject[Entry, placed, podNeighbour] {
		n := newOpsNode(t)
		var entries *nl.Neighbours
		check(t, n.Do(func() (err error) {
			entries, err = nl.OpenNeighbours()
			return err
		}))
		t.Cleanup(entries.Close)
		return reconciletest.Subject[Entry, placed, podNeighbour]{
			Table: newPodNeighbours(n.handle, n.reader, entries), Owner: n.owner, Other: n.other, Heir: n.heir,
			Take: func(t testing.TB, key placed) {
				check(t, n.handle.NeighDel(testutil.PermanentNeighbour(key.link, key.dst.Addr(), nil)))
			},
			Change: func(t testing.TB, key placed) {
				check(t, n.handle.NeighSet(testutil.PermanentNeighbour(key.link, key.dst.Addr(), testutil.MAC(2, 9))))
			},
		}
	})
}

func TestHostProgramsOperations(t *testing.T) {
	testutil.Root(t)
	programs := &loader.Programs{FromPod: testProgram(t), ToPod: testProgram(t)}
	another := testProgram(t)
	reconciletest.TestOperations(t, func(t *testing.T) reconciletest.Subject[Entry, programKey, int] {
		n := newOpsNode(t)
		table := newHostPrograms(programs, n.handle, n.reader)
		sides := []uint32{netlink.HANDLE_MIN_INGRESS, netlink.HANDLE_MIN_EGRESS}
		return reconciletest.Subject[Entry, programKey, int]{
			Table: table, Owner: n.owner, Other: n.other, Heir: n.heir,
			Take: func(t testing.TB, key programKey) {
				filter := testutil.Filter(key.link, sides[key.side], filterHandle, filterPriority, another.FD())
				check(t, n.handle.FilterDel(filter))
			},
			Change: func(t testing.TB, key programKey) {
				filter := testutil.Filter(key.link, sides[key.side], filterHandle, filterPriority, another.FD())
				check(t, n.handle.FilterReplace(filter))
			},
		}
	})
	if name := newHostPrograms(programs, nil, nil).Name(programKey{7, 1}); name != "program "+bpf.ToPod {
		t.Errorf("the second filter is %q", name)
	}
}

func testProgram(t *testing.T) *loader.Program {
	t.Helper()
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.SchedCLS, License: "GPL", Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()},
	})
	check(t, err)
	t.Cleanup(func() { program.Close() })
	info, err := program.Info()
	check(t, err)
	id, _ := info.ID()
	return &loader.Program{Program: program, ID: uint32(id)}
}

// A route to a network that bears Porin's mark, on the link of an endpoint, is an orphan, too.
func TestPodRoutesOrphanNetwork(t *testing.T) {
	n := newOpsNode(t)
	network := netip.MustParsePrefix("10.77.0.0/24")
	check(t, n.handle.RouteAdd(&netlink.Route{LinkIndex: n.owner.Link, Dst: nl.IPNet(network), Protocol: nl.Protocol}))
	owners := func() []Entry { return []Entry{n.owner} }
	orphans, err := newPodRoutes(n.handle, n.reader, nil).Orphans(owners)
	if err != nil || len(orphans) != 1 {
		t.Fatalf("orphans %+v, error %v", orphans, err)
	}
	check(t, orphans[0].Remove(owners))
	if routes, err := n.Routes(n.owner.Link); err != nil || len(routes) > 0 {
		for _, r := range routes {
			if nl.Prefix(r.Dst) == network {
				t.Errorf("%v is left, error %v", r, err)
			}
		}
	}
}
