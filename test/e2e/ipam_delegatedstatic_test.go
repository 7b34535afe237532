package e2e

import (
	"net/netip"
	"testing"

	types100 "github.com/containernetworking/cni/pkg/types/100"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/internal/testutil"
)

// staticRig is a rig with the real static, which gives every container the addresses of its section.
func staticRig(t *testing.T) *delegatedRig {
	t.Helper()
	r := delegateTo(t, "static")
	r.ipam = map[string]any{
		"type": "static",
		"addresses": []any{
			map[string]any{"address": "10.201.0.7/24", "gateway": "10.201.0.1"}, map[string]any{"address": "fd00:201::7/64"},
		},
		"routes": []any{
			map[string]any{"dst": "0.0.0.0/0"}, map[string]any{"dst": "198.51.100.0/24", "gw": "10.201.0.1"}, map[string]any{"dst": "2001:db8:1::/48"},
		},
		"dns": map[string]any{"nameservers": []string{"10.201.0.53"}, "domain": "static.test", "search": []string{"static.test"}},
	}
	r.cni = r.runtime("porin", r.ipam)
	return r
}

func TestStaticIPAM(t *testing.T) {
	r := staticRig(t)
	c := testutil.NewContainer(t)
	result := r.cni.MustAdd(t, c)
	wantIPs(t, result, "10.201.0.7/32", "fd00:201::7/128")
	routes := map[string]string{}
	for _, route := range result.Routes {
		routes[route.Dst.String()] = route.GW.String()
	}
	four, six := v1.GatewayIPv4.String(), v1.GatewayIPv6.String()
	for dst, gw := range map[string]string{"0.0.0.0/0": four, "198.51.100.0/24": four, "::/0": six, "2001:db8:1::/48": six} {
		if routes[dst] != gw {
			t.Errorf("route to %s by %q, want %s", dst, routes[dst], gw)
		}
	}
	dns := result.DNS
	if len(routes) != 4 || dns.Domain != "static.test" || len(dns.Nameservers) != 1 || len(dns.Search) != 1 {
		t.Errorf("routes %v, dns %+v", routes, dns)
	}
	for name, err := range map[string]error{
		"CHECK": r.cni.Check(c), "STATUS": r.cni.Status(), "GC": r.cni.GC(c), "ping": testutil.Ping(c.Namespace, r.node.IPv4, reach),
		"ping from the node": r.node.Do(func() error { return testutil.Ping(r.node.Namespace, netip.MustParseAddr("fd00:201::7"), reach) }),
	} {
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	r.agrees()
	r.cni.MustDel(t, c)
	r.nothingLeft()
}

// TestStaticIPAMAddressInUse has static give an address twice, as it keeps no books: the agent does.
func TestStaticIPAMAddressInUse(t *testing.T) {
	r := staticRig(t)
	first := r.pod()
	second := testutil.NewContainer(t)
	for range 2 {
		_, err := r.cni.Add(second)
		failedWith(t, err, "in use")
		failedAs(t, err, 101)
	}
	if names := second.LinkNames(t); len(names) != 1 {
		t.Errorf("the second has links %v", names)
	}
	if err := testutil.Ping(first.Namespace, r.node.IPv4, reach); err != nil {
		t.Error(err)
	}
	if err := r.cni.Check(first.Container); err != nil {
		t.Error(err)
	}
	r.agrees()
	r.cni.MustDel(t, second)
	if err := testutil.Ping(first.Namespace, r.node.IPv4, reach); err != nil {
		t.Errorf("after the DEL of the second: %v", err)
	}
	r.cni.MustDel(t, first.Container)
	r.cni.MustAdd(t, second) // which has no quarantine to wait for, as nothing of another IPAM's is ever released here
	r.cni.MustDel(t, second)
	r.nothingLeft()
}

// TestStaticIPAMRequestedAddress comes by CNI_ARGS or the capability; the agent's own pools have no say.
func TestStaticIPAMRequestedAddress(t *testing.T) {
	r := staticRig(t)
	r.cni = r.runtime("porin", map[string]any{"type": "static"})
	byArgs, byCaps, byNone := testutil.NewContainer(t), testutil.NewContainer(t), testutil.NewContainer(t)
	byArgs.Args = [][2]string{{"IgnoreUnknown", "1"}, {"IP", "10.201.0.8/24,fd00:201::8/64"}, {"GATEWAY", "10.201.0.1"}, {"PORIN_POOL", "blue"}}
	byCaps.Caps = map[string]any{"ips": []string{"fd00:201::9/64", "10.201.0.9/24"}}
	wantIPs(t, r.cni.MustAdd(t, byArgs), "10.201.0.8/32", "fd00:201::8/128")
	wantIPs(t, r.cni.MustAdd(t, byCaps), "10.201.0.9/32", "fd00:201::9/128")
	_, err := r.cni.Add(byNone)
	failedWith(t, err, "answer of the IPAM plugin static: it has no address")
	for name, addr := range map[string]string{"10.201.0.8": "10.201.0.8", "fd00:201::9": "fd00:201::9"} {
		if err := testutil.Ping(r.node.Namespace, netip.MustParseAddr(addr), reach); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := r.cni.Check(byCaps); err != nil {
		t.Error(err)
	}
	for _, c := range []*testutil.Container{byArgs, byCaps, byNone} {
		r.cni.MustDel(t, c)
	}
	r.nothingLeft()
}

// TestStaticIPAMBadAddresses are given back, and the agent says what is wrong with them.
func TestStaticIPAMBadAddresses(t *testing.T) {
	r := staticRig(t)
	for addr, words := range map[string]string{
		"127.0.0.1/8": "127.0.0.1", "224.0.0.5/24": "224.0.0.5", "0.0.0.0/0": "0.0.0.0", "fe80::7/64": "fe80::7", "255.255.255.255/32": "255.255.255.255",
		r.node.IPv4.String() + "/24": r.node.IPv4.String(), "169.254.1.1/16": "169.254.1.1",
	} {
		network := r.runtime("porin", map[string]any{"type": "static", "addresses": []any{map[string]any{"address": addr}}})
		c := testutil.NewContainer(t)
		_, err := network.Add(c)
		failedWith(t, err, words)
		network.MustDel(t, c)
	}
	r.agrees()
	r.nothingLeft()
}

func wantIPs(t *testing.T, result *types100.Result, want ...string) {
	t.Helper()
	got := map[string]bool{}
	for _, ip := range result.IPs {
		got[ip.Address.String()] = true
	}
	for _, ip := range want {
		if !got[ip] || len(got) != len(want) {
			t.Errorf("addresses %v, want %s", got, want)
		}
	}
}

// TestStaticIPAMSecondInterface, whose default route is the lesser one.
func TestStaticIPAMSecondInterface(t *testing.T) {
	r := staticRig(t)
	first := r.pod()
	second := *first.Container
	second.IfName = "net1"
	net1 := r.runtime("other", map[string]any{
		"type": "static", "addresses": []any{map[string]any{"address": "10.201.1.7/24"}},
		"routes": []any{map[string]any{"dst": r.node.IPv4.String() + "/32"}},
	})
	net1.MustAdd(t, &second)
	before := r.sent(first.ID + ":eth0")
	if err := testutil.Ping(first.Namespace, r.node.IPv4, reach); err != nil {
		t.Error(err)
	}
	if got := r.sent(first.ID + ":net1"); got == 0 {
		t.Error("nothing went by the second interface")
	}
	if got := r.sent(first.ID + ":eth0"); got != before {
		t.Errorf("%d packets went by the first", got-before)
	}
	if err := net1.Check(&second); err != nil {
		t.Error(err)
	}
	net1.MustDel(t, &second)
	r.cni.MustDel(t, first.Container)
	r.nothingLeft()
}

// sent is how many packets came from an attachment.
func (r *delegatedRig) sent(attachment string) uint64 {
	r.Helper()
	ep, err := r.api.Endpoint(r.Context(), "cni-attachment-id:"+attachment)
	if err != nil || ep.Traffic == nil {
		r.Fatalf("endpoint %+v, %v", ep, err)
	}
	return ep.Traffic.FromPod.Packets
}
