package bpf_test

import (
	"encoding/binary"
	"slices"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"porin.dev/porin/bpf/abi"
)

// FuzzPackets feeds frames to both programs: whatever they are, each has a verdict of lib/verdict.h, is counted once,
// and only alice's own packets are delivered.
func FuzzPackets(f *testing.F) {
	for _, row := range slices.Concat(fromPod(), toPod()) {
		f.Add(row.in)
	}
	fix := load(f)
	f.Fuzz(func(t *testing.T, in []byte) {
		if len(in) < 14 || len(in) > 3000 {
			return // the kernel runs programs on whole link headers, and on a page at most
		}
		if header := headerOf(in); len(in) < 14+header {
			return // and on whole IP headers
		}
		for _, prog := range []*ebpf.Program{fix.objects.FromPod, fix.objects.ToPod} {
			fix.reset(t)
			verdict, _ := fix.run(t, prog, fix.alice, in)
			counted := fix.traffic(t, alice.id)
			drops := uint64(0)
			for _, n := range counted.Drops {
				drops += n
			}
			passed := counted.FromPod.Packets
			if prog == fix.objects.ToPod {
				passed = counted.ToPod.Packets
			}
			if drops+passed != 1 || (verdict == dropped) != (drops == 1) || counted.Drops[abi.DropNone] != 0 {
				t.Errorf("%s: verdict %d, counted %+v", prog, verdict, counted)
			}
			switch {
			case verdict == dropped, verdict == toStack:
			case verdict == deliver && prog == fix.objects.FromPod && slices.Equal(in[6:12], alice.mac):
			default:
				t.Errorf("%s: verdict %d", prog, verdict)
			}
		}
	})
}

// headerOf is the length of the header that the ethertype promises.
func headerOf(frame []byte) int {
	switch binary.BigEndian.Uint16(frame[12:]) {
	case unix.ETH_P_IP:
		return 20
	case unix.ETH_P_IPV6:
		return 40
	}
	return 0
}
