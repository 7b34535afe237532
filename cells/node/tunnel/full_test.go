package tunnel

import (
	"errors"
	"net/netip"
	"testing"

	"porin.dev/porin/bpf/abi"
)

// TestOwnersFull has nodes with more blocks than the map takes. Known nodes stay reachable, and deleted nodes make room
// for others.
func TestOwnersFull(t *testing.T) {
	w := newWorld(t)
	d := desired(here[0])
	w.apply(d)
	for i := range 131072 {
		block := netip.PrefixFrom(netip.AddrFrom4([4]byte{9, byte(i >> 16), byte(i >> 8), byte(i)}), 32)
		d.Owners[block] = Owner{Addresses: peer, Local: here[0], Pods: true}
	}
	var index int
	err := w.node.Do(func() (err error) { index, err = w.tunnel.Apply(d); return err })
	if !errors.Is(err, errFull) || index == 0 {
		t.Errorf("device %d, error %v, want a device and %v", index, err, errFull)
	}
	w.send(peer[0], abi.TunnelNetwork, w.inner(addr("10.2.0.5"), ofDevice[0], "passes"))
	w.receives("of a node that was known", "passes")
	if err := w.tunnel.objects.owners.Delete(abi.CIDRKeyOf(prefix("10.1.0.0/24"))); err != nil {
		t.Fatal(err)
	}
	d.Owners[prefix("8.0.0.0/24")] = Owner{Addresses: peer, Local: here[0], Pods: true}
	if err := w.tunnel.writeOwners(d); !errors.Is(err, errFull) {
		t.Errorf("with the node's own block missing: error %v, want %v", err, errFull)
	}
	w.send(peer[0], abi.TunnelNetwork, w.inner(addr("10.2.0.5"), ofDevice[0], "again"))
	w.receives("of a node that was known", "again")
	d = desired(here[0])
	delete(d.Owners, prefix("10.2.0.0/24"))
	d.Owners[prefix("10.7.0.0/24")] = Owner{Addresses: peer, Local: here[0], Pods: true}
	w.apply(d)
	if different, err := w.tunnel.Compare(d); err != nil || len(different) > 0 {
		t.Errorf("%v, error %v", different, err)
	}
}
