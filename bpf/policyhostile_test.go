package bpf_test

import (
	"net/netip"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"porin.dev/porin/bpf/abi"
)

// udpFrame is a UDP datagram in an Ethernet frame.
func udpFrame(from, to party, src, dst netip.AddrPort) []byte {
	ip := &layers.IPv4{Version: 4, TTL: 64, Protocol: layers.IPProtocolUDP, SrcIP: src.Addr().AsSlice(), DstIP: dst.Addr().AsSlice()}
	udp := &layers.UDP{SrcPort: layers.UDPPort(src.Port()), DstPort: layers.UDPPort(dst.Port()), Length: 8}
	_ = udp.SetNetworkLayerForChecksum(ip)
	return frame(ether(from.mac, to.mac, layers.EthernetTypeIPv4), ip, udp)
}

// sends runs a pod's packet up the stack, and at the uplink when the pod has sent it as a request. It reports whether it leaves the node.
func (p *policed) sends(t *testing.T, pod party, packet []byte) bool {
	t.Helper()
	verdict, request := p.asRequested(t, pod, packet)
	if verdict != verdictStack {
		return false
	}
	return !request || p.request(t, p.objects.ToUplink, p.uplink, &pod, packet) == verdictNext
}

// asRequested runs from_pod, and reports whether it has passed the packet on as a request, which to_uplink decides: its entry says so, as a test run does not show
// tc_classid.
func (p *policed) asRequested(t *testing.T, pod party, packet []byte) (verdict uint32, request bool) {
	t.Helper()
	verdict, _ = p.run(t, p.objects.FromPod, pod, packet)
	for _, c := range p.connections(t) {
		if c.Id == pod.id {
			return verdict, c.State&uint8(abi.StateOpenedHere) != 0
		}
	}
	return verdict, true
}

// TestPolicyForgedFollower has a segment of no connection, which passes as somebody's reply, give no right to open one with the same ports.
func TestPolicyForgedFollower(t *testing.T) {
	outside := func(p *policed, flags func(*layers.TCP)) []byte {
		return segment(p.client.mac, p.client.hostMAC, netip.AddrPortFrom(p.client.ip4, clientPort), netip.AddrPortFrom(outsider, serverPort), flags)
	}
	t.Run("ingress by the shortcut", func(t *testing.T) {
		p := newPoliced(t)
		p.policy(t, "deny", denyIngress)
		p.fromClient(t, ack)
		wantVerdict(t, "a SYN after an ACK", p.fromClient(t, syn), verdictDrop)
	})
	t.Run("egress by the shortcut", func(t *testing.T) {
		p := newPoliced(t)
		p.policy(t, "deny", denyEgress)
		p.fromClient(t, ack)
		wantVerdict(t, "a SYN after an ACK", p.fromClient(t, syn), verdictDrop)
	})
	t.Run("egress to the uplink", func(t *testing.T) {
		p := newPoliced(t)
		p.policy(t, "deny", denyEgress)
		p.sends(t, p.client, outside(p, ack))
		if p.sends(t, p.client, outside(p, syn)) {
			t.Error("a SYN after an ACK leaves the node")
		}
	})
	t.Run("ingress from outside", func(t *testing.T) {
		p := newPoliced(t)
		p.policy(t, "deny", denyIngress)
		arrives := func(flags func(*layers.TCP)) uint32 {
			f := segment(p.server.hostMAC, p.server.mac, netip.AddrPortFrom(outsider, clientPort), netip.AddrPortFrom(p.server.ip4, serverPort), flags)
			return p.runFrom(t, p.objects.ToPod, p.server, skBuff{IngressIfindex: uint32(p.uplink.index)}, f)
		}
		arrives(ack)
		wantVerdict(t, "a SYN after an ACK", arrives(syn), verdictDrop)
	})
}

// TestPolicySameSourceAgain has one pod's masqueraded datagrams give no right to another one, which the node gives the same address and port.
func TestPolicySameSourceAgain(t *testing.T) {
	p := newPoliced(t)
	p.policy(t, "deny", denyEgress)
	other := p.links[2]
	other.ip4, other.ip6 = addr("10.0.0.3"), addr("fd00::3")
	p.register(t, other)
	toServer := udpFrame(party{mac: p.server.hostMAC}, p.server, netip.AddrPortFrom(nodeIPv4, clientPort), netip.AddrPortFrom(p.server.ip4, serverPort))
	wantVerdict(t, "a pod that nothing restricts", p.request(t, p.objects.ToPod, p.server, &other, toServer), verdictStack)
	wantVerdict(t, "one whose egress is denied", p.request(t, p.objects.ToPod, p.server, &p.client, toServer), verdictDrop)
	wantVerdict(t, "the former again", p.request(t, p.objects.ToPod, p.server, &other, toServer), verdictStack)
}

// TestPolicyDeniedRequest has a request that is dropped at the uplink open the pod for no answer.
func TestPolicyDeniedRequest(t *testing.T) {
	p := newPoliced(t)
	p.policy(t, "isolate", isolate)
	own, peer := netip.AddrPortFrom(p.client.ip4, clientPort), netip.AddrPortFrom(outsider, 53)
	if p.sends(t, p.client, udpFrame(p.client, party{mac: p.client.hostMAC}, own, peer)) {
		t.Fatal("a denied request leaves the node")
	}
	answer := udpFrame(party{mac: p.client.hostMAC}, p.client, peer, own)
	wantVerdict(t, "an answer to a denied request", p.runFrom(t, p.objects.ToPod, p.client, skBuff{IngressIfindex: uint32(p.uplink.index)}, answer), verdictDrop)
}

// TestPolicyUntrackedToFreePod has the sender's policy decide about an ICMP error that says nothing of a connection, though nothing restricts the receiver.
func TestPolicyUntrackedToFreePod(t *testing.T) {
	p := newPoliced(t)
	p.policy(t, "deny", denyEgress)
	inner := append([]byte{3, 1, 0, 0, 0, 0, 0, 0}, "not the beginning of an IP packet, but what somebody wants to tell"...)
	down := frame(ether(p.server.hostMAC, p.server.mac, layers.EthernetTypeIPv4),
		&layers.IPv4{Version: 4, TTL: 64, Protocol: layers.IPProtocolICMPv4, SrcIP: p.client.ip4.AsSlice(), DstIP: p.server.ip4.AsSlice()}, gopacket.Payload(inner))
	wantVerdict(t, "an ICMP error", p.request(t, p.objects.ToPod, p.server, &p.client, down), verdictDrop)
}

// TestPolicyReplyBeforeRestriction has a pod's reply, for which there was no entry when nothing restricted it, be no request once its egress is denied.
func TestPolicyReplyBeforeRestriction(t *testing.T) {
	p := newPoliced(t)
	own, peer := netip.AddrPortFrom(p.client.ip4, clientPort), netip.AddrPortFrom(outsider, 5000)
	life{fixture: p.fixture}.known(t, peer, own, peer)
	reply := segment(p.client.mac, p.client.hostMAC, own, peer, ack)
	if !p.sends(t, p.client, reply) {
		t.Fatal("a reply without policy is dropped")
	}
	p.policy(t, "deny", denyEgress)
	if !p.sends(t, p.client, reply) {
		t.Error("a reply is dropped as a request")
	}
}

// TestPolicySpoofedFollower has outside not speak as a pod of this node in a connection by the shortcut.
func TestPolicySpoofedFollower(t *testing.T) {
	p := newPoliced(t)
	p.policy(t, "from", fromClient)
	wantVerdict(t, "SYN", p.fromClient(t, syn), verdictDeliver)
	f := segment(p.server.hostMAC, p.server.mac, netip.AddrPortFrom(p.client.ip4, clientPort), netip.AddrPortFrom(p.server.ip4, serverPort), ack)
	wantVerdict(t, "outside, under the client's address", p.runFrom(t, p.objects.ToPod, p.server, skBuff{IngressIfindex: uint32(p.uplink.index)}, f), verdictDrop)
}

// TestPolicyUnaskedEchoReply has an answer that nobody has asked for be the pod's own.
func TestPolicyUnaskedEchoReply(t *testing.T) {
	p := newPoliced(t)
	p.policy(t, "deny", denyEgress)
	echo := append([]byte{0, 0, 0, 0, 0, 7, 0, 1}, "anything"...)
	up := frame(ether(p.client.mac, p.client.hostMAC, layers.EthernetTypeIPv4),
		&layers.IPv4{Version: 4, TTL: 64, Protocol: layers.IPProtocolICMPv4, SrcIP: p.client.ip4.AsSlice(), DstIP: outsider.AsSlice()}, gopacket.Payload(echo))
	if p.sends(t, p.client, up) {
		t.Error("an echo reply that nobody has asked for leaves the node")
	}
}
