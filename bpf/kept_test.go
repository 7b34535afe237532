package bpf_test

import (
	"net/netip"
	"testing"

	"github.com/gopacket/gopacket/layers"

	"porin.dev/porin/bpf"
	"porin.dev/porin/cells/policy/engine"
	"porin.dev/porin/cells/policy/model"
)

// getFromOutside has layer 7 rules for what the client asks of other hosts.
const getFromOutside = "{endpointSelector: {matchLabels: {app: client}}, egress: [{toPorts: [{ports: [{port: '80', protocol: TCP}], rules: {http: [{method: GET}]}}]}]}"

// deny denies what the layer 7 rules of the policy accept.
func (p *policyFixture) deny(t testing.TB) {
	t.Helper()
	p.policy(t, "isolate", isolate)
	p.apply(t, engine.Update{RemovePolicies: []model.PolicyID{{Kind: model.KindCiliumNetworkPolicy, Namespace: "shop", Name: "get"}}})
}

// TestKeptShortcut has rules appear for a connection past the stack: it goes on, until its ports are another's or policy denies it.
func TestKeptShortcut(t *testing.T) {
	for name, spec := range map[string]string{"egress": getFromServer, "ingress": getFromClient} {
		t.Run(name, func(t *testing.T) {
			p := newPolicyFixture(t, bpf.KeepOpen)
			open := func() {
				t.Helper()
				wantVerdict(t, "SYN", p.fromClient(t, syn), deliver)
				wantVerdict(t, "SYN-ACK", p.fromServer(t, synACK), deliver)
				p.cilium(t, "get", spec)
				wantVerdict(t, "the server's segment", p.fromServer(t, ack), deliver)
				wantVerdict(t, "the client's segment", p.fromClient(t, ack), deliver)
			}
			open()
			p.forgetEntryOf(t, p.client)
			wantVerdict(t, "the client's segment without its entry", p.fromClient(t, ack), deliver)
			wantVerdict(t, "another port", p.between(t, p.client, p.server, clientPort+1, serverPort, syn), toStack)
			wantVerdict(t, "a SYN of the same port", p.fromClient(t, syn), toStack)
			wantVerdict(t, "a SYN of the same port, to the proxy", p.request(t, p.objects.ToPod, p.server, &p.client, p.down(p.client.ip4, syn)), deliver)
			p.cilium(t, "other", getFromServer)
			wantVerdict(t, "a segment after the SYN", p.fromClient(t, ack), toStack)
			wantVerdict(t, "a segment after the SYN, to the proxy", p.request(t, p.objects.ToPod, p.server, &p.client, p.down(p.client.ip4, ack)), deliver)
			wantVerdict(t, "the server's segment after the SYN", p.fromServer(t, ack), dropped)
			p.apply(t, engine.Update{RemovePolicies: []model.PolicyID{
				{Kind: model.KindCiliumNetworkPolicy, Namespace: "shop", Name: "get"}, {Kind: model.KindCiliumNetworkPolicy, Namespace: "shop", Name: "other"},
			}})
			p.forgetConnections(t)
			open()
			p.deny(t)
			wantVerdict(t, "the client's segment that policy denies", p.fromClient(t, ack), dropped)
			wantVerdict(t, "the server's segment that policy denies", p.fromServer(t, ack), dropped)
		})
	}
}

// forgetEntryOf removes the pod's entries, but not those of others.
func (p *policyFixture) forgetEntryOf(t testing.TB, pod party) {
	t.Helper()
	for key, c := range p.connections(t) {
		if c.Id == pod.id {
			if err := p.objects.Connections.Delete(key); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestKeptHandshake has rules appear while a connection is being opened: it is no open one.
func TestKeptHandshake(t *testing.T) {
	p := newPolicyFixture(t, bpf.KeepOpen)
	wantVerdict(t, "SYN", p.fromClient(t, syn), deliver)
	p.cilium(t, "get", getFromServer)
	wantVerdict(t, "SYN-ACK", p.fromServer(t, synACK), dropped)
	wantVerdict(t, "the SYN again", p.fromClient(t, syn), toStack)
}

// TestKeptStack has rules appear for what reaches the server by the stack, from a pod and from another host.
func TestKeptStack(t *testing.T) {
	p := newPolicyFixture(t, bpf.KeepOpen)
	down := func(from netip.Addr, flags func(*layers.TCP)) uint32 {
		frame := p.down(from, flags)
		if from == p.client.ip4 {
			return p.request(t, p.objects.ToPod, p.server, &p.client, frame)
		}
		return p.runFrom(t, p.objects.ToPod, p.server, skBuff{IngressIfindex: uint32(p.uplink.index)}, frame)
	}
	answers := func(to netip.Addr, flags func(*layers.TCP)) uint32 {
		verdict, _ := p.run(t, p.objects.FromPod, p.server,
			segment(p.server.mac, p.server.hostMAC, netip.AddrPortFrom(p.server.ip4, serverPort), netip.AddrPortFrom(to, clientPort), flags))
		return verdict
	}
	for _, from := range []netip.Addr{p.client.ip4, outsider} {
		wantVerdict(t, "SYN", down(from, syn), toStack)
		wantVerdict(t, "SYN-ACK", answers(from, synACK), toStack)
	}
	p.cilium(t, "get", from80)
	for _, from := range []netip.Addr{p.client.ip4, outsider} {
		wantVerdict(t, "a request", down(from, ack), toStack)
		wantVerdict(t, "the answer", answers(from, ack), toStack)
	}
	wantVerdict(t, "a SYN of the same port", down(outsider, syn), deliver)
	wantVerdict(t, "a segment from a connection that is not known", p.runFrom(t, p.objects.ToPod, p.server, skBuff{IngressIfindex: uint32(p.uplink.index)},
		segment(p.server.hostMAC, p.server.mac, netip.AddrPortFrom(outsider, clientPort+1), netip.AddrPortFrom(p.server.ip4, serverPort), ack)), deliver)
	p.deny(t)
	wantVerdict(t, "a request that policy denies", down(p.client.ip4, ack), dropped)
	wantVerdict(t, "an answer that policy denies", answers(p.client.ip4, ack), dropped)
}

// TestKeptUplink has rules appear for what a pod asks of another host.
func TestKeptUplink(t *testing.T) {
	p := newPolicyFixture(t, bpf.KeepOpen)
	up := func(port uint16, flags func(*layers.TCP)) (fromPod, toUplink uint32) {
		frame := segment(p.client.mac, p.client.hostMAC, netip.AddrPortFrom(p.client.ip4, port), netip.AddrPortFrom(outsider, serverPort), flags)
		fromPod, _ = p.run(t, p.objects.FromPod, p.client, frame)
		return fromPod, p.request(t, p.objects.ToUplink, p.uplink, &p.client, frame)
	}
	down := func(port uint16, flags func(*layers.TCP)) uint32 {
		return p.runFrom(t, p.objects.ToPod, p.client, skBuff{IngressIfindex: uint32(p.uplink.index)},
			segment(p.client.hostMAC, p.client.mac, netip.AddrPortFrom(outsider, serverPort), netip.AddrPortFrom(p.client.ip4, port), flags))
	}
	want := func(what string, port uint16, flags func(*layers.TCP), want uint32) {
		t.Helper()
		fromPod, toUplink := up(port, flags)
		wantVerdict(t, what+", from the pod", fromPod, toStack)
		wantVerdict(t, what+", at the uplink", toUplink, want)
	}
	want("SYN", clientPort, syn, toNext)
	wantVerdict(t, "SYN-ACK", down(clientPort, synACK), toStack)
	p.cilium(t, "get", getFromOutside)
	want("a request", clientPort, ack, toNext)
	wantVerdict(t, "the answer", down(clientPort, ack), toStack)
	want("a segment of a connection that is not known", clientPort+1, ack, deliver)
	want("a SYN of another port", clientPort+2, syn, deliver)
	wantVerdict(t, "an answer that is not the proxy's, to be reset", down(clientPort+2, synACK), deliver)
	want("a SYN of the same port", clientPort, syn, deliver)
	want("a segment after the SYN", clientPort, ack, deliver)
	wantVerdict(t, "an answer after the SYN, to be reset", down(clientPort, ack), deliver)
}

// TestKeptUDP has rules for DNS appear: the next query of a socket that is open goes to the proxy, and is not kept.
func TestKeptUDP(t *testing.T) {
	for _, switches := range [][]string{nil, {bpf.KeepOpen}} {
		p := newPolicyFixture(t, switches...)
		client, server := netip.AddrPortFrom(p.client.ip4, clientPort), netip.AddrPortFrom(p.server.ip4, 53)
		query := func() uint32 {
			verdict, _ := p.run(t, p.objects.FromPod, p.client, udpSegment(p.client.mac, p.client.hostMAC, client, server))
			return verdict
		}
		wantVerdict(t, "a query without rules", query(), deliver)
		answer, _ := p.run(t, p.objects.FromPod, p.server, udpSegment(p.server.mac, p.server.hostMAC, server, client))
		wantVerdict(t, "its answer", answer, deliver)
		p.cilium(t, "names", "{endpointSelector: {matchLabels: {app: client}}, egress: [{toEndpoints: [{}], toPorts: [{ports: [{port: '53', protocol: UDP}], rules: {dns: [{matchPattern: '*'}]}}]}]}")
		wantVerdict(t, "the next query", query(), toStack)
		wantVerdict(t, "the next query, to the proxy", p.request(t, p.objects.ToPod, p.server, &p.client, udpSegment(p.server.hostMAC, p.server.mac, client, server)), deliver)
	}
}
