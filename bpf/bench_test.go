package bpf_test

import (
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/gopacket/gopacket/layers"
	"golang.org/x/sys/unix"

	"porin.dev/porin/bpf/abi"
)

// behindLoopback registers alice as the pod behind lo, the device of a run that names none. Its link and the one of
// bob, whom it sends to, have each other's addresses, so that a delivered frame can be delivered again, until its hops
// are used up.
func (f *fixture) behindLoopback(b *testing.B) (from, to party) {
	b.Helper()
	zero := make(net.HardwareAddr, 6)
	from = party{id: alice.id, index: 1, mac: alice.mac, hostMAC: zero, ip4: alice.ip4, ip6: alice.ip6}
	to = party{id: bob.id, index: f.bob.index, mac: zero, hostMAC: alice.mac, ip4: bob.ip4, ip6: bob.ip6}
	f.register(b, from)
	f.register(b, to)
	return from, to
}

func BenchmarkProgram(b *testing.B) {
	const repeat = 250
	f := load(b)
	f.reset(b)
	from, to := f.behindLoopback(b)
	host := party{mac: alice.hostMAC, hostMAC: alice.mac}
	for _, bench := range []struct {
		name string
		prog *ebpf.Program
		in   []byte
		want uint32
	}{
		{"from_pod/deliver/ipv4", f.objects.FromPod, udp(from, from.ip4, to.ip4, 255), deliver},
		{"from_pod/deliver/ipv6", f.objects.FromPod, udp(from, from.ip6, to.ip6, 255), deliver},
		{"from_pod/stack/ipv4", f.objects.FromPod, udp(from, from.ip4, outside.ip4, 64), toNext},
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
			reportPackets(b, total, runs)
		})
	}
}

// million is how many connections are in a full map.
const million = 1 << 20

// BenchmarkConnection is what a packet costs that opens a connection from pod to pod, or follows, with few connections
// in the map and with many. Each packet is of another connection and run alone: measuring it costs some 50 ns, and the
// memory that it needs is often in no cache.
func BenchmarkConnection(b *testing.B) {
	f := loadSized(b, 4*million)
	f.limit(b, abi.Limits{Common: 4 * million})
	from, to := f.behindLoopback(b)
	run := func(b *testing.B, i int, flags func(*layers.TCP)) time.Duration {
		source, destination := netip.AddrPortFrom(from.ip4, uint16(i)), netip.AddrPortFrom(to.ip4, uint16(i>>16))
		verdict, took, err := f.objects.FromPod.Benchmark(segment(from.mac, from.hostMAC, source, destination, flags), 1, nil)
		if err != nil || verdict != deliver {
			b.Fatalf("verdict %d, want %d; error %v", verdict, deliver, err)
		}
		return took
	}
	opened := 0
	open := func(b *testing.B, until int) (total time.Duration) {
		for ; opened < until; opened++ {
			total += run(b, opened, syn)
		}
		return total
	}
	for _, connections := range []int{1000, million} {
		open(b, connections/2) // with an entry at each end
		b.Run(fmt.Sprintf("established/%d", connections), func(b *testing.B) {
			var total time.Duration
			for i := range b.N {
				total += run(b, i*7919%opened, ack)
			}
			reportPackets(b, total, b.N)
		})
		b.Run(fmt.Sprintf("opened/%d", connections), func(b *testing.B) {
			before := opened
			total := open(b, min(before+b.N, 2*million))
			reportPackets(b, total, max(opened-before, 1))
		})
	}
}

func reportPackets(b *testing.B, total time.Duration, packets int) {
	b.ReportMetric(float64(total.Nanoseconds())/float64(packets), "ns/packet")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkSweep is the cost of a sweep that finds a million open connections.
func BenchmarkSweep(b *testing.B) {
	f := loadSized(b, million)
	f.fill(b, million)
	for b.Loop() {
		if done := f.sweep(b); done.Visited != million || done.Removed != 0 {
			b.Fatalf("swept %+v", done)
		}
	}
}

// fill writes connections of alice with the outside, which do not expire.
func (f *fixture) fill(b *testing.B, n int) {
	b.Helper()
	keys, connections := make([]abi.ConnectionKey, n), make([]abi.Connection, n)
	for i := range keys {
		keys[i] = abi.ConnectionKey{
			Remote: abi.AddrOf(outside.ip4), Ifindex: uint32(f.alice.index), LocalPort: uint16(i), RemotePort: uint16(i >> 16), Protocol: unix.IPPROTO_TCP, Family: 4,
		}
		connections[i] = abi.Connection{
			Local: abi.AddrOf(f.alice.ip4), Generation: 1, Expires: ticks(b) + 8000, Id: f.alice.id, Charged: f.alice.id, Path: abi.PathStack,
		}
	}
	if _, err := f.objects.Connections.BatchUpdate(keys, connections, nil); err != nil {
		b.Fatal(err)
	}
}
