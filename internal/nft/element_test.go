package nft

import (
	"net/netip"
	"testing"

	"github.com/google/nftables"

	"porin.dev/porin/internal/testutil"
)

func TestMain(m *testing.M) { testutil.Main(m, testutil.NoLeaks()) }

func TestPrefix(t *testing.T) {
	for text, end := range map[string]string{
		"10.0.0.0/24": "10.0.1.0", "10.0.255.0/24": "10.1.0.0", "10.0.0.1/32": "10.0.0.2", "10.0.0.128/25": "10.0.1.0", "0.0.0.0/0": "", "255.255.255.255/32": "",
		"128.0.0.0/1": "", "0.0.0.0/1": "128.0.0.0", "fd00::/64": "fd00:0:0:1::", "fe80::/10": "fec0::", "ff00::/8": "", "10.0.0.7/24": "10.0.1.0",
	} {
		p := netip.MustParsePrefix(text)
		e := Prefix(p)
		got := ""
		if e.End != "" {
			addr, _ := netip.AddrFromSlice([]byte(e.End))
			got = addr.String()
		}
		if first, _ := netip.AddrFromSlice([]byte(e.Key)); first != p.Masked().Addr() || got != end {
			t.Errorf("%s: from %s to %q, want to %q", text, first, got, end)
		}
	}
}

// Ranges that lie side by side share a key: the end of one is the first of the next.
func TestDecodeRanges(t *testing.T) {
	set := &Set{Name: "x", Key: nftables.TypeIPAddr, Ranges: true}
	want := Elements{}
	var list []nftables.SetElement
	for _, text := range []string{"10.0.1.0/24", "10.0.0.0/24", "255.0.0.0/8", "10.0.2.0/24"} {
		e := Prefix(netip.MustParsePrefix(text))
		want[e.Key] = e
		list = set.encode(list, e)
	}
	got, ok := set.decode(list)
	if !ok || len(got.without(want))+len(want.without(got)) > 0 {
		t.Errorf("%v, %v, want %v", got, ok, want)
	}
}

// Whatever others have put into a set of the same name, it is told from what Apply writes.
func TestDecodeForeign(t *testing.T) {
	verdicts := &Set{Name: "x", Key: nftables.TypeIFIndex, Value: nftables.TypeVerdict}
	addresses := &Set{Name: "y", Key: nftables.TypeIPAddr, Ranges: true}
	for name, c := range map[string]struct {
		set  *Set
		list []nftables.SetElement
	}{
		"a short key":             {verdicts, []nftables.SetElement{{Key: []byte{1}, Val: make([]byte, 8)}}},
		"no verdict":              {verdicts, []nftables.SetElement{{Key: make([]byte, 4)}}},
		"an attribute of no size": {verdicts, []nftables.SetElement{{Key: make([]byte, 4), Val: make([]byte, 8)}}},
		"a longer attribute":      {verdicts, []nftables.SetElement{{Key: make([]byte, 4), Val: []byte{200, 0, 1, 0, 0, 0, 0, 0}}}},
		"an end alone":            {addresses, []nftables.SetElement{{Key: make([]byte, 4), IntervalEnd: true}}},
	} {
		if got, ok := c.set.decode(c.list); ok {
			t.Errorf("%s: %v", name, got)
		}
	}
}
