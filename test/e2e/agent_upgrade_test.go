package e2e

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"porin.dev/porin/bpf"
	"porin.dev/porin/cells/datapath"
	"porin.dev/porin/cells/datapath/loader"
	"porin.dev/porin/internal/testutil"
)

// pingPong sends datagrams there and back, one at a time, and counts the lost ones. It begins when both have received
// one.
type pingPong struct {
	there, lost int
	stop        chan struct{}
	running     sync.WaitGroup
}

func (r *rig) pingPong(from, to pod, addr netip.Addr) *pingPong {
	r.Helper()
	if err := testutil.Ping(from.Namespace, addr, reach); err != nil {
		r.Fatal(err)
	}
	p := &pingPong{stop: make(chan struct{})}
	server, client := listenUDP(r, to.Namespace, addr), listenUDP(r, from.Namespace, netip.Addr{})
	p.running.Go(func() {
		buf := make([]byte, 100)
		for {
			n, sender, err := server.ReadFromUDPAddrPort(buf)
			if err != nil {
				return
			}
			_, _ = server.WriteToUDPAddrPort(buf[:n], sender)
		}
	})
	target := netip.AddrPortFrom(addr, portOf(server))
	p.running.Go(func() {
		defer server.Close()
		for {
			select {
			case <-p.stop:
				return
			default:
			}
			p.there++
			_, err := client.WriteToUDPAddrPort(fmt.Append(nil, p.there), target)
			if err != nil || !answered(client, fmt.Sprint(p.there)) {
				p.lost++
			}
		}
	})
	return p
}

// answered reports whether the answer comes. It may be late, as a busy machine stops now and then; the ones before it
// are answers that were given up.
func answered(client *net.UDPConn, want string) bool {
	buf := make([]byte, 100)
	_ = client.SetReadDeadline(time.Now().Add(reach))
	for {
		n, _, err := client.ReadFromUDPAddrPort(buf)
		if err != nil || string(buf[:n]) == want {
			return err == nil
		}
	}
}

func (p *pingPong) end() { close(p.stop); p.running.Wait() }

func TestUpgradePrograms(t *testing.T) {
	r := newRig(t)
	a, b := r.pod(), r.pod()
	ours := r.status().Datapath
	r.previousVersion()
	four, six := r.pingPong(a, b, b.ipv4), r.pingPong(b, a, a.ipv6)
	for range 3 {
		previous := r.inspect().Programs
		r.thisVersion()
		status := r.status()
		if status.Restored.Replaced != 2 || len(status.Restored.Reasons) != 2 || status.Datapath.Adopted || status.Datapath.Digest != ours.Digest {
			t.Errorf("restored %+v, datapath %+v", status.Restored, status.Datapath)
		}
		r.nothingOf(previous)
		if err := testutil.Ping(a.Namespace, r.node.IPv4, reach); err != nil {
			t.Error(err)
		}
		r.previousVersion()
	}
	four.end()
	six.end()
	if four.lost+six.lost > 0 || four.there < 100 || six.there < 100 {
		t.Errorf("lost %d of %d datagrams by IPv4, %d of %d by IPv6", four.lost, four.there, six.lost, six.there)
	}
	r.thisVersion()
	r.cni.MustDel(t, a.Container)
	r.cni.MustDel(t, b.Container)
	r.nothingLeft()
}

// nothingOf checks that programs are neither attached, nor pinned, nor in the kernel.
func (r *rig) nothingOf(previous []loader.PinnedProgram) {
	r.Helper()
	found := r.inspect()
	pins, err := os.ReadDir(filepath.Join(r.node.BPFRoot, "programs"))
	if err != nil || len(pins) != 1 || len(found.Programs) != 4 || len(found.Attachments) != 4 {
		r.Errorf("found %+v, pins %v, %v", found, pins, err)
	}
	for _, p := range previous {
		testutil.Eventually(r, func() error { // the kernel frees it when no CPU runs it any more
			program, err := ebpf.NewProgramFromID(ebpf.ProgramID(p.ID))
			if errors.Is(err, os.ErrNotExist) {
				return nil
			}
			program.Close()
			return fmt.Errorf("program %d is in the kernel: %v", p.ID, err)
		})
	}
}

func TestUpgradeMapSize(t *testing.T) {
	t.Parallel()
	r := newRig(t, "--max-endpoints=100")
	a, b := r.pod(), r.pod()
	four, six := r.pingPong(a, b, b.ipv4), r.pingPong(b, a, a.ipv6)
	for _, size := range []uint32{200, 50, 100} {
		before := r.inspect()
		r.agent.Restart(t, fmt.Sprintf("--max-endpoints=%d", size))
		for _, m := range r.inspect().Maps {
			if m.Name == bpf.Links && (m.MaxEntries != size || m.Entries != 2) {
				t.Errorf("links has %d entries of %d, want 2 of %d", m.Entries, m.MaxEntries, size)
			}
		}
		if all := r.endpoints(); len(all) != 2 || all[0].Addresses.IPv4 != a.ipv4 || all[0].Traffic.FromPod.Packets == 0 {
			t.Errorf("endpoints: %+v", all)
		}
		r.noMapOf(before)
		r.agrees()
	}
	four.end()
	six.end()
	if four.lost+six.lost > 0 || four.there < 100 || six.there < 100 {
		t.Errorf("lost %d of %d datagrams by IPv4, %d of %d by IPv6", four.lost, four.there, six.lost, six.there)
	}
	r.cni.MustDel(t, a.Container)
	r.cni.MustDel(t, b.Container)
	r.nothingLeft()
}

// noMapOf checks that the kernel has none of these maps any more that are not pinned now.
func (r *rig) noMapOf(previous datapath.Inspection) {
	r.Helper()
	pinned := map[uint32]bool{}
	for _, m := range r.inspect().Maps {
		pinned[m.ID] = true
	}
	for _, old := range previous.Maps {
		if pinned[old.ID] {
			continue
		}
		testutil.Eventually(r, func() error { // the kernel frees it when no CPU uses it any more
			m, err := ebpf.NewMapFromID(ebpf.MapID(old.ID))
			if errors.Is(err, os.ErrNotExist) {
				return nil
			}
			m.Close()
			return fmt.Errorf("map %s, %d, is in the kernel: %v", old.Name, old.ID, err)
		})
	}
}

func TestUpgradeMapsTooSmall(t *testing.T) {
	t.Parallel()
	r := newRig(t, "--max-endpoints=100")
	a, b, c := r.pod(), r.pod(), r.pod()
	before := fmt.Sprint(r.inspect())
	r.agent.Kill(t)
	failsWith(t, r.node, []string{"--max-endpoints=2"}, "give --max-endpoints a larger number, or drain the node")
	if after := fmt.Sprint(r.inspect()); after != before {
		t.Errorf("the kernel had\n%s\nand has\n%s", before, after)
	}
	for _, p := range []pod{b, c} {
		if err := testutil.Ping(a.Namespace, p.ipv6, reach); err != nil {
			t.Error(err)
		}
	}
	r.agent.Start(t)
	if status := r.status(); status.Restored.Adopted != 3 || !status.Datapath.Adopted {
		t.Errorf("restored %+v, datapath %+v", status.Restored, status.Datapath)
	}
}

func TestMapsFull(t *testing.T) {
	r := newRig(t, "--max-endpoints=2")
	first := r.pod()
	r.pod()
	c := testutil.NewContainer(t)
	refused(t, r, c, "--max-endpoints")
	r.cni.MustDel(t, first.Container)
	r.add(c)
}
