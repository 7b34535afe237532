package bpf_test

import (
	"net/netip"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"porin.dev/porin/bpf/abi"
)

// TestDeniedOften: a pod whose requests were denied eight times in a second sends no more by protocols that conntrack
// cannot be asked about.
func TestDeniedOften(t *testing.T) {
	p := newPolicyFixture(t)
	p.policy(t, "deny", denyEgress)
	pinged := func() []byte { return icmp(p.client, p.client.ip4, outsider) }
	verdict := uint32(0)
	for begin := uint32(0); begin != ticks(t); { // again if the second ended meanwhile
		begin = ticks(t)
		if err := p.objects.DeniedCounts.Put(uint32(p.client.id), [2]uint32{}); err != nil {
			t.Fatal(err)
		}
		for range 8 {
			p.forgetConnections(t)
			verdict, _ = p.run(t, p.objects.FromPod, p.client, pinged())
			wantVerdict(t, "a ping, undecided", verdict, toStack)
			wantVerdict(t, "at the uplink", p.request(t, p.objects.ToUplink, p.uplink, &p.client, pinged()), dropped)
		}
		p.forgetConnections(t)
		verdict, _ = p.run(t, p.objects.FromPod, p.client, pinged())
	}
	wantVerdict(t, "a ping after eight", verdict, dropped)
	if p.traffic(t, p.client.id).Drops[abi.DropDeniedOften] == 0 {
		t.Error("the drop has another reason")
	}
	verdict, _ = p.run(t, p.objects.FromPod, p.server, icmp(p.server, p.server.ip4, outsider))
	wantVerdict(t, "another pod's", verdict, toStack)
	if err := p.objects.DeniedCounts.Put(uint32(p.client.id), [2]uint32{ticks(t) - 1, 8}); err != nil {
		t.Fatal(err)
	}
	verdict, _ = p.run(t, p.objects.FromPod, p.client, pinged())
	wantVerdict(t, "a ping in the next second", verdict, toStack)
}

// TestDeniedOftenAsReplies: a pod that may send nothing sends what could be replies, of connections that nothing knows.
// Eight of a second pass.
func TestDeniedOftenAsReplies(t *testing.T) {
	p := newPolicyFixture(t)
	p.policy(t, "deny", denyEgress)
	for name, reply := range map[string]func(port uint16) []byte{
		"segments": func(port uint16) []byte {
			return segment(p.client.mac, p.client.hostMAC, netip.AddrPortFrom(p.client.ip4, port), netip.AddrPortFrom(outsider, 80), ack)
		},
		"chunks of SCTP": func(port uint16) []byte {
			ip, typ := network(p.client.ip4, outsider, layers.IPProtocolSCTP)
			h := &layers.SCTP{SrcPort: layers.SCTPPort(port), DstPort: 80, VerificationTag: 7}
			return frame(ether(p.client.mac, p.client.hostMAC, typ), ip, h, gopacket.Payload{4, 0, 0, 8, 0, 1, 0, 4})
		},
	} {
		t.Run(name, func(t *testing.T) {
			p.reset(t)
			passed := func(first, count uint16) (n int) {
				for port := range count {
					if verdict, _ := p.run(t, p.objects.FromPod, p.client, reply(first+port)); verdict == toStack {
						n++
					}
				}
				return n
			}
			var got int
			for begin := uint32(0); begin != ticks(t); { // again if the second ended meanwhile
				begin = ticks(t)
				p.forgetConnections(t)
				if err := p.objects.DeniedCounts.Put(uint32(p.client.id), [2]uint32{}); err != nil {
					t.Fatal(err)
				}
				got = passed(1000, 30)
			}
			if got != 8 {
				t.Errorf("%d of 30 pass in a second, want 8", got)
			}
			if p.traffic(t, p.client.id).Drops[abi.DropDeniedOften] < 22 {
				t.Error("the drops have another reason")
			}
			if got := passed(1000, 8); got != 8 {
				t.Errorf("%d of the 8 connections go on, which have an entry now", got)
			}
			if err := p.objects.DeniedCounts.Put(uint32(p.client.id), [2]uint32{ticks(t) - 1, 8}); err != nil {
				t.Fatal(err)
			}
			if passed(2000, 1) != 1 {
				t.Error("none passes in the next second")
			}
			p.remove(t, "deny")
			p.forgetConnections(t)
			if got := passed(1000, 30); got != 30 {
				t.Errorf("%d of 30 pass without a policy", got)
			}
			p.policy(t, "deny", denyEgress)
		})
	}
}
