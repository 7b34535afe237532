package e2e

import (
	"net/netip"
	"testing"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/internal/rtnl"
	"porin.dev/porin/internal/testutil"
)

// external attaches a container by the API, with addresses that another IPAM has given.
func (r *rig) external(c *testutil.Container, addresses v1.Addresses) error {
	r.Helper()
	host := v1.Interface{Name: v1.HostInterfaceName(c.ID, c.IfName)}
	var peer string
	host.MAC, peer = v1.InterfaceMACs(c.ID, c.IfName)
	hostMAC, err1 := rtnl.ParseMAC(host.MAC)
	peerMAC, err2 := rtnl.ParseMAC(peer)
	var link rtnl.Link
	err3 := r.node.Conn(r).Do(
		rtnl.NewVeth(rtnl.Veth{Name: host.Name, MAC: hostMAC, Peer: rtnl.VethPeer{Name: c.IfName, MAC: peerMAC, NetNS: c.FD()}}),
		rtnl.LinkByName(host.Name, &link),
	)
	for _, err := range []error{err1, err2, err3} {
		if err != nil {
			r.Fatal(err)
		}
	}
	host.Index = link.Index
	_, err := r.api.CreateEndpoint(r.Context(), c.ID, c.IfName, v1.EndpointRequest{
		Network: "porin", NetNS: c.Path(), Host: host, Container: v1.Interface{Name: c.IfName, MAC: peer},
		Addresses: addresses, ExternalIPAM: true,
	})
	if err != nil {
		_ = r.node.Conn(r).Do(rtnl.DelLink(link.Index)) // as the plugin does
	}
	return err
}

func TestAnAddressOfAnotherIPAMIsNeitherGivenOutNorReleased(t *testing.T) {
	r := newRig(t)
	// The first that this agent would give out itself.
	theirs := v1.Addresses{IPv4: netip.MustParseAddr("10.100.1.2"), IPv6: netip.MustParseAddr("fd00:10:1::2")}
	c := testutil.NewContainer(t)
	if err := r.external(c, theirs); err != nil {
		t.Fatal(err)
	}
	for _, when := range []string{"at first", "after a restart"} {
		if p := r.pod(); p.ipv4 == theirs.IPv4 || p.ipv6 == theirs.IPv6 {
			t.Errorf("%s: %s and %s were given out, which are another's", when, p.ipv4, p.ipv6)
		}
		r.agent.Restart(t)
	}
	if err := r.external(testutil.NewContainer(t), theirs); err == nil {
		t.Error("two endpoints have the address")
	}
	r.agrees()
	r.cni.MustDel(t, c)
	for _, pool := range r.usage().Pools {
		for _, used := range pool.Ranges {
			if used.Used != 2 || used.Quarantined != 0 {
				t.Errorf("%s: %+v, want the two of this agent's own in use", used.Prefix, used)
			}
		}
	}
}
