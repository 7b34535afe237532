package datapath_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"porin.dev/porin/bpf"
	"porin.dev/porin/cells/datapath"
	"porin.dev/porin/cells/datapath/loader"
	"porin.dev/porin/internal/nl"
	"porin.dev/porin/internal/testutil"
)

// outside is beyond every uplink.
var outside = netip.MustParseAddr("198.51.100.1")

// addUplink adds a device to the node that leads to another namespace, and returns its index.
func (n *node) addUplink(t testing.TB, name string) int {
	t.Helper()
	return n.addUplinkTo(t, name, testutil.NetNS(t))
}

func (n *node) addUplinkTo(t testing.TB, name string, beyond *testutil.Namespace) int {
	t.Helper()
	link, err := n.AddVeth(testutil.Veth{Name: name, Peer: beyond, PeerName: "eth0"})
	must(t, err)
	handle, peer := beyond.Netlink(t), link.Attrs().ParentIndex
	must(t, handle.LinkSetUp(testutil.LinkAt(peer)))
	must(t, handle.AddrAdd(testutil.LinkAt(peer), &netlink.Addr{IPNet: nl.IPNet(netip.PrefixFrom(outside, 24))}))
	must(t, n.Netlink(t).AddrAdd(testutil.LinkAt(link.Attrs().Index), &netlink.Addr{IPNet: nl.IPNet(netip.PrefixFrom(outside.Next(), 24))}))
	return link.Attrs().Index
}

// egress are the IDs of the programs at the egress of a device, in their order: TCX programs come first.
func (n *node) egress(t testing.TB, index int) (ids []uint32) {
	t.Helper()
	ids = n.tcxEgress(t, index)
	filters, err := n.Filters(index, netlink.HANDLE_MIN_EGRESS)
	must(t, err)
	for _, filter := range filters {
		id := 0 // of a filter that is no program
		if program, ok := filter.(*netlink.BpfFilter); ok {
			id = program.Id
		}
		ids = append(ids, uint32(id))
	}
	return ids
}

func (n *node) tcxEgress(t testing.TB, index int) (ids []uint32) {
	t.Helper()
	must(t, n.Do(func() error {
		there, err := link.QueryPrograms(link.QueryOptions{Target: index, Attach: ebpf.AttachTCXEgress})
		if errors.Is(err, unix.EINVAL) { // the kernel does not have it
			return nil
		}
		if err != nil {
			return err
		}
		for _, p := range there.Programs {
			ids = append(ids, uint32(p.ID))
		}
		return nil
	}))
	return ids
}

// withHooks runs a test with each way to attach the program that the kernel has.
func withHooks(t *testing.T, test func(t *testing.T, n *node)) {
	if loader.HasTCX() {
		t.Run("tcx", func(t *testing.T) { test(t, newNode(t)) })
	}
	t.Run("clsact", func(t *testing.T) { test(t, newNodeOn(t, (*datapath.Datapath).WithoutTCX)) })
}

// takeOff takes the program off a device, as another program might.
func (n *node) takeOff(t testing.TB, index int) {
	t.Helper()
	if !n.datapath.UsesTCX() {
		must(t, n.Netlink(t).QdiscDel(testutil.Clsact(index)))
		return
	}
	must(t, n.Do(func() error {
		return link.RawDetachProgram(link.RawDetachProgramOptions{Target: index, Program: n.pinnedToUplink(t), Attach: ebpf.AttachTCXEgress})
	}))
}

// putBack puts the program on a device as the agent does.
func (n *node) putBack(t testing.TB, index int) {
	t.Helper()
	program := n.pinnedToUplink(t)
	if n.datapath.UsesTCX() {
		must(t, n.Do(func() error {
			return link.RawAttachProgram(link.RawAttachProgramOptions{Target: index, Program: program, Attach: ebpf.AttachTCXEgress})
		}))
		return
	}
	must(t, n.Netlink(t).QdiscReplace(testutil.Clsact(index)))
	must(t, n.Netlink(t).FilterReplace(testutil.Filter(index, netlink.HANDLE_MIN_EGRESS, 0x706f7269, 1, program.FD())))
}

// toUplink is the ID of the program that the agent has loaded.
func (n *node) toUplink(t testing.TB) uint32 {
	t.Helper()
	for _, p := range n.datapath.Status().Programs {
		if p.Name == bpf.ToUplink {
			return p.ID
		}
	}
	t.Fatal("the status does not have the program")
	return 0
}

func (n *node) pinnedToUplink(t testing.TB) *ebpf.Program {
	t.Helper()
	program, err := ebpf.LoadPinnedProgram(filepath.Join(n.cfg.BPFRoot, "programs", n.datapath.Status().Digest, bpf.ToUplink), nil)
	must(t, err)
	t.Cleanup(func() { program.Close() })
	return program
}

func (n *node) wantAttached(t testing.TB, want ...int) {
	t.Helper()
	if got := n.datapath.Uplinks().Attached(); !slices.Equal(got, want) {
		t.Errorf("the program is attached to %v, want %v", got, want)
	}
}

func (n *node) wantEgress(t testing.TB, link int, want ...uint32) {
	t.Helper()
	if got := n.egress(t, link); !slices.Equal(got, want) {
		t.Errorf("at the egress of link %d are %v, want %v", link, got, want)
	}
}

func (n *node) require(t testing.TB, required bool) {
	t.Helper()
	must(t, n.datapath.Uplinks().Require(required))
}

func TestUplinksRequire(t *testing.T) { withHooks(t, testUplinksRequire) }

func testUplinksRequire(t *testing.T, n *node) {
	p := n.newPod(t, 1)
	n.attach(t, p)
	a, b := n.addUplink(t, "eth0"), n.addUplink(t, "eth1")
	n.wantAttached(t)
	n.wantEgress(t, a)
	before := n.egress(t, p.index())
	n.require(t, true)
	n.require(t, true) // again, when there is nothing to do
	n.wantAttached(t, a, b)
	select {
	case <-n.datapath.Uplinks().Changed():
	default:
		t.Error("the change is not told")
	}
	for _, link := range []int{a, b} {
		n.wantEgress(t, link, n.toUplink(t))
	}
	n.wantEgress(t, 1)
	n.wantEgress(t, p.index(), before...)
	n.require(t, false)
	n.require(t, false)
	n.wantAttached(t)
	for _, link := range []int{a, b} {
		n.wantEgress(t, link)
	}
	n.wantEgress(t, p.index(), before...)
	n.stop(t)
	if err := n.datapath.Uplinks().Require(true); !errors.Is(err, datapath.ErrNotStarted) {
		t.Errorf("after the stop: error %v, want %v", err, datapath.ErrNotStarted)
	}
}

// A device loses no packet when it gets the program, or loses it: with clsact, it would (docs/limits.md). On a kernel
// without TCX the status says that devices get clsact.
func TestUplinksLoseNothing(t *testing.T) {
	if !loader.HasTCX() {
		missing := newNode(t).datapath.Status().Missing
		if !slices.ContainsFunc(missing, func(text string) bool { return strings.HasPrefix(text, "TCX ") && strings.Contains(text, "clsact") }) {
			t.Errorf("missing: %q, want that it is TCX, and that devices get clsact", missing)
		}
		return
	}
	n, beyond := newNode(t), testutil.NetNS(t)
	n.addUplinkTo(t, "eth0", beyond)
	must(t, testutil.Ping(n.Namespace, outside, testutil.Patience)) // the neighbours know each other
	traffic := startPingPongTo(t, n.Namespace, beyond, outside)
	for range 10 {
		n.require(t, true)
		n.require(t, false)
		traffic.goOn(t)
	}
	if sent, lost := traffic.stop(); lost > 0 {
		t.Errorf("%d of %d packets are lost", lost, sent)
	}
}

// follow runs the agent's task until the test ends.
func (n *node) follow(t testing.TB) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- n.datapath.FollowUplinks(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("following ended with %v", err)
		}
	})
}

func TestUplinksFollowed(t *testing.T) { withHooks(t, testUplinksFollowed) }

func testUplinksFollowed(t *testing.T, n *node) {
	n.follow(t)
	first := n.addUplink(t, "eth0")
	eventually := func(want ...int) {
		t.Helper()
		testutil.Eventually(t, func() error {
			if got := n.datapath.Uplinks().Attached(); !slices.Equal(got, want) {
				return fmt.Errorf("the program is attached to %v, want %v", got, want)
			}
			return nil
		})
	}
	for range 2 {
		n.require(t, true)
		n.wantAttached(t, first)
		p := n.newPod(t, 1)
		n.attach(t, p)
		second := n.addUplink(t, "eth1")
		eventually(first, second)
		n.wantEgress(t, second, n.toUplink(t))
		n.wantEgress(t, p.index(), n.egress(t, p.index())[0])
		n.takeOff(t, second)
		testutil.Eventually(t, func() error {
			if got := n.egress(t, second); !slices.Equal(got, []uint32{n.toUplink(t)}) {
				return fmt.Errorf("after somebody took it off, there are %v", got)
			}
			return nil
		})
		must(t, n.Netlink(t).LinkDel(testutil.LinkAt(second)))
		eventually(first)
		n.require(t, false)
		n.wantAttached(t)
		n.detach(t, p)
	}
}

// A restart leaves the program in its place, and an upgrade replaces it.
func TestUplinksRestart(t *testing.T) { withHooks(t, testUplinksRestart) }

func testUplinksRestart(t *testing.T, n *node) {
	eth0 := n.addUplink(t, "eth0")
	n.require(t, true)
	old := n.toUplink(t)
	n.stop(t)
	n.start(t)
	n.wantEgress(t, eth0, old)
	n.wantAttached(t) // not required yet
	n.require(t, true)
	n.wantEgress(t, eth0, old)
	n.wantAttached(t, eth0)
	n.stop(t)
	must(t, n.tryStart(t, (*datapath.Datapath).Upgrade))
	n.wantEgress(t, eth0, old)
	n.require(t, true)
	n.wantEgress(t, eth0, n.toUplink(t))
	if old == n.toUplink(t) {
		t.Error("the upgrade has the program of before")
	}
	n.stop(t)
	n.start(t)
	n.require(t, false) // the last policy went while no agent ran
	n.wantEgress(t, eth0)
}

// Others have filters on the device, in the same place as ours on pods' links: they stay, and see the packets after
// ours.
func TestUplinksLeaveOthersAlone(t *testing.T) { withHooks(t, testUplinksLeaveOthersAlone) }

func testUplinksLeaveOthersAlone(t *testing.T, n *node) {
	eth0 := n.addUplink(t, "eth0")
	drop, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SchedCLS, License: "GPL", Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 2 /* TC_ACT_SHOT */), asm.Return()}})
	must(t, err)
	defer drop.Close()
	info, err := drop.Info()
	must(t, err)
	id, _ := info.ID()
	must(t, n.Netlink(t).QdiscAdd(testutil.Clsact(eth0)))
	must(t, n.Netlink(t).FilterReplace(testutil.Filter(eth0, netlink.HANDLE_MIN_EGRESS, 1, 1, drop.FD())))
	n.require(t, true)
	n.wantEgress(t, eth0, n.toUplink(t), uint32(id))

	if pingWithin(unreachable, n.Namespace, outside) == nil {
		t.Error("a packet has left, although the other filter drops all")
	}
	n.require(t, false)
	n.wantEgress(t, eth0, uint32(id))
	must(t, n.Netlink(t).FilterDel(testutil.Filter(eth0, netlink.HANDLE_MIN_EGRESS, 1, 1, drop.FD())))
	n.require(t, true)
	must(t, testutil.Ping(n.Namespace, outside, testutil.Patience))
}

// A device that refuses the program is not among those with the program, and the doctor says so.
func TestUplinksRefused(t *testing.T) {
	for name, occupy := range map[string]func(n *node, link int) netlink.Qdisc{
		"the qdisc ingress": func(n *node, link int) netlink.Qdisc {
			return &netlink.Ingress{QdiscAttrs: netlink.QdiscAttrs{LinkIndex: link, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_INGRESS}}
		},
		"a filter for a protocol": func(n *node, link int) netlink.Qdisc { return testutil.Clsact(link) },
	} {
		t.Run(name, func(t *testing.T) {
			c, _ := newCheckedNodeOn(t, newNodeOn(t, (*datapath.Datapath).WithoutTCX), 1)
			eth0, eth1 := c.addUplink(t, "eth0"), c.addUplink(t, "eth1")
			qdisc := occupy(c.node, eth0)
			must(t, c.Netlink(t).QdiscAdd(qdisc))
			if qdisc.Type() == "clsact" {
				filter := testutil.Filter(eth0, netlink.HANDLE_MIN_EGRESS, 1, 1, c.pinnedToUplink(t).FD())
				filter.Protocol = unix.ETH_P_IP
				must(t, c.Netlink(t).FilterReplace(filter))
			}
			c.wantHealthy(t)
			c.require(t, true)
			c.wantAttached(t, eth1)
			findings := c.examine(t, "")
			if kindsOf(findings) != "uplink-program-missing" {
				t.Fatalf("found %v", findings)
			}
			if err := findings[0].Repair(t.Context()); err == nil {
				t.Error("repaired what the device refuses")
			}
			must(t, c.Netlink(t).QdiscDel(qdisc))
			repairAll(t, findings)
			c.wantHealthy(t)
			c.wantAttached(t, eth0, eth1)
		})
	}
}

func TestExamineUplinks(t *testing.T) { withHooks(t, testExamineUplinks) }

func testExamineUplinks(t *testing.T, n *node) {
	c, _ := newCheckedNodeOn(t, n, 1)
	eth0 := c.addUplink(t, "eth0")
	c.require(t, true)
	c.wantHealthy(t)
	c.takeOff(t, eth0)
	findings := c.examine(t, "")
	if len(findings) != 1 || textOf(findings[0]) != fmt.Sprintf("uplink-program-missing: program to_uplink on link eth0, index %d", eth0) {
		t.Fatalf("found %+v", findings)
	}
	repairAll(t, findings)
	c.wantHealthy(t)

	c.require(t, false)
	c.wantHealthy(t)
	c.putBack(t, eth0)
	findings = c.examine(t, "")
	if kindsOf(findings) != "program-orphan" {
		t.Fatalf("found %+v", findings)
	}
	repairAll(t, findings)
	c.wantHealthy(t)
	c.wantEgress(t, eth0)
}
