package cluster_test

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"porin.dev/porin/cells/cluster"
)

func prefixes(texts ...string) (list []netip.Prefix) {
	for _, text := range texts {
		list = append(list, netip.MustParsePrefix(text))
	}
	return list
}

func TestPoolBlocks(t *testing.T) {
	p := cluster.Pool{
		Prefixes: prefixes("10.0.0.0/24", "10.1.0.0/25", "fd00::/62", "fd00:1::/118"), IPv4BlockBits: 26, IPv6BlockBits: 120,
	}
	if n := p.Blocks(cluster.IPv4); n != 6 {
		t.Errorf("%d IPv4 blocks, want 6", n)
	}
	if n := p.Blocks(cluster.IPv6); n != 1<<58+4 {
		t.Errorf("%d IPv6 blocks, want %d", n, uint64(1)<<58+4)
	}
	for i, want := range map[uint64]string{0: "10.0.0.0/26", 3: "10.0.0.192/26", 4: "10.1.0.0/26", 5: "10.1.0.64/26"} {
		if got := p.Block(cluster.IPv4, i).String(); got != want {
			t.Errorf("block %d is %s, want %s", i, got, want)
		}
	}
	for i, want := range map[uint64]string{
		0: "fd00::/120", 1: "fd00::100/120", 1 << 56: "fd00:0:0:1::/120", 1<<58 - 1: "fd00::3:ffff:ffff:ffff:ff00/120", 1<<58 + 1: "fd00:1::100/120",
	} {
		if got := p.Block(cluster.IPv6, i); got.String() != want || !p.HasBlock(got) {
			t.Errorf("block %d is %s, want %s: of the pool %t", i, got, want, p.HasBlock(got))
		}
	}
	for cidr, want := range map[string]bool{"10.0.0.64/26": true, "10.0.0.64/27": false, "10.1.0.128/26": false, "fd00:0:0:4::/120": false} {
		if got := p.HasBlock(netip.MustParsePrefix(cidr)); got != want {
			t.Errorf("block %s: of the pool %t, want %t", cidr, got, want)
		}
	}
	if cidr, ok := p.BlockOf(netip.MustParseAddr("10.0.0.70")); !ok || cidr.String() != "10.0.0.64/26" {
		t.Errorf("the block of 10.0.0.70 is %s, %t", cidr, ok)
	}
}

func TestPoolSlash64(t *testing.T) {
	p := cluster.Pool{Prefixes: prefixes("fd00::/48"), IPv4BlockBits: 26, IPv6BlockBits: 64}
	if n, last := p.Blocks(cluster.IPv6), p.Block(cluster.IPv6, 1<<16-1); n != 1<<16 || last.String() != "fd00:0:0:ffff::/64" {
		t.Errorf("%d blocks, the last is %s", n, last)
	}
	all := cluster.Pool{Prefixes: prefixes("::/0"), IPv6BlockBits: 128}
	if n := all.Blocks(cluster.IPv6); n != 1<<62 {
		t.Errorf("%d blocks, want 1<<62", n)
	}
}

func TestPoolUsable(t *testing.T) {
	p := cluster.Pool{Prefixes: prefixes("10.0.0.0/24"), Exclude: prefixes("10.0.0.0/26", "10.0.0.64/27", "10.0.0.96/27", "10.0.0.128/32", "fd00::/32")}
	for cidr, want := range map[string]bool{"10.0.0.0/26": false, "10.0.0.0/28": false, "10.0.0.64/26": false, "10.0.0.128/26": true, "10.0.0.128/32": false, "fd00::/64": false} {
		if got := p.Usable(netip.MustParsePrefix(cidr)); got != want {
			t.Errorf("%s: usable %t, want %t", cidr, got, want)
		}
	}
}

// TestPoolBlocksExclude counts and numbers the blocks that have a usable address, and no others.
func TestPoolBlocksExclude(t *testing.T) {
	p := cluster.Pool{
		Prefixes: prefixes("10.0.0.0/24", "10.1.0.0/25", "fd00::/48"), IPv4BlockBits: 26, IPv6BlockBits: 122,
		Exclude: prefixes("10.0.0.0/26", "10.0.0.64/27", "10.0.0.96/27", "10.0.0.128/32", "10.1.0.0/25", "10.1.0.0/30", "fd00::/49"),
	}
	if n := p.Blocks(cluster.IPv4); n != 2 {
		t.Errorf("%d IPv4 blocks, want 2", n)
	}
	for i, want := range []string{"10.0.0.128/26", "10.0.0.192/26"} {
		if got := p.Block(cluster.IPv4, uint64(i)).String(); got != want {
			t.Errorf("block %d is %s, want %s", i, got, want)
		}
	}
	if first := p.Block(cluster.IPv6, 0); p.Blocks(cluster.IPv6) != 1<<62 || first.String() != "fd00:0:0:8000::/122" {
		t.Errorf("%d IPv6 blocks, the first is %s", p.Blocks(cluster.IPv6), first)
	}
	if !p.Excluded(netip.MustParseAddr("10.0.0.128")) || p.Excluded(netip.MustParseAddr("10.0.0.129")) {
		t.Error("10.0.0.128 is excluded, and 10.0.0.129 is not")
	}
}

// excluding is a pool of small blocks with the most exclusions.
func excluding() cluster.Pool {
	p := cluster.Pool{Name: "full", Prefixes: prefixes("10.0.0.0/16"), IPv4BlockBits: 32}.WithDefaults()
	for i := range 256 {
		p.Exclude = append(p.Exclude, netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, byte(i), byte(i * 31)}), 32))
	}
	return p
}

// TestUsableBlocks goes through all blocks of a pool, as a search in a full pool does: in seconds, were the exclusions
// compared for each.
func TestUsableBlocks(t *testing.T) {
	p := excluding()
	if err := p.Validate(); err != nil {
		t.Fatal(err)
	}
	begin, seen := time.Now(), map[netip.Prefix]bool{}
	blocks := p.UsableBlocks(cluster.IPv4)
	for i := range blocks.Len() {
		seen[blocks.At(i)] = true
	}
	if took := time.Since(begin); took > time.Second {
		t.Errorf("all blocks take %s", took)
	}
	if len(seen) != 1<<16-256 || blocks.Len() != 1<<16-256 || blocks.At(blocks.Len()).IsValid() {
		t.Errorf("%d blocks, %d different ones, and after them %s", blocks.Len(), len(seen), blocks.At(blocks.Len()))
	}
	for _, e := range p.Exclude {
		if seen[e] {
			t.Errorf("block %s is excluded", e)
		}
	}
}

func BenchmarkUsableBlocks(b *testing.B) {
	p := excluding()
	for b.Loop() {
		blocks := p.UsableBlocks(cluster.IPv4)
		for i := range blocks.Len() {
			_ = blocks.At(i)
		}
	}
}

func TestPoolValidate(t *testing.T) {
	good := cluster.Pool{Name: "a", Prefixes: prefixes("10.0.0.0/16")}.WithDefaults()
	if err := good.Validate(); err != nil {
		t.Error(err)
	}
	for want, edit := range map[string]func(*cluster.Pool){
		"pool name":         func(p *cluster.Pool) { p.Name = "A" },
		"no prefix":         func(p *cluster.Pool) { p.Prefixes = nil },
		"overlaps":          func(p *cluster.Pool) { p.Prefixes = prefixes("10.0.0.0/16", "10.0.1.0/24") },
		"smaller":           func(p *cluster.Pool) { p.Prefixes = prefixes("10.0.0.0/28") },
		"not unicast":       func(p *cluster.Pool) { p.Prefixes = prefixes("224.0.0.0/8") },
		"IPv6 block /63":    func(p *cluster.Pool) { p.IPv6BlockBits = 63 },
		"IPv4 block /15":    func(p *cluster.Pool) { p.IPv4BlockBits = 15 },
		"quarantine":        func(p *cluster.Pool) { p.Quarantine = -1 },
		"exclude 10.0.0.1/": func(p *cluster.Pool) { p.Exclude = []netip.Prefix{netip.MustParsePrefix("10.0.0.1/24")} },
		"at most 256":       func(p *cluster.Pool) { p.AllowedNamespaces = make([]string, 257) },

		"exclude 10.1.0.0/24: it is in no prefix of the pool": func(p *cluster.Pool) { p.Exclude = prefixes("10.1.0.0/24") },
		"exclude 10.0.0.0/8: it is in no prefix of the pool":  func(p *cluster.Pool) { p.Exclude = prefixes("10.0.0.0/8") },
		"exclude: it leaves no ipv4 address":                  func(p *cluster.Pool) { p.Exclude = prefixes("10.0.0.0/17", "10.0.128.0/17") },
		`allowed namespace "Shop"`:                            func(p *cluster.Pool) { p.AllowedNamespaces = []string{"Shop"} },
		`allowed namespace ""`:                                func(p *cluster.Pool) { p.AllowedNamespaces = []string{""} },
	} {
		p := good
		edit(&p)
		if err := p.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one with %q", err, want)
		}
	}
}

func TestBlockName(t *testing.T) {
	for cidr, want := range map[string]string{
		"10.0.4.0/26": "10-0-4-0-26", "fd00:10::/64": "fd00-0010-0000-0000-0000-0000-0000-0000-64", "10.0.0.1/32": "10-0-0-1-32",
	} {
		if name := cluster.BlockName(netip.MustParsePrefix(cidr)); name != want {
			t.Errorf("%s: name %q, want %q", cidr, name, want)
		}
	}
}
