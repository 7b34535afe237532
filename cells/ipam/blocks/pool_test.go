package blocks

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"

	"porin.dev/porin/internal/fault"
)

func prefixes(texts ...string) (list []netip.Prefix) {
	for _, text := range texts {
		list = append(list, netip.MustParsePrefix(text))
	}
	return list
}

func pool(name string, texts ...string) Pool {
	return Pool{Name: name, Prefixes: prefixes(texts...)}.WithDefaults()
}

func TestAPoolThatCannotBeIsRefused(t *testing.T) {
	if err := pool("default", "10.0.0.0/16", "fd00::/64", "192.168.0.0/26").Validate(); err != nil {
		t.Fatal(err)
	}
	for what, spoil := range map[string]func(*Pool){
		"no name":                     func(p *Pool) { p.Name = "" },
		"a name with a slash":         func(p *Pool) { p.Name = "a/b" },
		"no prefix":                   func(p *Pool) { p.Prefixes = nil },
		"bits behind the length":      func(p *Pool) { p.Prefixes = prefixes("10.0.0.1/16") },
		"overlapping prefixes":        func(p *Pool) { p.Prefixes = prefixes("10.0.0.0/16", "10.0.1.0/24") },
		"multicast":                   func(p *Pool) { p.Prefixes = prefixes("224.0.0.0/8") },
		"an IPv4-mapped prefix":       func(p *Pool) { p.Prefixes = prefixes("::ffff:10.0.0.0/112") },
		"a prefix smaller than block": func(p *Pool) { p.Prefixes = prefixes("10.0.0.0/27") },
		"a block of two addresses":    func(p *Pool) { p.IPv4BlockBits = 31 },
		"a block of too many":         func(p *Pool) { p.IPv6BlockBits = 111 },
		"a quarantine of an hour":     func(p *Pool) { p.Quarantine = 3 * MaxQuarantine },
		"a selector of no label":      func(p *Pool) { p.NodeSelector = map[string]string{"zone ": "a"} },
	} {
		p := pool("default", "10.0.0.0/16")
		if spoil(&p); fault.KindOf(p.Validate()) != fault.Invalid {
			t.Errorf("%s is taken", what)
		}
	}
}

func TestThePrefixesOfAPoolAreCutIntoBlocks(t *testing.T) {
	p := pool("default", "10.0.0.0/25", "fd00::/64", "10.1.0.0/26")
	var got []string
	for i := range p.count(ipv4) {
		got = append(got, p.block(ipv4, i).String())
	}
	if want := []string{"10.0.0.0/26", "10.0.0.64/26", "10.1.0.0/26"}; !slices.Equal(got, want) {
		t.Errorf("blocks %v, want %v", got, want)
	}
	if n := p.count(ipv6); n != 1<<58 || p.block(ipv6, n-1).String() != "fd00::ffff:ffff:ffff:ffc0/122" {
		t.Errorf("%d IPv6 blocks, the last is %s", n, p.block(ipv6, n-1))
	}
	if n := pool("default", "fd00::/8").count(ipv6); n == 0 {
		t.Error("a huge prefix has no blocks")
	}
}

func TestWhatIsFreeOfABlock(t *testing.T) {
	block := netip.MustParsePrefix("10.0.0.0/28")
	for _, row := range []struct{ taken, free []string }{
		{nil, []string{"10.0.0.0/28"}},
		{[]string{"10.0.0.0/28"}, nil},
		{[]string{"10.0.0.0/29"}, []string{"10.0.0.8/29"}},
		{[]string{"10.0.0.4/30"}, []string{"10.0.0.0/30", "10.0.0.8/29"}},
		{[]string{"10.0.0.0/30", "10.0.0.4/30", "10.0.0.12/30"}, []string{"10.0.0.8/30"}},
		{[]string{"10.0.0.0/31"}, []string{"10.0.0.4/30", "10.0.0.8/29"}}, // what is smaller than four is nobody's
	} {
		var s slot
		for _, p := range prefixes(row.taken...) {
			s = s.with(part{Prefix: p, Node: "n"})
		}
		var got []string
		for _, p := range s.free(block) {
			got = append(got, p.String())
		}
		if !slices.Equal(got, row.free) {
			t.Errorf("%v taken: free %v, want %v", row.taken, got, row.free)
		}
	}
}

func TestAKeySaysWhichBlockItIs(t *testing.T) {
	for _, block := range prefixes("10.0.0.0/26", "fd00::/122") {
		name, got, ok := parseSlotKey(slotKey("default", block))
		if !ok || name != "default" || got != block {
			t.Errorf("%s reads back as %s of %s, %t", block, got, name, ok)
		}
	}
	for _, key := range []string{"pools", "blocks/default", "blocks/default/10.0.0.0_26", "blocks/default/10.0.0.0_18/10.0.0.1_26", "blocks/default/10.0.64.0_18/10.0.0.0_26", "blocks/default/x/10.0.0.0_26", "nodes/a/b"} {
		if _, _, ok := parseSlotKey(key); ok {
			t.Errorf("%s is taken for a block", key)
		}
	}
}

func TestALifeOfPools(t *testing.T) {
	ctx, s := t.Context(), embedded(t)
	pools := NewPools(s)
	if _, err := pools.Put(ctx, pool("default", "10.0.0.0/16")); err != nil {
		t.Fatal(err)
	}
	for what, try := range map[string]struct {
		do   func() error
		want error
	}{
		"overlapping": {func() error { _, err := pools.Put(ctx, pool("blue", "10.0.128.0/17")); return err }, ErrOverlap},
		"unknown":     {func() error { _, err := pools.Get(ctx, "blue"); return err }, ErrNoPool},
		"no deletion": {func() error { return pools.Delete(ctx, "blue", 0) }, ErrNoPool},
	} {
		if err := try.do(); !errors.Is(err, try.want) {
			t.Errorf("%s: error %v, want %v", what, err, try.want)
		}
	}
	m := manage(t, "node-1", s)
	block := netip.MustParsePrefix("10.0.0.0/26")
	if err := m.claimPart(ctx, slotID{"default", block}, versioned{}, block); err != nil {
		t.Fatal(err)
	}
	if err := pools.Delete(ctx, "default", 0); !errors.Is(err, ErrPoolInUse) {
		t.Errorf("deletion of a pool in use: %v", err)
	}
	if now, err := pools.Get(ctx, "default"); err != nil || now.Disabled {
		t.Errorf("after a deletion that was refused: %+v, %v", now, err)
	}
	changed := pool("default", "10.9.0.0/16")
	changed.IPv4BlockBits = 24
	if got, err := pools.Put(ctx, changed); err != nil || got.IPv4BlockBits != DefaultIPv4BlockBits {
		t.Errorf("update: %+v, %v; the size of blocks must stay", got, err)
	}
	if _, err := pools.Put(ctx, pool("blue", "10.0.0.0/24")); !errors.Is(err, ErrOverlap) || !strings.Contains(err.Error(), "node-1") {
		t.Errorf("a pool of addresses that a node has of another one yet: %v", err)
	}
	if err := m.drop(ctx, "default", block); err != nil {
		t.Fatal(err)
	}
	if _, err := pools.Put(ctx, pool("blue", "10.0.0.0/24")); err != nil {
		t.Error(err)
	}
	if err := pools.Delete(ctx, "default", 0); err != nil {
		t.Error(err)
	}
}

// TestAClaimOfWhatThePoolHasNoMoreIsGivenBack has a pool change in the moment before a node claims of it.
func TestAClaimOfWhatThePoolHasNoMoreIsGivenBack(t *testing.T) {
	ctx, s := t.Context(), embedded(t)
	for what, now := range map[string]Pool{
		"moved": pool("default", "10.9.0.0/16"), "disabled": {Name: "default", Prefixes: prefixes("10.0.0.0/16"), Disabled: true},
	} {
		m := manage(t, "node-1", s)
		m.notices.setPools([]Pool{pool("default", "10.0.0.0/16").WithDefaults()})
		if _, err := NewPools(s).Put(ctx, now); err != nil {
			t.Fatal(err)
		}
		if claimed, _, err := m.claim(ctx, m.notices.pools["default"], ipv4); claimed || err != nil {
			t.Errorf("%s: claimed %t, %v", what, claimed, err)
		}
		if owned, err := Owned(ctx, s, ""); len(owned) > 0 || err != nil {
			t.Errorf("%s: %v is owned, %v", what, owned, err)
		}
	}
}

// TestABlockHasAPlaceInItsPool holds indexOf against block.
func TestABlockHasAPlaceInItsPool(t *testing.T) {
	p := Pool{Prefixes: prefixes("10.0.0.0/25", "fd00::/64", "10.9.0.0/24"), IPv4BlockBits: 28, IPv6BlockBits: 122}
	for _, f := range []family{ipv4, ipv6} {
		for i := range min(p.count(f), 100) {
			if got, ok := p.indexOf(p.block(f, i)); got != i || !ok {
				t.Errorf("%s, block %d, %s, is at %d, %t", f, i, p.block(f, i), got, ok)
			}
		}
	}
	for _, other := range prefixes("10.1.0.0/28", "10.0.0.0/29", "fd01::/122") {
		if got, ok := p.indexOf(other); ok {
			t.Errorf("%s is block %d", other, got)
		}
	}
}

// TestPoolsThatAreMadeAtOnceDoNotOverlap has ten people make pools of the same addresses.
func TestPoolsThatAreMadeAtOnceDoNotOverlap(t *testing.T) {
	s := embedded(t)
	var all sync.WaitGroup
	for i := range 10 {
		all.Go(func() {
			_, err := NewPools(s).Put(t.Context(), pool(fmt.Sprintf("pool-%d", i), "10.0.0.0/16", fmt.Sprintf("10.%d.0.0/16", i+1)))
			if err != nil && !errors.Is(err, ErrOverlap) {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if list, err := NewPools(s).List(t.Context()); err != nil || len(list) != 1 {
		t.Errorf("there are %d pools, %v", len(list), err)
	}
}
