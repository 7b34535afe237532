package blocks

import (
	"net/netip"
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	v1 "porin.dev/porin/api/v1"
)

func TestHowFullAPoolIsIsCountedInBlocks(t *testing.T) {
	p := pool("default", "10.0.0.0/24", "10.0.2.0/25", "fd00::/64")
	part := func(of, block, prefix, node string) Part {
		return Part{Pool: of, Block: netip.MustParsePrefix(block), Prefix: netip.MustParsePrefix(prefix), Node: node}
	}
	got := p.use([]Part{
		part("default", "10.0.0.0/26", "10.0.0.0/26", "a"),
		part("default", "10.0.0.64/26", "10.0.0.64/27", "a"), part("default", "10.0.0.64/26", "10.0.0.96/27", "b"), // one block, of two
		part("default", "10.0.1.0/26", "10.0.1.0/26", "c"), // of a prefix that was taken out
		part("other", "10.0.9.0/26", "10.0.9.0/26", "a"),
		part("default", "fd00::/122", "fd00::/122", "b"),
	})
	want := []v1.PoolUse{{Family: "ipv4", Blocks: 6, Owned: 2, Nodes: 2}, {Family: "ipv6", Blocks: 1 << 58, Owned: 1, Nodes: 1}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	v6 := pool("v6", "fd00::/64")
	if got := v6.use(nil); len(got) != 1 || got[0].Family != "ipv6" {
		t.Errorf("a pool of one family: %+v", got)
	}
}

// TestAPoolIsTheSameInTheAPI holds that no field is left out on the way.
func TestAPoolIsTheSameInTheAPI(t *testing.T) {
	p := pool("default", "10.0.0.0/24")
	p.IPv4BlockBits, p.IPv6BlockBits, p.NodeSelector = 27, 123, map[string]string{"zone": "a"}
	p.Disabled, p.Quarantine, p.ReuseResting = true, time.Minute, true
	for value, i := reflect.ValueOf(p), 0; i < value.NumField(); i++ {
		if value.Field(i).IsZero() {
			t.Errorf("the test sets no %s", value.Type().Field(i).Name)
		}
	}
	if diff := cmp.Diff(p, poolOf(specOf(p)), cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
