package bpf_test

import (
	"testing"

	"porin.dev/porin/bpf/abi"
)

// TestDeniedOften: a pod whose requests were denied eight times in a second sends no more by protocols that conntrack cannot be asked about.
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
