package tunnel

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"porin.dev/porin/bpf/abi"
	"porin.dev/porin/internal/testutil"
)

// programsOn are the IDs of the programs on the device.
func (w *world) programsOn() (ids []uint32) {
	w.Helper()
	d, err := w.tunnel.find()
	if err != nil || d == nil {
		w.Fatalf("device %v, error %v", d, err)
	}
	for _, hook := range w.tunnel.hooks {
		id, err := hook.Find(d.Index)
		if err != nil {
			w.Fatal(err)
		}
		ids = append(ids, id)
	}
	return ids
}

// TestRestart has another agent take over device, programs, map and addresses as they are.
func TestRestart(t *testing.T) {
	w := newWorld(t)
	index, programs := w.apply(desired(here[0])), w.programsOn()
	w.send(stranger[0], abi.TunnelNetwork, w.inner(stranger[0], ofDevice[0], "x"))
	testutil.Eventually(t, func() error {
		if w.drops()["unknown-node"] != 1 {
			return errors.New("not yet dropped")
		}
		return nil
	})
	w.tunnel = w.open(w.tunnel.cfg.BPFRoot)
	if again := w.apply(desired(here[0])); again != index {
		t.Errorf("device %d, and before %d", again, index)
	}
	if now := w.programsOn(); !slices.Equal(now, programs) || slices.Contains(now, 0) {
		t.Errorf("programs %v, and before %v", now, programs)
	}
	if n := w.drops()["unknown-node"]; n != 1 {
		t.Errorf("%d packets were dropped by now, want 1 of before", n)
	}
}

// TestUpgrade has another version's programs replaced, and its pins removed.
func TestUpgrade(t *testing.T) {
	w := newWorld(t)
	w.apply(desired(here[0]))
	programs := w.programsOn()
	previous := filepath.Join(w.tunnel.root(), "0123456789abcdef")
	if err := os.Rename(filepath.Join(w.tunnel.root(), digest()), previous); err != nil {
		t.Fatal(err)
	}
	w.tunnel = w.open(w.tunnel.cfg.BPFRoot)
	w.apply(desired(here[0]))
	for i, id := range w.programsOn() {
		if id == 0 || id == programs[i] {
			t.Errorf("program %d, and before %d: want another one", id, programs[i])
		}
	}
	if _, err := os.Stat(previous); !os.IsNotExist(err) {
		t.Errorf("the pins of the previous programs are there: %v", err)
	}
}

// TestRepair damages the tunnel in each way, and Apply mends it; Intact reports damage that the kernel does not notify
// of.
func TestRepair(t *testing.T) {
	for name, row := range map[string]struct {
		damage func(w *world, d *netlink.Vxlan) error
		silent bool
	}{
		"the device is gone": {damage: func(w *world, d *netlink.Vxlan) error { return w.node.Netlink(w).LinkDel(d) }},
		"it is down":         {damage: func(w *world, d *netlink.Vxlan) error { return w.node.Netlink(w).LinkSetDown(d) }},
		"its MTU":            {damage: func(w *world, d *netlink.Vxlan) error { return w.node.Netlink(w).LinkSetMTU(d, 1300) }},
		"ARP":                {damage: func(w *world, d *netlink.Vxlan) error { return w.node.Netlink(w).LinkSetARPOn(d) }},
		"another port": {damage: func(w *world, d *netlink.Vxlan) error {
			return errors.Join(w.node.Netlink(w).LinkDel(d), w.node.Netlink(w).LinkAdd(&netlink.Vxlan{
				LinkAttrs: netlink.LinkAttrs{Name: Device, HardwareAddr: MAC}, FlowBased: true, Port: 4789,
			}))
		}},
		"the MAC": {damage: func(w *world, d *netlink.Vxlan) error {
			return w.node.Netlink(w).LinkSetHardwareAddr(d, []byte{2, 0, 0, 0, 0, 1})
		}},
		"an address": {damage: func(w *world, d *netlink.Vxlan) error {
			return w.node.Netlink(w).AddrDel(d, address(ofDevice[0]))
		}},
		"an address of somebody else": {damage: func(w *world, d *netlink.Vxlan) error {
			return w.node.Netlink(w).AddrAdd(d, address(addr("10.1.0.99")))
		}},
		"an entry": {damage: func(w *world, _ *netlink.Vxlan) error {
			return w.tunnel.objects.owners.Delete(abi.CIDRKeyOf(prefix("10.2.0.0/24")))
		}},
		"another entry": {damage: func(w *world, _ *netlink.Vxlan) error {
			return w.tunnel.objects.owners.Put(abi.CIDRKeyOf(prefix("10.2.0.0/24")), abi.Owner{})
		}},
		"one too many": {damage: func(w *world, _ *netlink.Vxlan) error {
			return w.tunnel.objects.owners.Put(abi.CIDRKeyOf(prefix("10.9.0.0/24")), abi.Owner{Flags: abi.OwnerSelf})
		}},
		"a program": {silent: true, damage: func(w *world, d *netlink.Vxlan) error {
			return w.tunnel.hooks[0].Detach(d.Index)
		}},
		"the other program": {silent: true, damage: func(w *world, d *netlink.Vxlan) error {
			return w.tunnel.hooks[1].Detach(d.Index)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			want := desired(here[0])
			w.apply(want)
			if !w.tunnel.Intact() {
				t.Error("not intact at first")
			}
			d, err := w.tunnel.find()
			if err != nil {
				t.Fatal(err)
			}
			if err := row.damage(w, d); err != nil {
				t.Fatal(err)
			}
			if row.silent && w.tunnel.Intact() {
				t.Error("it counts as intact")
			}
			if differences, err := w.tunnel.Compare(want); err != nil || len(differences) != 1 {
				t.Errorf("differences %q, error %v, want one", differences, err)
			}
			w.apply(want)
			if differences, err := w.tunnel.Compare(want); err != nil || len(differences) != 0 || !w.tunnel.Intact() {
				t.Errorf("after the repair: differences %q, error %v", differences, err)
			}
			w.send(peer[0], abi.TunnelNetwork, w.inner(addr("10.2.0.5"), ofDevice[0], "passes"))
			w.receives("a pod of the node", "passes")
		})
	}
}

// TestForeignDevice leaves another program's device of the name alone.
func TestForeignDevice(t *testing.T) {
	w := newWorld(t)
	if err := w.node.Netlink(t).LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: Device}, PeerName: "x"}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.tunnel.Apply(desired(here[0])); !errors.Is(err, ErrForeign) {
		t.Errorf("error %v, want %v", err, ErrForeign)
	}
	if err := w.tunnel.Remove(); err != nil {
		t.Error(err)
	}
	if !slices.Contains(w.node.LinkNames(t), Device) {
		t.Error("it was removed")
	}
}

// TestPortInUse names what is in the way.
func TestPortInUse(t *testing.T) {
	w := newWorld(t)
	theirs := &netlink.Vxlan{LinkAttrs: netlink.LinkAttrs{Name: "theirs"}, FlowBased: true, Port: port}
	if err := errors.Join(w.node.Netlink(t).LinkAdd(theirs), w.node.Netlink(t).LinkSetUp(theirs)); err != nil {
		t.Fatal(err)
	}
	if _, err := w.tunnel.Apply(desired(here[0])); !errors.Is(err, ErrPort) {
		t.Errorf("error %v, want %v", err, ErrPort)
	}
}

// TestRemove leaves nothing.
func TestRemove(t *testing.T) {
	w := newWorld(t)
	w.apply(desired(here[0]))
	for range 2 {
		if err := w.tunnel.Remove(); err != nil {
			t.Error(err)
		}
	}
	if slices.Contains(w.node.LinkNames(t), Device) {
		t.Error("the device is there")
	}
	if _, err := os.Stat(w.tunnel.root()); !os.IsNotExist(err) {
		t.Errorf("pins are there: %v", err)
	}
	w.apply(desired(here[0]))
}

// TestDownWithoutPrograms: the device is down when the programs cannot be attached.
func TestDownWithoutPrograms(t *testing.T) {
	w := newWorld(t)
	w.apply(desired(here[0]))
	if err := w.tunnel.objects.fromTunnel.Close(); err != nil {
		t.Fatal(err)
	}
	if index, err := w.tunnel.Apply(desired(here[0])); index != 0 || err == nil {
		t.Errorf("device %d, error %v, want an error", index, err)
	}
	d, err := w.tunnel.find()
	if err != nil || d.RawFlags&unix.IFF_UP != 0 {
		t.Errorf("the device is up, error %v", err)
	}
}
