package bpf_test

import (
	"fmt"
	"net/netip"
	"testing"

	"porin.dev/porin/cells/policy/engine"
	"porin.dev/porin/cells/policy/manifest"
	"porin.dev/porin/cells/policy/model"
	"porin.dev/porin/cells/policy/oracle"
)

// TestPolicyNames: packets to an address that were denied pass when a name has it: the first packet that follows, of
// the same connection.
func TestPolicyNames(t *testing.T) {
	p := newPolicyFixture(t)
	policies, err := manifest.Read([]byte(`
apiVersion: cilium.io/v2
kind: CiliumNetworkPolicy
metadata: {name: names, namespace: shop}
spec:
  endpointSelector: {matchLabels: {app: client}}
  egress:
  - toFQDNs: [{matchPattern: "*.example"}]
    toPorts: [{ports: [{port: "443", protocol: TCP}, {port: "443", protocol: UDP}]}]
  - toEndpoints: [{matchLabels: {app: server}}]
`))
	if err != nil {
		t.Fatal(err)
	}
	p.apply(t, engine.Update{SetPolicies: policies})
	o := &p.objects
	learn := func(addr netip.Addr) {
		t.Helper()
		p.apply(t, engine.Update{Domains: []engine.DomainChange{{Rule: model.DNSRule{Pattern: "*.example"}, Add: []netip.Addr{addr}}}})
	}
	send := func(to netip.Addr, protocol model.Protocol, port uint16) uint32 {
		c := policyConnection(p.client, to, protocol, port)
		wantVerdict(t, "of from_pod", p.runFrom(t, o.FromPod, p.client, skBuff{}, opening(p.client.mac, p.client.hostMAC, c, 40000)), toStack)
		return p.request(t, o.ToUplink, p.uplink, &p.client, opening(p.uplink.hostMAC, p.uplink.mac, c, 40000))
	}
	for _, to := range []netip.Addr{outsider, netip.MustParseAddr("2001:db8::9")} {
		for _, protocol := range []model.Protocol{model.TCP, model.UDP} {
			wantVerdict(t, fmt.Sprint(protocol, " before the name has the address"), send(to, protocol, 443), dropped)
		}
		learn(to)
		for _, protocol := range []model.Protocol{model.TCP, model.UDP} {
			wantVerdict(t, fmt.Sprint(protocol, " when it has"), send(to, protocol, 443), toNext)
			wantVerdict(t, fmt.Sprint(protocol, " to another port"), send(to, protocol, 80), dropped)
		}
		wantVerdict(t, "to the next address", send(to.Next(), model.TCP, 443), dropped)
	}
	// The server's address stays the server's: what names say gives no right to reach it, and takes none away.
	before := p.between(t, p.client, p.server, 40000, 80, syn)
	learn(p.server.ip4)
	wantVerdict(t, "to the server", p.between(t, p.client, p.server, 40001, 80, syn), before)
}

// policyConnection is a connection that a pod opens to an address of either family.
func policyConnection(from party, to netip.Addr, protocol model.Protocol, port uint16) oracle.Connection {
	c := oracle.Connection{From: from.ip4, To: to, Protocol: protocol, Port: port}
	if to.Is6() {
		c.From = from.ip6
	}
	return c
}
