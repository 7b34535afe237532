package bpf_test

import (
	"net/netip"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"porin.dev/porin/cells/policy/engine"
	"porin.dev/porin/cells/policy/manifest"
)

// icmpMessage has a type, and as an echo the identifier 7.
func icmpMessage(from, to party, six bool, typ uint8) []byte {
	src, dst, protocol := from.ip4, to.ip4, layers.IPProtocolICMPv4
	if six {
		src, dst, protocol = from.ip6, to.ip6, layers.IPProtocolICMPv6
	}
	header, etherType := network(src, dst, protocol)
	identifier := byte(7)
	if !isEcho(six, typ) {
		identifier = 0
	}
	return frame(ether(from.mac, from.hostMAC, etherType), header, gopacket.Payload{typ, 0, 0, 0, 0, identifier, 0, 1, 0, 0, 0, 0})
}

func isEcho(six bool, typ uint8) bool {
	if six {
		return typ == 128 || typ == 129
	}
	return typ == 8 || typ == 0
}

// TestPolicyICMP: rules of Cilium's policies for types of ICMP. Replies need no rule.
func TestPolicyICMP(t *testing.T) {
	const echoes = "icmps: [{fields: [{type: 8}, {family: IPv6, type: EchoRequest}]}]"
	const others = "icmps: [{fields: [{type: Timestamp}, {family: IPv6, type: 139}]}]"
	for name, row := range map[string]struct {
		spec             string
		echo, other, syn uint32 // what becomes of packets to the server
	}{
		"accept echo requests to the server": {"egress: [{toEndpoints: [{matchLabels: {app: server}}], " + echoes + "}]", toStack, dropped, dropped},
		"accept them to another":             {"egress: [{toEndpoints: [{matchLabels: {app: other}}], " + echoes + "}]", dropped, dropped, dropped},
		"accept without fields":              {"egress: [{toEndpoints: [{}], icmps: [{}]}]", dropped, dropped, dropped},
		"deny echo requests":                 {"egressDeny: [{" + echoes + "}], egress: [{toEntities: [all]}]", dropped, dropped, toStack},
		"deny another type":                  {"egressDeny: [{" + others + "}], egress: [{toEntities: [all]}]", toStack, dropped, toStack},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPolicyFixture(t)
			policies, err := manifest.Read([]byte("apiVersion: cilium.io/v2\nkind: CiliumNetworkPolicy\nmetadata: {name: ping, namespace: shop}\nspec: {endpointSelector: {matchLabels: {app: client}}, " + row.spec + "}\n"))
			if err != nil {
				t.Fatal(err)
			}
			p.apply(t, engine.Update{SetPolicies: policies})
			for _, six := range []bool{false, true} {
				request, reply, other := uint8(8), uint8(0), uint8(13)
				if six {
					request, reply, other = 128, 129, 139
				}
				wantVerdict(t, "echo request", p.request(t, p.objects.ToPod, p.server, &p.client, icmpMessage(p.client, p.server, six, request)), row.echo)
				silent := icmpMessage(p.client, p.server, six, request) // with the identifier 0
				silent[len(silent)-7] = 0
				if row.echo == dropped {
					wantVerdict(t, "echo request with the identifier 0", p.request(t, p.objects.ToPod, p.server, &p.client, silent), dropped)
				}
				wantVerdict(t, "another type", p.request(t, p.objects.ToPod, p.server, &p.client, icmpMessage(p.client, p.server, six, other)), row.other)
				p.forgetConnections(t)
				verdict, _ := p.run(t, p.objects.ToPod, p.client, icmpMessage(p.server, p.client, six, request))
				wantVerdict(t, "echo request of the other side", verdict, toStack)
				verdict, _ = p.run(t, p.objects.FromPod, p.client, icmpMessage(p.client, p.server, six, reply))
				wantVerdict(t, "its reply", verdict, toStack)
				p.forgetConnections(t)
			}
			opening := segment(p.client.mac, p.client.hostMAC, netip.AddrPortFrom(p.client.ip4, clientPort), netip.AddrPortFrom(p.server.ip4, serverPort), syn)
			wantVerdict(t, "a SYN", p.request(t, p.objects.ToPod, p.server, &p.client, opening), row.syn)
		})
	}
}
