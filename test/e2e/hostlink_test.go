package e2e

import (
	"encoding/binary"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/internal/rtnl"
	"porin.dev/porin/internal/testutil"
)

// newLink makes an interface of a kind that has no parameters, as a bridge.
func newLink(name, kind string) rtnl.Request {
	attr := func(typ uint16, value []byte) []byte {
		out := binary.NativeEndian.AppendUint16(nil, uint16(unix.SizeofRtAttr+len(value)))
		out = append(binary.NativeEndian.AppendUint16(out, typ), value...)
		return append(out, make([]byte, -len(out)&3)...)
	}
	body := append(make([]byte, unix.SizeofIfInfomsg), attr(unix.IFLA_IFNAME, append([]byte(name), 0))...)
	body = append(body, attr(unix.IFLA_LINKINFO, attr(unix.IFLA_INFO_KIND, append([]byte(kind), 0)))...)
	return rtnl.Request{What: "create " + kind + " " + name, Type: unix.RTM_NEWLINK, Flags: unix.NLM_F_CREATE | unix.NLM_F_EXCL, Body: body}
}

func TestAHostNameInUseIsReplaced(t *testing.T) {
	r := newRig(t)
	elsewhere := testutil.NetNS(t)
	for kind, occupy := range map[string]func(name string) rtnl.Request{
		"a veth that belongs to nobody": func(name string) rtnl.Request {
			return rtnl.NewVeth(rtnl.Veth{Name: name, MAC: rtnl.MAC{2, 9}, Peer: rtnl.VethPeer{Name: "other", MAC: rtnl.MAC{2, 8}, NetNS: elsewhere.FD()}})
		},
		"a bridge": func(name string) rtnl.Request { return newLink(name, "bridge") },
	} {
		c := testutil.NewContainer(t)
		if err := r.node.Conn(t).Do(occupy(v1.HostInterfaceName(c.ID, c.IfName))); err != nil {
			t.Fatal(err)
		}
		p := r.add(c)
		if err := testutil.Ping(p.Namespace, r.node.IPv6, reach); err != nil {
			t.Errorf("%s: %v", kind, err)
		}
		if err := r.cni.Check(c); err != nil {
			t.Errorf("%s: CHECK: %v", kind, err)
		}
		r.cni.MustDel(t, c)
	}
	r.nothingLeft()
}

func TestALinkThatIsNoVethIsNeitherWiredNorRemoved(t *testing.T) {
	r := newRig(t)
	host := v1.HostInterfaceName("c1", "eth0")
	conn := r.node.Conn(t)
	var bridge rtnl.Link
	if err := conn.Do(newLink(host, "bridge"), rtnl.LinkByName(host, &bridge)); err != nil {
		t.Fatal(err)
	}
	request := v1.EndpointRequest{
		Host:      v1.Interface{Name: host, Index: bridge.Index, MAC: bridge.MAC.String()},
		Container: v1.Interface{Name: "eth0", MAC: "02:00:00:00:00:01"},
	}
	if _, err := r.api.CreateEndpoint(t.Context(), "c1", "eth0", request); err == nil || !strings.Contains(err.Error(), "bridge") {
		t.Errorf("error %v, want one that names the bridge", err)
	}
	if err := conn.Do(rtnl.LinkByIndex(bridge.Index, &bridge)); err != nil {
		t.Errorf("the bridge: %v", err)
	}
	if all := r.endpoints(); len(all) > 0 {
		t.Errorf("endpoints: %+v", all)
	}
	if err := conn.Do(rtnl.DelLink(bridge.Index)); err != nil {
		t.Fatal(err)
	}
	r.nothingLeft()
}

func TestANodeWithoutAnUplink(t *testing.T) {
	testutil.Root(t)
	node := testutil.NewNode(t)
	if err := node.Conn(t).Do(rtnl.DelLinkByName("eth0")); err != nil {
		t.Fatal(err)
	}
	r := rigOn(t, node)
	a, b := r.pod(), r.pod()
	for _, addr := range []struct{ from, to pod }{{a, b}, {b, a}} {
		if err := testutil.Ping(addr.from.Namespace, addr.to.ipv4, reach); err != nil {
			t.Error(err)
		}
		if err := testutil.RoundTrip(addr.from.Namespace, addr.to.Echo(t, addr.to.ipv6), reach); err != nil {
			t.Error(err)
		}
	}
	r.agent.Restart(t)
	r.cni.MustDel(t, a.Container)
	r.cni.MustDel(t, b.Container)
	r.nothingLeft()
}

func TestTheNodeBecomesARouterAndNothingElseOfItChanges(t *testing.T) {
	testutil.Root(t)
	node := testutil.NewNode(t)
	snapshot := func() (s testutil.HostSnapshot) {
		if err := node.Do(func() (err error) { s, err = testutil.TakeHostSnapshot(); return err }); err != nil {
			t.Fatal(err)
		}
		return s
	}
	before := snapshot()
	r := rigOn(t, node)
	p := r.pod()
	if err := testutil.Ping(p.Namespace, node.IPv4, reach); err != nil {
		t.Error(err)
	}
	r.cni.MustDel(t, p.Container)
	r.agent.Stop(t)
	for line := range strings.Lines(before.Diff(snapshot())) {
		if !strings.Contains(line, "forward") && !strings.Contains(line, "conf/all/accept_redirects") { // which the kernel ties to it
			t.Errorf("changed: %s", line)
		}
	}
}

func TestAContainerReachesTheWorldOutsideThatKnowsTheWayBack(t *testing.T) {
	r := newRig(t)
	p := r.pod()
	var uplink rtnl.Link
	conn := r.node.Fabric.Conn(t)
	if err := conn.Do(rtnl.LinkByName(r.node.Name, &uplink)); err != nil {
		t.Fatal(err)
	}
	err := conn.Do(
		rtnl.AddRoute(rtnl.Route{Dst: prefixOf(p.ipv4), Gateway: r.node.IPv4, Link: uplink.Index}),
		rtnl.AddRoute(rtnl.Route{Dst: prefixOf(p.ipv6), Gateway: r.node.IPv6, Link: uplink.Index}),
	)
	if err != nil {
		t.Fatal(err)
	}
	if err := testutil.Ping(p.Namespace, testutil.OutsideIPv4, reach); err != nil {
		t.Error(err)
	}
	if err := testutil.RoundTrip(p.Namespace, r.node.Fabric.Echo(t, testutil.OutsideIPv6), reach); err != nil {
		t.Error(err)
	}
}
