package main

import (
	"io"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	v1 "porin.dev/porin/api/v1"
)

func TestIPAMListDrainedAndReserved(t *testing.T) {
	var out strings.Builder
	s := &session{environment: environment{out: &out, now: func() time.Time { return noon }}, options: options{global: &global{output: newChoice("table", "json")}}}
	usage := v1.IPAM{
		Mode: "multi-pool",
		Pools: []v1.Pool{{Name: "blue", Ranges: []v1.Range{
			{Prefix: netip.MustParsePrefix("10.1.0.0/26"), Capacity: 64, Used: 1, Quarantined: 2, Free: 61, NodeAddresses: []netip.Addr{netip.MustParseAddr("10.1.0.1"), netip.MustParseAddr("10.1.0.9")}},
			{Prefix: netip.MustParsePrefix("10.1.0.64/27"), Capacity: 32, Used: 1, Free: 31, Drained: true},
		}}},
		Allocations: []v1.Allocation{
			{
				Address: netip.MustParseAddr("10.1.0.1"), Pool: "blue", Owner: "0123456789abcdef:eth0", Since: noon.Add(-time.Hour),
				ContainerID: "0123456789abcdef", IfName: "eth0", Pod: v1.Pod{Namespace: "shop", Name: "web\x1b[1m"},
			},
			{Address: netip.MustParseAddr("10.1.0.3"), Owner: "c2:net1", ContainerID: "c2", IfName: "net1"},
			{Address: netip.MustParseAddr("10.1.0.4"), Owner: "link/48", Unnamed: true, Since: noon.Add(-time.Minute)},
			{Address: netip.MustParseAddr("10.1.0.70"), Pool: "blue", Owner: "move", Since: noon.Add(-time.Minute), Expires: noon.Add(9 * time.Minute)},
		},
	}
	if err := s.print(usage, func(w io.Writer) { s.ipamTable(w, usage) }); err != nil {
		t.Fatal(err)
	}
	want := `
POOL  PREFIX        CAPACITY  USED  QUARANTINED  FREE
blue  10.1.0.0/26   64        1     2            61
blue  10.1.0.64/27  32        1     0            drained

ADDRESS    POOL  OWNER                               INTERFACE  CONTAINER     AGE
10.1.0.1   blue  shop/web�[1m                        eth0       0123456789ab  60m
10.1.0.3   -     -                                   net1       c2            -
10.1.0.4   -     held: unknown container of link/48  -          -             60s
10.1.0.70  blue  move                                -          -             60s (reserved, 9m left)
10.1.0.9   blue  the node itself                     -          -             -
`
	if diff := cmp.Diff(want, "\n"+out.String()); diff != "" {
		t.Error(diff)
	}
}
