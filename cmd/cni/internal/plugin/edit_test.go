package plugin_test

import (
	"errors"
	"fmt"
	"net/netip"
	"os"

	"github.com/rogpeppe/go-internal/testscript"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/internal/rtnl"
	"porin.dev/porin/internal/testutil"
)

// edit changes a container as people, or other programs, do.
func (w *story) edit(ts *testscript.TestScript, _ bool, args []string) {
	ts.Check(w.change(w.containers[args[0]], args[1]))
}

func (w *story) change(ctr *testutil.Container, what string) error {
	if what == "gone" {
		ctr.Close()
		return nil
	}
	if what == "no-ipv6" {
		ctr.Sysctl(w.t, "net/ipv6/conf/all/disable_ipv6", "1")
		ctr.Sysctl(w.t, "net/ipv6/conf/default/disable_ipv6", "1")
		return nil
	}
	conn := ctr.Conn(w.t)
	var eth0 rtnl.Link
	if err := conn.Do(rtnl.LinkByName("eth0", &eth0)); err != nil {
		return err
	}
	requests := map[string]rtnl.Request{
		"down":           rtnl.LinkDown(eth0.Index),
		"no-link":        rtnl.DelLink(eth0.Index),
		"no-addr":        rtnl.DelAddr(eth0.Index, netip.MustParsePrefix("10.0.0.1/32")),
		"no-route":       rtnl.DelRoute(rtnl.Route{Dst: netip.MustParsePrefix("::/0"), Link: eth0.Index}),
		"no-given-route": rtnl.DelRoute(rtnl.Route{Dst: netip.MustParsePrefix("198.51.100.0/24"), Link: eth0.Index}),
		"no-neigh":       rtnl.DelNeigh(eth0.Index, v1.GatewayIPv4),
	}
	request, ok := requests[what]
	if !ok {
		return fmt.Errorf("edit %s?", what)
	}
	return conn.Do(request)
}

func (w *story) nodeAddress(ts *testscript.TestScript, _ bool, args []string) {
	const lo = 1
	ts.Check(w.node.Do(rtnl.AddAddr(lo, netip.MustParsePrefix(args[0]))))
}

// junk makes what an ADD that was killed, or another plugin, may leave: the names of both ends, each on a link of its
// own.
func (w *story) junk(ts *testscript.TestScript, _ bool, args []string) {
	ctr, ifname := w.containers[args[0]], args[1]
	pod := ctr.Conn(w.t)
	var l rtnl.Link
	ts.Check(errors.Join(
		w.node.Do(rtnl.NewVeth(rtnl.Veth{
			Name: v1.HostInterfaceName(ctr.ID, ifname), MAC: rtnl.MAC{2, 9}, Peer: rtnl.VethPeer{Name: "junk0", MAC: rtnl.MAC{2, 8}, NetNS: w.FD()},
		})),
		pod.Do(rtnl.NewVeth(rtnl.Veth{Name: ifname, MAC: rtnl.MAC{2, 7}, Peer: rtnl.VethPeer{Name: "junk1", MAC: rtnl.MAC{2, 6}, NetNS: ctr.FD()}})),
		pod.Do(rtnl.LinkByName(ifname, &l), rtnl.ReplaceAddr(l.Index+1, netip.MustParsePrefix("192.0.2.1/32"))),
	))
}

func (w *story) alias(ts *testscript.TestScript, _ bool, args []string) {
	name := v1.HostInterfaceName(w.containers[args[0]].ID, "eth0")
	if len(args) > 1 {
		ts.Check(w.node.Do(rtnl.SetAlias(name, args[1])))
		return
	}
	var l rtnl.Link
	ts.Check(w.node.Do(rtnl.LinkByName(name, &l)))
	fmt.Fprintln(ts.Stdout(), l.Alias)
}

func (w *story) sysctl(ts *testscript.TestScript, _ bool, args []string) {
	ts.Check(w.containers[args[0]].Do(func() error {
		value, err := os.ReadFile("/proc/sys/" + args[1])
		_, _ = ts.Stdout().Write(value)
		return err
	}))
}
