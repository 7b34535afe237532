package e2e

import (
	"net/netip"
	"testing"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/internal/testutil"
)

// external attaches a container by the API, with addresses that another IPAM has given.
func (r *rig) external(c *testutil.Container, addresses v1.Addresses) error {
	r.Helper()
	_, err := r.api.CreateEndpoint(r.Context(), c.ID, c.IfName, c.File(), v1.EndpointRequest{
		Network: "porin", NetNS: c.Path(), Addresses: addresses, ExternalIPAM: true,
	})
	return err
}

func TestExternalIPAM(t *testing.T) {
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
