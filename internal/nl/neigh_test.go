package nl_test

import (
	"errors"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"porin.dev/porin/internal/nl"
	"porin.dev/porin/internal/testutil"
)

func TestMain(m *testing.M) { testutil.Main(m, testutil.NoLeaks()) }

func TestNeighbours(t *testing.T) {
	ns, far := testutil.NetNS(t), testutil.NetNS(t)
	link, err := ns.AddVeth(testutil.Veth{Name: "near", Peer: far, PeerName: "far"})
	if err != nil {
		t.Fatal(err)
	}
	var neighbours *nl.Neighbours
	if err := ns.Do(func() (err error) {
		neighbours, err = nl.OpenNeighbours()
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer neighbours.Close()
	index := link.Attrs().Index
	for _, text := range []string{"10.0.0.1", "fd00::1"} {
		addr := netip.MustParseAddr(text)
		if err := ns.Netlink(t).NeighSet(testutil.PermanentNeighbour(index, addr, testutil.MAC(2, 9))); err != nil {
			t.Fatal(err)
		}
		entry, err := neighbours.Get(index, addr)
		if err != nil || entry.LinkIndex != index || nl.Addr(entry.IP) != addr || entry.HardwareAddr.String() != testutil.MAC(2, 9).String() || entry.State != unix.NUD_PERMANENT {
			t.Errorf("%s: %+v, error %v", addr, entry, err)
		}
		if entry, err := neighbours.Get(index, addr.Next()); !errors.Is(err, unix.ENOENT) {
			t.Errorf("%s: %+v, error %v, want %v", addr.Next(), entry, err, unix.ENOENT)
		}
		if entry, err := neighbours.Get(4711, addr); !errors.Is(err, unix.ENODEV) {
			t.Errorf("on no interface: %+v, error %v, want %v", entry, err, unix.ENODEV)
		}
	}
}
