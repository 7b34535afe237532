package ipam_test

import (
	"errors"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/cells/doctor"
	"porin.dev/porin/cells/ipam"
	"porin.dev/porin/internal/nl"
	"porin.dev/porin/internal/testutil"
)

// veth makes a pair of links between two namespaces, and returns the index of the near one, which is up.
func veth(t *testing.T, near, far *testutil.Namespace, name, peer string) int {
	t.Helper()
	link, err := near.AddVeth(testutil.Veth{Name: name, Peer: far, PeerName: peer})
	if err != nil {
		t.Fatal(err)
	}
	return link.Attrs().Index
}

func TestWhatTheKernelUsesAndIsNotPorinsDoing(t *testing.T) {
	testutil.Root(t)
	ns, far := testutil.NetNS(t), testutil.NetNS(t)
	theirs := veth(t, ns, far, "porter0", "eth0")
	ours := veth(t, ns, far, v1.HostInterfaceName("c1", "eth0"), "eth1")
	handle := ns.Netlink(t)
	route := func(text string, link int, protocol netlink.RouteProtocol) error {
		return handle.RouteAdd(&netlink.Route{
			Dst: nl.IPNet(netip.MustParsePrefix(text)), LinkIndex: link, Scope: netlink.SCOPE_LINK, Protocol: protocol,
		})
	}
	err := errors.Join(
		handle.AddrAdd(testutil.LinkAt(theirs), testutil.Address(netip.MustParsePrefix("10.0.0.9/24"))),
		route("10.0.0.2/32", ours, testutil.RouteProtocol), route("10.0.0.3/32", ours, unix.RTPROT_STATIC),
		route("10.0.0.4/32", theirs, testutil.RouteProtocol), route("10.0.0.0/28", theirs, unix.RTPROT_STATIC), route("fd00::4/128", theirs, 0),
	)
	if err != nil {
		t.Fatal(err)
	}
	var uses []ipam.Use
	err = ns.Do(func() (err error) {
		uses, err = ipam.NewKernel().Uses()
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, use := range uses {
		if use.Addr.IsPrivate() { // not the link-local ones of each link
			got = append(got, use.Addr.String())
		}
	}
	slices.Sort(got)
	if want := []string{"10.0.0.3", "10.0.0.4", "10.0.0.9", "fd00::4"}; !slices.Equal(got, want) {
		t.Errorf("uses of %v, want %v: %+v", got, want, uses)
	}
}

func TestExamineAddressInKernel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := begin(t, t.TempDir())
		l.start(t)
		l.add(t, "c1:eth0")
		use := func(addr string, own bool) ipam.Use {
			return ipam.Use{Addr: netip.MustParseAddr(addr), Own: own, Which: "thing of " + addr}
		}
		uses := kernel{
			use("10.0.0.2", false),                         // an endpoint's: for the datapath to judge
			use("10.0.0.1", true),                          // the gateway's, which is not given out
			use("10.0.0.6", false), use("10.0.0.6", false), // free
			use("10.1.0.6", false), use("192.0.2.1", true), // not of this node's prefixes
		}
		findings, err := l.checker(uses).Examine(t.Context(), "")
		if err != nil {
			t.Fatal(err)
		}
		wantKinds(t, findings, "address-foreign: 10.0.0.6")
		if want := "thing of 10.0.0.6, thing of 10.0.0.6; for the allocator it is nobody's"; findings[0].Detail != want || findings[0].Repair != nil {
			t.Errorf("found %+v, want %s", findings[0], want)
		}
		// An address that the node has itself is no container's, whoever was given it.
		findings, err = l.checker(kernel{use("10.0.0.2", true)}).Examine(t.Context(), "")
		if err != nil {
			t.Fatal(err)
		}
		wantKinds(t, findings, "address-foreign: 10.0.0.2")
		if findings, _ := l.checker(uses).Examine(t.Context(), "c1:eth0"); len(findings) > 0 {
			t.Errorf("about the endpoint alone: found %+v", findings)
		}
	})
}

// wantKinds checks that there is one finding of each kind, in the order of their subjects.
func wantKinds(t *testing.T, findings []doctor.Finding, want ...string) {
	t.Helper()
	var got []string
	for _, f := range findings {
		got = append(got, f.Kind+": "+f.Subject)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("findings (-want +got):\n%s\n%+v", diff, findings)
	}
}
