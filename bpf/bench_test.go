package bpf_test

import (
	"net"
	"testing"
	"time"

	"github.com/cilium/ebpf"
)

// BenchmarkProgram runs programs as the pod behind lo, the device of a run that names none. Its link and the one it
// sends to have each other's addresses, so that a delivered frame can be delivered again, until its hops are used up.
func BenchmarkProgram(b *testing.B) {
	const repeat = 250
	f := load(b)
	f.reset(b)
	zero := make(net.HardwareAddr, 6)
	from := party{id: alice.id, index: 1, mac: alice.mac, hostMAC: zero, ip4: alice.ip4, ip6: alice.ip6}
	to := party{id: bob.id, index: f.bob.index, mac: zero, hostMAC: alice.mac, ip4: bob.ip4, ip6: bob.ip6}
	f.register(b, from)
	f.register(b, to)
	host := party{mac: alice.hostMAC, hostMAC: alice.mac}
	for _, bench := range []struct {
		name string
		prog *ebpf.Program
		in   []byte
		want uint32
	}{
		{"from_pod/deliver/ipv4", f.objects.FromPod, udp(from, from.ip4, to.ip4, 255), deliver},
		{"from_pod/deliver/ipv6", f.objects.FromPod, udp(from, from.ip6, to.ip6, 255), deliver},
		{"from_pod/stack/ipv4", f.objects.FromPod, udp(from, from.ip4, outside.ip4, 64), toStack},
		{"from_pod/drop/ipv4", f.objects.FromPod, udp(from, to.ip4, outside.ip4, 64), dropped},
		{"to_pod/ipv4", f.objects.ToPod, udp(host, outside.ip4, from.ip4, 64), toStack},
		{"to_pod/ipv6", f.objects.ToPod, udp(host, outside.ip6, from.ip6, 64), toStack},
	} {
		b.Run(bench.name, func(b *testing.B) {
			var total time.Duration
			runs := 0
			for ; runs*repeat < b.N; runs++ {
				verdict, each, err := bench.prog.Benchmark(bench.in, repeat, nil)
				if err != nil || verdict != bench.want {
					b.Fatalf("verdict %d, want %d; error %v", verdict, bench.want, err)
				}
				total += each
			}
			b.ReportMetric(float64(total.Nanoseconds())/float64(runs), "ns/packet")
			b.ReportMetric(0, "ns/op")
		})
	}
}
