package e2e

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"porin.dev/porin/internal/testutil"
)

// nodeAddress gives a bridge of the node an address, or takes it away.
func nodeAddress(t *testing.T, node *testutil.Node, change func(netlink.Link, *netlink.Addr) error, addr netip.Addr) {
	t.Helper()
	must(t, node.Do(func() error {
		cni0, err := netlink.LinkByName("cni0")
		if err != nil {
			return err
		}
		return change(cni0, &netlink.Addr{IPNet: netlink.NewIPNet(addr.AsSlice())})
	}))
}

// Another agent has left its bridge, with addresses that lie in the node's prefixes now.
func TestNodeAddress(t *testing.T) {
	node := testutil.NewNode(t)
	must(t, node.Do(func() error {
		return netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "cni0"}})
	}))
	left4, left6 := netip.MustParseAddr("10.100.1.2"), netip.MustParseAddr("fd00:10:1::3")
	nodeAddress(t, node, netlink.AddrAdd, left4)
	nodeAddress(t, node, netlink.AddrAdd, left6)
	r := rigOn(t, node)
	a, b := r.pod(), r.pod()
	for _, p := range []pod{a, b} {
		if p.ipv4 == left4 || p.ipv6 == left6 {
			t.Errorf("a container got %s and %s, of which the node has one", p.ipv4, p.ipv6)
		}
		if err := testutil.Ping(node.Namespace, p.ipv4, reach); err != nil {
			t.Error(err)
		}
	}
	if log := r.agent.Log(); strings.Count(log, "ip=10.100.1.2 ifname=cni0") != 1 {
		t.Error("the log does not name 10.100.1.2 of cni0 once")
	}
	if out, err := r.porin("ipam", "list"); err != nil || !strings.Contains(out, "10.100.1.2    default  the node itself") {
		t.Errorf("porin ipam list: %v\n%s", err, out)
	}
	answer := r.checked()
	r.wantChecked(answer, "", "")
	if got := namesOf(answer.Notes); got != "address-of-node address-of-node" {
		t.Errorf("notes %q: %+v", got, answer.Notes)
	}

	// What a container has already is found, and stays.
	nodeAddress(t, node, netlink.AddrAdd, a.ipv4)
	r.wantChecked(r.checked(), "", "address-foreign")
	r.agent.Restart(t)
	r.wantChecked(r.checked(), "", "address-foreign")
	if log := r.agent.Log(); !strings.Contains(log, "level=ERROR") || !strings.Contains(log, "ip="+a.ipv4.String()) {
		t.Error("the log does not name the address that the node has got")
	}
	nodeAddress(t, node, netlink.AddrDel, a.ipv4)
	r.wantChecked(r.checked(), "", "")
	if len(r.endpoints()) != 2 {
		t.Errorf("endpoints %+v, want two", r.endpoints())
	}
}
