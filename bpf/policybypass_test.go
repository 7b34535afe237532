package bpf_test

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"porin.dev/porin/bpf/abi"
)

// sends runs a pod's packet up the stack, and at the uplink when the pod has sent it as a request. It reports whether
// it leaves the node.
func (p *policyFixture) sends(t *testing.T, pod party, packet []byte) bool {
	t.Helper()
	verdict, request := p.asRequested(t, pod, packet)
	if verdict != toStack {
		return false
	}
	return !request || p.request(t, p.objects.ToUplink, p.uplink, &pod, packet) == toNext
}

// asRequested runs from_pod, and reports whether it has passed the packet on as a request, which to_uplink decides: its
// entry says so, as a test run does not show tc_index.
func (p *policyFixture) asRequested(t *testing.T, pod party, packet []byte) (verdict uint32, request bool) {
	t.Helper()
	verdict, _ = p.run(t, p.objects.FromPod, pod, packet)
	for _, c := range p.connections(t) {
		if c.Id == pod.id {
			return verdict, c.State&uint8(abi.StateOpenedHere) != 0
		}
	}
	return verdict, true
}

// TestPolicyForgedReply: a segment of no connection, which passes as a reply, gives no right to open one with the same
// ports.
func TestPolicyForgedReply(t *testing.T) {
	outside := func(p *policyFixture, flags func(*layers.TCP)) []byte {
		return segment(p.client.mac, p.client.hostMAC, netip.AddrPortFrom(p.client.ip4, clientPort), netip.AddrPortFrom(outsider, serverPort), flags)
	}
	t.Run("ingress by the shortcut", func(t *testing.T) {
		p := newPolicyFixture(t)
		p.policy(t, "deny", denyIngress)
		p.fromClient(t, ack)
		wantVerdict(t, "a SYN after an ACK", p.fromClient(t, syn), dropped)
	})
	t.Run("egress by the shortcut", func(t *testing.T) {
		p := newPolicyFixture(t)
		p.policy(t, "deny", denyEgress)
		p.fromClient(t, ack)
		wantVerdict(t, "a SYN after an ACK", p.fromClient(t, syn), dropped)
	})
	t.Run("egress to the uplink", func(t *testing.T) {
		p := newPolicyFixture(t)
		p.policy(t, "deny", denyEgress)
		p.sends(t, p.client, outside(p, ack))
		if p.sends(t, p.client, outside(p, syn)) {
			t.Error("a SYN after an ACK leaves the node")
		}
	})
	t.Run("ingress from outside", func(t *testing.T) {
		p := newPolicyFixture(t)
		p.policy(t, "deny", denyIngress)
		arrives := func(flags func(*layers.TCP)) uint32 {
			f := segment(p.server.hostMAC, p.server.mac, netip.AddrPortFrom(outsider, clientPort), netip.AddrPortFrom(p.server.ip4, serverPort), flags)
			return p.runFrom(t, p.objects.ToPod, p.server, skBuff{IngressIfindex: uint32(p.uplink.index)}, f)
		}
		arrives(ack)
		wantVerdict(t, "a SYN after an ACK", arrives(syn), dropped)
	})
}

// TestPolicyMasqueradePortReused: a datagram of one pod gives no right to another pod, which the node masquerades to
// the same address and port later.
func TestPolicyMasqueradePortReused(t *testing.T) {
	p := newPolicyFixture(t)
	p.policy(t, "deny", denyEgress)
	other := p.links[2]
	other.ip4, other.ip6 = addr("10.0.0.3"), addr("fd00::3")
	p.register(t, other)
	toServer := udpSegment(p.server.hostMAC, p.server.mac, netip.AddrPortFrom(nodeIPv4, clientPort), netip.AddrPortFrom(p.server.ip4, serverPort))
	wantVerdict(t, "a pod that nothing restricts", p.request(t, p.objects.ToPod, p.server, &other, toServer), toStack)
	wantVerdict(t, "one whose egress is denied", p.request(t, p.objects.ToPod, p.server, &p.client, toServer), dropped)
	wantVerdict(t, "the former again", p.request(t, p.objects.ToPod, p.server, &other, toServer), toStack)
}

// TestPolicyDeniedRequest: a request that is dropped at the uplink does not let a reply in.
func TestPolicyDeniedRequest(t *testing.T) {
	p := newPolicyFixture(t)
	p.policy(t, "isolate", isolate)
	own, peer := netip.AddrPortFrom(p.client.ip4, clientPort), netip.AddrPortFrom(outsider, 53)
	if p.sends(t, p.client, udpSegment(p.client.mac, p.client.hostMAC, own, peer)) {
		t.Fatal("a denied request leaves the node")
	}
	answer := udpSegment(p.client.hostMAC, p.client.mac, peer, own)
	wantVerdict(t, "an answer to a denied request", p.runFrom(t, p.objects.ToPod, p.client, skBuff{IngressIfindex: uint32(p.uplink.index)}, answer), dropped)
}

// TestPolicyUntrackedError: the sender's policy denies an ICMP error that belongs to no connection, though nothing
// restricts the receiver.
func TestPolicyUntrackedError(t *testing.T) {
	p := newPolicyFixture(t)
	p.policy(t, "deny", denyEgress)
	inner := append([]byte{3, 1, 0, 0, 0, 0, 0, 0}, "not the beginning of an IP packet, but what somebody wants to tell"...)
	down := frame(ether(p.server.hostMAC, p.server.mac, layers.EthernetTypeIPv4),
		&layers.IPv4{Version: 4, TTL: 64, Protocol: layers.IPProtocolICMPv4, SrcIP: p.client.ip4.AsSlice(), DstIP: p.server.ip4.AsSlice()}, gopacket.Payload(inner))
	wantVerdict(t, "an ICMP error", p.request(t, p.objects.ToPod, p.server, &p.client, down), dropped)
}

// TestPolicyReplyBeforeRestriction: a reply whose entry was made when nothing restricted the pod does not count as a
// request once its egress is denied.
func TestPolicyReplyBeforeRestriction(t *testing.T) {
	p := newPolicyFixture(t)
	own, peer := netip.AddrPortFrom(p.client.ip4, clientPort), netip.AddrPortFrom(outsider, 5000)
	conversation{fixture: p.fixture}.addToConntrack(t, peer, own, peer)
	reply := segment(p.client.mac, p.client.hostMAC, own, peer, ack)
	if !p.sends(t, p.client, reply) {
		t.Fatal("a reply without policy is dropped")
	}
	p.policy(t, "deny", denyEgress)
	if !p.sends(t, p.client, reply) {
		t.Error("a reply is dropped as a request")
	}
}

// TestPolicySpoofedReply: a packet from outside under the address of a pod does not pass as one of its connection by
// the shortcut.
func TestPolicySpoofedReply(t *testing.T) {
	p := newPolicyFixture(t)
	p.policy(t, "from", fromClient)
	wantVerdict(t, "SYN", p.fromClient(t, syn), deliver)
	f := segment(p.server.hostMAC, p.server.mac, netip.AddrPortFrom(p.client.ip4, clientPort), netip.AddrPortFrom(p.server.ip4, serverPort), ack)
	wantVerdict(t, "outside, under the client's address", p.runFrom(t, p.objects.ToPod, p.server, skBuff{IngressIfindex: uint32(p.uplink.index)}, f), dropped)
}

// TestPolicyUnaskedEchoReply: an echo reply without a request counts as a request of the pod.
func TestPolicyUnaskedEchoReply(t *testing.T) {
	p := newPolicyFixture(t)
	p.policy(t, "deny", denyEgress)
	echo := append([]byte{0, 0, 0, 0, 0, 7, 0, 1}, "anything"...)
	up := frame(ether(p.client.mac, p.client.hostMAC, layers.EthernetTypeIPv4),
		&layers.IPv4{Version: 4, TTL: 64, Protocol: layers.IPProtocolICMPv4, SrcIP: p.client.ip4.AsSlice(), DstIP: outsider.AsSlice()}, gopacket.Payload(echo))
	if p.sends(t, p.client, up) {
		t.Error("an echo reply that nobody has asked for leaves the node")
	}
}

// TestPolicyRevokedError: an ICMP error, which may quote anything, does not pass as one about a connection whose right
// was revoked.
func TestPolicyRevokedError(t *testing.T) {
	fromPod := func(p *policyFixture, from, to party, source, destination uint16) uint32 {
		about := segment(to.mac, to.hostMAC, netip.AddrPortFrom(to.ip4, destination), netip.AddrPortFrom(from.ip4, source), ack)
		verdict, _ := p.run(t, p.objects.FromPod, from, unreachable(from.mac, from.hostMAC, from.ip4, to.ip4, about))
		return verdict
	}
	for name, revoke := range map[string]string{"ingress": denyIngress, "egress": denyEgress} {
		t.Run(name+" by the shortcut", func(t *testing.T) {
			p := newPolicyFixture(t)
			p.fromClient(t, syn)
			p.fromServer(t, synACK)
			check := func(when string, want uint32) {
				t.Helper()
				wantVerdict(t, "an error of the client "+when, fromPod(p, p.client, p.server, clientPort, serverPort), want)
				wantVerdict(t, "an error of the server "+when, fromPod(p, p.server, p.client, serverPort, clientPort), want)
			}
			check("about an open connection", deliver)
			p.policy(t, "revoke", revoke)
			check("after the right was revoked", dropped)
			p.remove(t, "revoke")
			check("with the right again", deliver)
		})
	}
	t.Run("ingress from outside", func(t *testing.T) {
		p := newPolicyFixture(t)
		p.policy(t, "from", "{podSelector: {matchLabels: {app: server}}, ingress: [{from: [{ipBlock: {cidr: 198.51.100.0/24}}]}]}")
		out, own := netip.AddrPortFrom(outsider, clientPort), netip.AddrPortFrom(p.server.ip4, serverPort)
		arrives := func(packet []byte) uint32 {
			return p.runFrom(t, p.objects.ToPod, p.server, skBuff{IngressIfindex: uint32(p.uplink.index)}, packet)
		}
		about := segment(p.server.mac, p.server.hostMAC, own, out, ack)
		router := unreachable(p.server.hostMAC, p.server.mac, addr("192.0.2.7"), own.Addr(), about)
		wantVerdict(t, "SYN", arrives(segment(p.server.hostMAC, p.server.mac, out, own, syn)), toStack)
		wantVerdict(t, "an error about an open connection", arrives(router), toStack)
		p.policy(t, "more", fromClient)
		wantVerdict(t, "one after a change that leaves the right", arrives(router), toStack)
		p.policy(t, "from", denyIngress)
		wantVerdict(t, "one after the right was revoked", arrives(router), dropped)
	})
	t.Run("reply to outside", func(t *testing.T) {
		p := newPolicyFixture(t)
		p.policy(t, "from", "{podSelector: {matchLabels: {app: server}}, policyTypes: [Ingress, Egress], ingress: [{from: [{ipBlock: {cidr: 198.51.100.0/24}}]}]}")
		out, own := netip.AddrPortFrom(outsider, clientPort), netip.AddrPortFrom(p.server.ip4, serverPort)
		request := segment(p.server.hostMAC, p.server.mac, out, own, syn)
		wantVerdict(t, "SYN", p.runFrom(t, p.objects.ToPod, p.server, skBuff{IngressIfindex: uint32(p.uplink.index)}, request), toStack)
		report := unreachable(p.server.mac, p.server.hostMAC, own.Addr(), outsider, request)
		verdict, _ := p.run(t, p.objects.FromPod, p.server, report)
		wantVerdict(t, "an error about an open connection", verdict, toStack)
		p.policy(t, "from", isolate)
		verdict, _ = p.run(t, p.objects.FromPod, p.server, report)
		wantVerdict(t, "an error after the right was revoked", verdict, dropped)
	})
}

// TestPolicyErrorOfRouter: a restricted pod hears of routers what becomes of its requests, before any reply, as a
// traceroute needs.
func TestPolicyErrorOfRouter(t *testing.T) {
	for name, row := range map[string]struct {
		spec string
		want uint32
	}{
		"allowed": {"{podSelector: {}, policyTypes: [Ingress, Egress], egress: [{to: [{ipBlock: {cidr: 198.51.100.0/24}}]}]}", toStack},
		"denied":  {isolate, dropped},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPolicyFixture(t)
			p.policy(t, "test", row.spec)
			own, peer := netip.AddrPortFrom(p.client.ip4, clientPort), netip.AddrPortFrom(outsider, 33434)
			request := udpSegment(p.client.mac, p.client.hostMAC, own, peer)
			if left := p.sends(t, p.client, request); left != (row.want == toStack) {
				t.Fatalf("the request leaves the node: %t", left)
			}
			report := unreachable(p.client.hostMAC, p.client.mac, addr("192.0.2.7"), own.Addr(), request)
			wantVerdict(t, "a router's error", p.runFrom(t, p.objects.ToPod, p.client, skBuff{IngressIfindex: uint32(p.uplink.index)}, report), row.want)
		})
	}
}

// TestPolicyErrorOfNode: a restricted pod hears from the node what becomes of its requests to a Service, such as that
// it has no backend, or that a datagram is too large. The node's conntrack does not know the backend of what has never
// left.
func TestPolicyErrorOfNode(t *testing.T) {
	for _, protocol := range []string{"TCP", "UDP"} {
		for _, source := range []netip.Addr{addr("192.0.2.7"), addr("2001:db8:ffff::1")} {
			t.Run(fmt.Sprint(protocol, ", ", source), func(t *testing.T) {
				p := newPolicyFixture(t)
				p.policy(t, "test", "{podSelector: {}, policyTypes: [Ingress, Egress], egress: [{to: [{podSelector: {}}]}]}")
				own, service := p.client.ip4, addr("10.96.0.1")
				if source.Is6() {
					own, service = p.client.ip6, addr("fd00:96::1")
				}
				from, to := netip.AddrPortFrom(own, clientPort), netip.AddrPortFrom(service, serverPort)
				request := segment(p.client.mac, p.client.hostMAC, from, to, syn)
				if protocol == "UDP" {
					request = udpSegment(p.client.mac, p.client.hostMAC, from, to)
				}
				if verdict, asked := p.asRequested(t, p.client, request); verdict != toStack || !asked {
					t.Fatalf("the request: verdict %d, %t", verdict, asked)
				}
				report := unreachable(p.client.hostMAC, p.client.mac, source, own, request)
				verdict, _ := p.run(t, p.objects.ToPod, p.client, report)
				wantVerdict(t, "the node's error", verdict, toStack)
				wantVerdict(t, "another's", p.runFrom(t, p.objects.ToPod, p.client, skBuff{IngressIfindex: uint32(p.uplink.index)}, report), dropped)
			})
		}
	}
}
