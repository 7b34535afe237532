package node

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"

	"porin.dev/porin/internal/testutil"
)

// device is an interface of a node, which is up.
type device struct {
	name      string
	mtu       int
	addresses []string
}

// newKernel opens the kernel of a namespace with these interfaces; the first has the lowest index.
func newKernel(t *testing.T, devices ...device) (*netlinkKernel, *netlink.Handle) {
	t.Helper()
	ns := testutil.NetNS(t)
	handle := ns.Netlink(t)
	for _, d := range devices {
		err := handle.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: d.name, MTU: d.mtu}})
		if err != nil {
			t.Fatal(err)
		}
		link := ns.Link(t, d.name)
		for _, addr := range d.addresses {
			err = errors.Join(err, handle.AddrAdd(link, testutil.Address(netip.MustParsePrefix(addr))))
		}
		if err = errors.Join(err, handle.LinkSetUp(link)); err != nil {
			t.Fatal(err)
		}
	}
	var kernel *netlinkKernel
	if err := ns.Do(func() (err error) { kernel, err = openKernel(); return err }); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := kernel.close(); err != nil {
			t.Error(err)
		}
	})
	return kernel, handle
}

// addMultipath adds a default route by several gateways.
func addMultipath(t *testing.T, handle *netlink.Handle, to string, hops ...*netlink.NexthopInfo) {
	t.Helper()
	_, dst, err := net.ParseCIDR(to)
	if err == nil {
		err = handle.RouteAdd(&netlink.Route{Dst: dst, MultiPath: hops})
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestAddressesMultipath: the node has two uplinks, and the interface of something else comes before them.
func TestAddressesMultipath(t *testing.T) {
	kernel, handle := newKernel(t,
		device{name: "docker0", addresses: []string{"172.17.0.1/16", "fd17::1/64"}},
		device{name: "eth0", addresses: []string{"192.0.2.1/24", "2001:db8::1/64"}},
		device{name: "eth1", addresses: []string{"198.51.100.1/24", "2001:db8:1::1/64"}},
	)
	hop := func(name, via string) *netlink.NexthopInfo {
		link, err := handle.LinkByName(name)
		if err != nil {
			t.Fatal(err)
		}
		return &netlink.NexthopInfo{LinkIndex: link.Attrs().Index, Gw: netip.MustParseAddr(via).AsSlice(), Flags: int(netlink.FLAG_ONLINK)}
	}
	addMultipath(t, handle, "0.0.0.0/0", hop("eth0", "192.0.2.254"), hop("eth1", "198.51.100.254"))
	addMultipath(t, handle, "::/0", hop("eth0", "2001:db8::fe"), hop("eth1", "2001:db8:1::fe"))
	got, err := kernel.Addresses()
	if err != nil {
		t.Fatal(err)
	}
	want := []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")}
	if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
		t.Errorf("addresses of the node (-want +got):\n%s", diff)
	}
}

// TestMTUMultipath: the node's address is on lo, as with routing to the host, and the uplinks have large packets.
func TestMTUMultipath(t *testing.T) {
	kernel, handle := newKernel(t,
		device{name: "eth0", mtu: 9000, addresses: []string{"192.0.2.1/24"}},
		device{name: "eth1", mtu: 8000, addresses: []string{"198.51.100.1/24"}},
	)
	own := netip.MustParseAddr("203.0.113.1")
	lo, err := handle.LinkByName("lo")
	if err == nil {
		err = errors.Join(handle.LinkSetUp(lo), handle.AddrAdd(lo, testutil.Address(netip.PrefixFrom(own, 32))))
	}
	if err != nil {
		t.Fatal(err)
	}
	var hops []*netlink.NexthopInfo
	for name, via := range map[string]string{"eth0": "192.0.2.254", "eth1": "198.51.100.254"} {
		link, err := handle.LinkByName(name)
		if err != nil {
			t.Fatal(err)
		}
		hops = append(hops, &netlink.NexthopInfo{LinkIndex: link.Attrs().Index, Gw: netip.MustParseAddr(via).AsSlice(), Flags: int(netlink.FLAG_ONLINK)})
	}
	addMultipath(t, handle, "0.0.0.0/0", hops...)
	if mtu, err := kernel.mtuOf(own); err != nil || mtu != 8000 {
		t.Errorf("MTU %d, %v, want that of the smaller uplink", mtu, err)
	}
}

// internalIPs are the addresses of a Node.
type internalIPs []netip.Addr

func (i internalIPs) Identity() (string, []netip.Addr, <-chan struct{}) { return "uid", i, nil }

func (internalIPs) HasPodCIDR(context.Context, string, netip.Prefix) (bool, error) { return false, nil }

// TestAddressesInternalIP: an InternalIP of the Node goes before the address of the default route, if an interface has
// it.
func TestAddressesInternalIP(t *testing.T) {
	kernel, handle := newKernel(t, device{name: "eth0", addresses: []string{"192.0.2.1/24", "2001:db8::1/64"}}, device{name: "eth1", addresses: []string{"198.51.100.1/24"}})
	eth0, err := handle.LinkByName("eth0")
	if err != nil {
		t.Fatal(err)
	}
	addMultipath(t, handle, "0.0.0.0/0", &netlink.NexthopInfo{LinkIndex: eth0.Attrs().Index, Gw: netip.MustParseAddr("192.0.2.254").AsSlice(), Flags: int(netlink.FLAG_ONLINK)})
	for name, row := range map[string]struct {
		fixed, internal, want []netip.Addr
	}{
		"none":              {nil, nil, addresses("192.0.2.1", "2001:db8::1")},
		"of the second":     {nil, addresses("198.51.100.1"), addresses("198.51.100.1", "2001:db8::1")},
		"of no interface":   {nil, addresses("203.0.113.1"), addresses("192.0.2.1", "2001:db8::1")},
		"the configuration": {addresses("192.0.2.1"), addresses("198.51.100.1"), addresses("192.0.2.1", "2001:db8::1")},
	} {
		got, err := (&observer{fixed: row.fixed, object: internalIPs(row.internal), kernel: kernel}).addresses()
		if err != nil || !slices.Equal(got, row.want) {
			t.Errorf("%s: %v, %v, want %v", name, got, err, row.want)
		}
	}
}
