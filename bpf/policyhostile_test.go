package bpf_test

import (
	"net/netip"
	"testing"

	"github.com/gopacket/gopacket/layers"

	"porin.dev/porin/bpf/abi"
)

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
