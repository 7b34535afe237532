package nodeaddr

import (
	"context"
	"maps"
	"net/netip"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"porin.dev/porin/internal/testutil"
)

// withLink makes an interface, and an address for it.
func withLink(t *testing.T, ns *testutil.Namespace) (netlink.Link, *netlink.Addr) {
	t.Helper()
	link := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "eth9"}, PeerName: "peer9"}
	if err := ns.Netlink(t).LinkAdd(link); err != nil {
		t.Fatal(err)
	}
	if err := ns.Netlink(t).LinkSetUp(link); err != nil {
		t.Fatal(err)
	}
	addr, err := netlink.ParseAddr("192.0.2.1/24")
	if err != nil {
		t.Fatal(err)
	}
	return link, addr
}

func TestKernelList(t *testing.T) {
	ns := testutil.NetNS(t)
	link, addr := withLink(t, ns)
	if err := ns.Netlink(t).AddrAdd(link, addr); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"fe80::1/64", "169.254.20.10/32", "192.0.0.8/32"} {
		linkLocal, err := netlink.ParseAddr(text)
		if err != nil {
			t.Fatal(err)
		}
		if err := ns.Netlink(t).AddrAdd(link, linkLocal); err != nil {
			t.Fatal(err)
		}
	}
	var got map[netip.Addr]string
	err := ns.Do(func() (err error) {
		got, err = NewKernel().List()
		return err
	})
	want := map[netip.Addr]string{
		netip.MustParseAddr("127.0.0.1"): "lo", netip.MustParseAddr("::1"): "lo", netip.MustParseAddr("192.0.2.1"): "eth9",
		netip.MustParseAddr("169.254.20.10"): "eth9",
	}
	if err != nil || !maps.Equal(got, want) {
		t.Errorf("addresses %v, error %v, want %v: none of IPv6 that is link-local, and not the dummy address", got, err, want)
	}
}

func TestKernelWatch(t *testing.T) {
	ns := testutil.NetNS(t)
	link, addr := withLink(t, ns)
	ctx, cancel := context.WithCancel(t.Context())
	var changes <-chan netip.Addr
	err := ns.Do(func() (err error) {
		changes, err = NewKernel().Watch(ctx)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	next := func(what string) (netip.Addr, bool) {
		t.Helper()
		select {
		case addr, watched := <-changes:
			return addr, watched
		case <-time.After(testutil.Patience):
			t.Fatalf("no notification of %s", what)
		}
		panic("unreachable")
	}
	want := netip.MustParseAddr("192.0.2.1")
	for _, row := range []struct {
		what   string
		change func(netlink.Link, *netlink.Addr) error
	}{
		{"an address that comes", ns.Netlink(t).AddrAdd},
		{"an address that goes", ns.Netlink(t).AddrDel},
	} {
		if err := row.change(link, addr); err != nil {
			t.Fatal(err)
		}
		if got, _ := next(row.what); got != want {
			t.Errorf("%s: notified of %s, want %s", row.what, got, want)
		}
	}
	cancel()
	if got, watched := next("the end"); watched {
		t.Errorf("after the end: notified of %s", got)
	}
}
