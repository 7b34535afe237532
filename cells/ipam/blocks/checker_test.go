package blocks_test

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"porin.dev/porin/cells/doctor"
	"porin.dev/porin/cells/ipam/blocks"
	"porin.dev/porin/cells/store"
	"porin.dev/porin/cells/store/storetest"
)

// asked is a Holder that holds what it is told, and counts what it is asked for.
type asked struct {
	held    []blocks.Part
	recheck int
	more    []netip.Addr
	taken   error
}

func (a *asked) NameTaken() error              { return a.taken }
func (a *asked) Held() []blocks.Part           { return a.held }
func (a *asked) Recheck(context.Context) error { a.recheck++; return nil }
func (a *asked) More(_ context.Context, _ string, want ...netip.Addr) error {
	a.more = append(a.more, want...)
	return nil
}

// put writes an entry of the store as it is.
func put(t *testing.T, s store.Store, key, value string) {
	t.Helper()
	if _, err := s.Create(t.Context(), key, []byte(value), nil); err != nil {
		t.Fatal(err)
	}
}

// owned is the value of a block of which nodes own these prefixes.
func owned(parts ...[2]string) string {
	var texts []string
	for _, p := range parts {
		texts = append(texts, `{"prefix":"`+p[0]+`","node":"`+p[1]+`"}`)
	}
	return `{"version":1,"parts":[` + strings.Join(texts, ",") + `]}`
}

// found is what a checker finds, a line each, in order.
func found(t *testing.T, c *blocks.Checker) (lines []string, findings []doctor.Finding) {
	t.Helper()
	findings, err := c.Examine(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range findings {
		lines = append(lines, f.Kind+": "+f.Subject)
	}
	slices.Sort(lines)
	return lines, findings
}

func wantFound(t *testing.T, c *blocks.Checker, want ...string) []doctor.Finding {
	t.Helper()
	lines, findings := found(t, c)
	if diff := cmp.Diff(want, lines); diff != "" {
		t.Errorf("found (-want +got):\n%s\n%+v", diff, findings)
	}
	return findings
}

func TestWhatTheStoreSaysOfBlocksIsComparedWithItself(t *testing.T) {
	rows := []struct {
		name    string
		entries map[string]string
		found   []string
	}{
		{"several nodes, one of which has half a block", map[string]string{
			"blocks/default/10.0.0.0_18/10.0.0.0_26":  owned([2]string{"10.0.0.0/26", "a"}),
			"blocks/default/10.0.0.0_18/10.0.0.64_26": owned([2]string{"10.0.0.64/27", "a"}, [2]string{"10.0.0.96/27", "b"}),
		}, nil},
		{"one block of two nodes", map[string]string{
			"blocks/default/10.0.0.0_18/10.0.0.0_26": owned([2]string{"10.0.0.0/26", "a"}, [2]string{"10.0.0.32/27", "b"}),
		}, []string{"block-overlap: 10.0.0.0/26 of node a, pool default, and 10.0.0.32/27 of node b, pool default"}},
		{"blocks of another size, left from a pool of that name", map[string]string{
			"blocks/default/10.0.0.0_17/10.0.0.0_25":  owned([2]string{"10.0.0.0/25", "a"}),
			"blocks/default/10.0.0.0_18/10.0.0.0_26":  owned([2]string{"10.0.0.0/26", "b"}),
			"blocks/default/10.0.0.0_18/10.0.0.64_26": owned([2]string{"10.0.0.64/26", "c"}),
		}, []string{
			"block-overlap: 10.0.0.0/25 of node a, pool default, and 10.0.0.0/26 of node b, pool default",
			"block-overlap: 10.0.0.0/25 of node a, pool default, and 10.0.0.64/26 of node c, pool default",
		}},
		{"blocks of a pool that is none, and has the addresses of another", map[string]string{
			"blocks/default/10.0.0.0_18/10.0.0.0_26": owned([2]string{"10.0.0.0/26", "a"}),
			"blocks/gone/10.0.0.0_18/10.0.0.0_26":    owned([2]string{"10.0.0.0/26", "b"}),
		}, []string{
			"block-overlap: 10.0.0.0/26 of node a, pool default, and 10.0.0.0/26 of node b, pool gone",
			"block-poolless: pool gone",
		}},
		{"what cannot be read", map[string]string{
			"blocks/default/10.0.0.0_18/10.0.0.0_26":   "no JSON",
			"blocks/default/10.0.0.0_18/10.0.0.64_26":  `{"version":2}`,
			"blocks/default/10.0.0.0_18/10.0.0.128_26": owned([2]string{"10.9.0.0/26", "a"}),
			"blocks/default/10.0.0.0_18/10.0.0.192_26": owned([2]string{"10.0.0.192/26", ""}),
			"blocks/default/10.0.0.0_18/10.0.1.1_26":   owned(),
		}, []string{
			"block-unreadable: blocks/default/10.0.0.0_18/10.0.0.0_26", "block-unreadable: blocks/default/10.0.0.0_18/10.0.0.128_26", "block-unreadable: blocks/default/10.0.0.0_18/10.0.0.192_26",
			"block-unreadable: blocks/default/10.0.0.0_18/10.0.0.64_26", "block-unreadable: blocks/default/10.0.0.0_18/10.0.1.1_26",
		}},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			s := storetest.New(t)
			if _, err := blocks.NewPools(s).Put(t.Context(), small); err != nil {
				t.Fatal(err)
			}
			for key, value := range row.entries {
				put(t, s, key, value)
			}
			c := blocks.NewChecker(calm(), s, &asked{}, newPlain(nil))
			for _, f := range wantFound(t, c, row.found...) {
				if f.Repair != nil || f.Detail == "" {
					t.Errorf("finding %+v", f)
				}
			}
		})
	}
}

func TestANameThatIsAnothersIsFound(t *testing.T) {
	s := storetest.New(t)
	wantFound(t, blocks.NewChecker(calm(), s, &asked{taken: blocks.ErrNameTaken}, newPlain(nil)), "node-name-taken: node ")
}

func TestPoolsThatCannotBeReadAreFoundAndNotTakenForNone(t *testing.T) {
	s := storetest.New(t)
	put(t, s, "notices/pools", "no JSON")
	put(t, s, "blocks/default/10.0.0.0_18/10.0.0.0_26", owned([2]string{"10.0.0.0/26", "a"}))
	wantFound(t, blocks.NewChecker(calm(), s, &asked{}, newPlain(nil)), "block-unreadable: notices/pools")
}

// examined is a node with an address in use, its checker, and the block of the address.
func examined(t *testing.T) (*cluster, *simNode, *blocks.Checker, blocks.Part) {
	t.Helper()
	c := newCluster(t, storetest.New(t), small, calm(), 0)
	n := c.node(1)
	t.Cleanup(n.stop)
	if err := n.manager.More(t.Context(), "default"); err != nil {
		t.Fatal(err)
	}
	addr, ok := n.local.allocate(c.take(n))
	if !ok {
		t.Fatal("no address")
	}
	parts, err := blocks.Owned(t.Context(), c.store, n.name)
	i := slices.IndexFunc(parts, func(p blocks.Part) bool { return p.Prefix.Contains(addr) })
	if err != nil || i < 0 {
		t.Fatalf("%s is of none of %v, %v", addr, parts, err)
	}
	cfg := calm()
	cfg.Node = n.name
	checker := blocks.NewChecker(cfg, n.network, n.manager, n.local)
	wantFound(t, checker)
	return c, n, checker, parts[i]
}

func keyOf(p blocks.Part) string {
	shard := netip.PrefixFrom(p.Block.Addr(), p.Block.Bits()-8).Masked()
	text := func(prefix netip.Prefix) string { return strings.ReplaceAll(prefix.String(), "/", "_") }
	return "blocks/" + p.Pool + "/" + text(shard) + "/" + text(p.Block)
}

func TestABlockThatTheStoreHasLostIsClaimedAgainForWhatIsInUse(t *testing.T) {
	c, n, checker, p := examined(t)
	if err := c.store.Delete(t.Context(), keyOf(p), 0); err != nil {
		t.Fatal(err)
	}
	findings := wantFound(t, checker, "block-not-owned: "+p.Prefix.String()+" of pool default")
	if want := "addresses in use: 1; for the store it is nobody's"; findings[0].Detail != want {
		t.Errorf("detail %q, want %q", findings[0].Detail, want)
	}
	if err := findings[0].Repair(t.Context()); err != nil {
		t.Error(err)
	}
	wantFound(t, checker)
	if parts, err := blocks.Owned(t.Context(), c.store, n.name); err != nil || !slices.Contains(parts, p) {
		t.Errorf("the node owns %v, %v, want %v among them", parts, err, p)
	}
}

func TestABlockThatTheStoreGivesToAnotherNodeIsGivenOutFromNoMore(t *testing.T) {
	c, n, checker, p := examined(t)
	if err := c.store.Delete(t.Context(), keyOf(p), 0); err != nil {
		t.Fatal(err)
	}
	put(t, c.store, keyOf(p), owned([2]string{p.Prefix.String(), "node-9"}))
	subject := "block-not-owned: " + p.Prefix.String() + " of pool default"
	findings := wantFound(t, checker, subject)
	if err := findings[0].Repair(t.Context()); err == nil || !strings.Contains(err.Error(), "node-9") {
		t.Errorf("error %v, want one that names the owner", err)
	}
	if addr, ok := n.local.allocate(c.take(n)); ok && p.Prefix.Contains(addr) {
		t.Errorf("%s was given out", addr)
	}
	wantFound(t, checker, subject) // while an address of it is in use
	c.forget(n)
	if err := findings[0].Repair(t.Context()); err != nil {
		t.Error(err)
	}
	wantFound(t, checker)
}

func TestABlockThatTheStoreSaysIsTheNodesIsTaken(t *testing.T) {
	c, n, checker, p := examined(t)
	i := slices.IndexFunc(allBlocks(small), func(block netip.Prefix) bool { return block != p.Prefix })
	other := blocks.Part{Pool: p.Pool, Block: allBlocks(small)[i], Prefix: allBlocks(small)[i], Node: n.name}
	put(t, c.store, keyOf(other), owned([2]string{other.Prefix.String(), n.name}))
	findings := wantFound(t, checker, "block-not-held: "+other.Prefix.String()+" of pool default")
	if err := findings[0].Repair(t.Context()); err != nil {
		t.Error(err)
	}
	wantFound(t, checker)
	if !slices.Contains(n.manager.Held(), other) {
		t.Errorf("the node holds %v", n.manager.Held())
	}
}

// allBlocks are those of a pool of one prefix.
func allBlocks(p blocks.Pool) (all []netip.Prefix) {
	whole := p.Prefixes[0]
	for block := netip.PrefixFrom(whole.Addr(), p.IPv4BlockBits); whole.Contains(block.Addr()); block = netip.PrefixFrom(lastOf(block).Next(), block.Bits()) {
		all = append(all, block)
	}
	return all
}

func TestANodeThatHasJustBegunHoldsNothingYet(t *testing.T) {
	s := storetest.New(t)
	if _, err := blocks.NewPools(s).Put(t.Context(), small); err != nil {
		t.Fatal(err)
	}
	put(t, s, "blocks/default/10.0.0.0_20/10.0.0.0_28", owned([2]string{"10.0.0.0/28", "a"}))
	cfg := calm()
	cfg.Node = "a"
	begun := &asked{}
	c := blocks.NewChecker(cfg, s, begun, newPlain(nil))
	wantFound(t, c)
	begun.held = []blocks.Part{}
	findings := wantFound(t, c, "block-not-held: 10.0.0.0/28 of pool default")
	if err := findings[0].Repair(t.Context()); err != nil || begun.recheck != 1 {
		t.Errorf("%v, read anew %d times", err, begun.recheck)
	}
}

func TestWithoutTheStoreNothingIsSaidToAgree(t *testing.T) {
	_, n, checker, _ := examined(t)
	n.network.cutOff()
	defer n.network.heal()
	if findings, err := checker.Examine(t.Context(), ""); !errors.Is(err, store.ErrUnavailable) || len(findings) > 0 {
		t.Errorf("found %v, %v", findings, err)
	}
	if findings, err := checker.Examine(t.Context(), "c1:eth0"); err != nil || len(findings) > 0 {
		t.Errorf("about an attachment: found %v, %v", findings, err)
	}
}

func TestTheMoreNodesThereAreTheLessOftenOneLooks(t *testing.T) {
	s := storetest.New(t)
	cfg := blocks.DefaultConfig()
	c := blocks.NewChecker(cfg, s, &asked{}, newPlain(nil))
	few := c.Every()
	var parts [][2]string
	for _, block := range allBlocks(blocks.Pool{Prefixes: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/16")}, IPv4BlockBits: 26})[:1000] {
		parts = append(parts, [2]string{block.String(), "node-" + strings.ReplaceAll(block.Addr().String(), ".", "-")})
	}
	put(t, s, "blocks/default/10.0.0.0_8/10.0.0.0_16", owned(parts...))
	found(t, c)
	if many := c.Every(); few != 30*60e9 || many != 1000*cfg.Interval/5 {
		t.Errorf("every %s with a few nodes, and %s with 1,000", few, many)
	}
	if got := c.Compared(); len(got) != 2 || got[0].Count != 1000 || got[1].Count != 0 {
		t.Errorf("compared %v", got)
	}
}
