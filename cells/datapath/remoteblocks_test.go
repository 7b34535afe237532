package datapath_test

import (
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"porin.dev/porin/bpf"
	"porin.dev/porin/bpf/abi"
	"porin.dev/porin/cells/datapath"
	"porin.dev/porin/internal/testutil"
)

var remoteBlocks = []netip.Prefix{netip.MustParsePrefix("10.1.0.0/24"), netip.MustParsePrefix("fd01::/64")}

func TestSetRemoteBlocks(t *testing.T) { withHooks(t, testSetRemoteBlocks) }

// testSetRemoteBlocks: both programs are on the uplinks while other nodes have blocks, from_uplink behind others'
// programs, and over a restart.
func testSetRemoteBlocks(t *testing.T, n *node) {
	eth0 := n.addUplink(t, "eth0")
	n.putFirst(t, eth0)
	must(t, n.datapath.SetRemoteBlocks(remoteBlocks))
	n.wantBlocks(t, remoteBlocks...)
	n.damageBlocks(t)
	must(t, n.datapath.SetRemoteBlocks(remoteBlocks)) // as the router does each 30 s
	n.wantBlocks(t, remoteBlocks...)
	n.wantUplinkPrograms(t, eth0, true)
	n.require(t, true)
	n.require(t, false) // the egress program is there for another reason
	n.wantUplinkPrograms(t, eth0, true)
	n.stop(t)
	n.start(t)
	n.require(t, false) // a restart, before the blocks are known again
	n.wantUplinkPrograms(t, eth0, true)
	must(t, n.datapath.SetRemoteBlocks(remoteBlocks[:1]))
	n.wantBlocks(t, remoteBlocks[0])
	n.wantUplinkPrograms(t, eth0, true)
	must(t, n.datapath.SetRemoteBlocks(nil))
	n.require(t, false)
	n.wantBlocks(t)
	n.wantUplinkPrograms(t, eth0, false)
	n.stop(t)
	if err := n.datapath.SetRemoteBlocks(nil); !errors.Is(err, datapath.ErrNotStarted) {
		t.Errorf("after the stop: error %v, want %v", err, datapath.ErrNotStarted)
	}
}

func TestExamineFromUplink(t *testing.T) { withHooks(t, testExamineFromUplink) }

// testExamineFromUplink: a device that lacks from_uplink has a finding of its own, as no packet is dropped.
func testExamineFromUplink(t *testing.T, n *node) {
	c, _ := newCheckedNodeOn(t, n, 1)
	eth0 := c.addUplink(t, "eth0")
	c.wantHealthy(t) // it is not known whether there are other nodes
	must(t, c.datapath.SetRemoteBlocks(remoteBlocks))
	c.wantHealthy(t)
	c.takeOffIngress(t, eth0)
	findings := c.examine(t, "")
	if len(findings) != 1 || textOf(findings[0]) != fmt.Sprintf("from-uplink-missing: program from_uplink on link eth0, index %d", eth0) {
		t.Fatalf("found %+v", findings)
	}
	repairAll(t, findings)
	c.wantHealthy(t)
	c.wantUplinkPrograms(t, eth0, true)
}

// takeOffIngress takes from_uplink off a device, as another program might.
func (n *node) takeOffIngress(t testing.TB, index int) {
	t.Helper()
	if !n.datapath.UsesTCX() {
		must(t, n.Netlink(t).FilterDel(testutil.Filter(index, netlink.HANDLE_MIN_INGRESS, 0x706f7269, 3, -1)))
		return
	}
	program, err := ebpf.NewProgramFromID(ebpf.ProgramID(n.program(t, bpf.FromUplink)))
	must(t, err)
	defer program.Close()
	must(t, n.Do(func() error {
		return link.RawDetachProgram(link.RawDetachProgramOptions{Target: index, Program: program, Attach: ebpf.AttachTCXIngress})
	}))
}

// putFirst puts a program of another at the ingress.
func (n *node) putFirst(t testing.TB, index int) {
	t.Helper()
	if !n.datapath.UsesTCX() {
		must(t, n.Netlink(t).QdiscReplace(testutil.Clsact(index)))
		return
	}
	passes, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SchedCLS, License: "GPL", Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, -1), asm.Return()}})
	must(t, err)
	t.Cleanup(func() { passes.Close() })
	must(t, n.Do(func() error {
		return link.RawAttachProgram(link.RawAttachProgramOptions{Target: index, Program: passes, Attach: ebpf.AttachTCXIngress})
	}))
}

// damageBlocks adds a block to the map, and removes one, as another program might.
func (n *node) damageBlocks(t testing.TB) {
	t.Helper()
	m, err := ebpf.LoadPinnedMap(filepath.Join(n.cfg.BPFRoot, "maps", bpf.RemoteBlocks), nil)
	must(t, err)
	defer m.Close()
	must(t, m.Put(abi.CIDRKeyOf(netip.MustParsePrefix("0.0.0.0/0")), uint32(1)))
	must(t, m.Delete(abi.CIDRKeyOf(remoteBlocks[0])))
}

func (n *node) wantBlocks(t testing.TB, want ...netip.Prefix) {
	t.Helper()
	m, err := ebpf.LoadPinnedMap(filepath.Join(n.cfg.BPFRoot, "maps", bpf.RemoteBlocks), nil)
	must(t, err)
	defer m.Close()
	has := map[netip.Prefix]bool{}
	var key abi.CIDRKey
	var value uint32
	for entries := m.Iterate(); entries.Next(&key, &value); {
		has[key.Prefix()] = true
	}
	for _, block := range want {
		if !has[block] {
			t.Errorf("the map does not have %s", block)
		}
	}
	if len(has) != len(want) {
		t.Errorf("the map has %v, want %v", has, want)
	}
}

// wantUplinkPrograms looks for the two programs on a device: the one at the ingress is the last there.
func (n *node) wantUplinkPrograms(t testing.TB, index int, want bool) {
	t.Helper()
	ids := n.ingress(t, index)
	is := len(ids) > 0 && ids[len(ids)-1] == n.program(t, bpf.FromUplink)
	if egress := len(n.egress(t, index)) > 0; is != want || egress != want {
		t.Errorf("the program is at the ingress: %t, among %v; and at the egress: %t; want %t", is, ids, egress, want)
	}
}

func (n *node) program(t testing.TB, name string) uint32 {
	t.Helper()
	for _, p := range n.datapath.Status().Programs {
		if p.Name == name {
			return p.ID
		}
	}
	t.Fatalf("the status does not have the program %s", name)
	return 0
}

// ingress are the IDs of the programs at the ingress of a device, in their order.
func (n *node) ingress(t testing.TB, index int) (ids []uint32) {
	t.Helper()
	must(t, n.Do(func() error {
		there, err := link.QueryPrograms(link.QueryOptions{Target: index, Attach: ebpf.AttachTCXIngress})
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
	filters, err := n.Filters(index, netlink.HANDLE_MIN_INGRESS)
	must(t, err)
	for _, filter := range filters {
		if program, ok := filter.(*netlink.BpfFilter); ok {
			ids = append(ids, uint32(program.Id))
		}
	}
	return ids
}
