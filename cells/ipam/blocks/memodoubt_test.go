package blocks

import (
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// long is a grace time that the clock of these tests, of which each look takes an hour, does not come to the end of.
const long = 1000 * time.Hour

// memoOf is what the manager's next life would read.
func memoOf(m *Manager) memo {
	known, _ := readMemo(m.cfg.MemoPath, m.noted.Until-1, m.cfg.fence())
	return known
}

// TestTheNextAgentFindsWhatThisOneMayHaveClaimed: an agent that is killed between its claim and the note of it leaves a block
// that nobody would know of for minutes, and claims another one.
func TestTheNextAgentFindsWhatThisOneMayHaveClaimed(t *testing.T) {
	ctx, s := t.Context(), embedded(t)
	path := filepath.Join(t.TempDir(), "blocks.json")
	m, local := holder(t, "node-1", s, netip.MustParsePrefix("10.0.0.0/26"))
	m.cfg.MemoPath, m.cfg.Grace = path, long
	if err := m.note(); err != nil {
		t.Fatal(err)
	}
	if claimed, _, err := m.claim(ctx, m.notices.pools["default"], ipv4); !claimed || err != nil {
		t.Fatalf("claimed %t, %v", claimed, err)
	}
	next, found := manage(t, "node-1", s), &kept{}
	next.local, next.clock, next.cfg.MemoPath, next.cfg.Grace = found, m.clock, path, long
	next.recall()
	if len(found.blocks) != 1 {
		t.Errorf("before it has asked the next agent gives out from %v", found.blocks)
	}
	if err := next.settle(ctx); err != nil {
		t.Fatal(err)
	}
	next.configure()
	next.adopt()
	if len(local.blocks) != 2 || len(found.blocks) != 2 {
		t.Errorf("the next agent has %v, of %v", found.blocks, local.blocks)
	}
}

// TestWhatMayHaveBeenGivenBackIsNotReliedOn: the store may have it as another node's when the next agent begins, and be away.
func TestWhatMayHaveBeenGivenBackIsNotReliedOn(t *testing.T) {
	ctx, block := t.Context(), netip.MustParsePrefix("10.0.0.0/26")
	s := &deaf{Store: embedded(t)}
	m, _ := holder(t, "node-1", s, block)
	m.cfg.MemoPath, m.cfg.Grace = filepath.Join(t.TempDir(), "blocks.json"), long
	if err := m.note(); err != nil {
		t.Fatal(err)
	}
	s.is = true
	if err := m.give(ctx, "default", block); err == nil {
		t.Fatal("the answer was not lost")
	}
	if err := m.note(); err != nil { // as the round ends
		t.Fatal(err)
	}
	if known := memoOf(m); len(known.Parts) > 0 {
		t.Errorf("the next agent relies on %v", known.Parts)
	}
}

// TestWhatMayNotHaveBeenGivenBackIsAskedFor by the next agent, when this one is killed before it has told the store.
func TestWhatMayNotHaveBeenGivenBackIsAskedFor(t *testing.T) {
	ctx, s, block := t.Context(), embedded(t), netip.MustParsePrefix("10.0.0.0/26")
	m, _ := holder(t, "node-1", s, block)
	m.cfg.MemoPath, m.cfg.Grace = filepath.Join(t.TempDir(), "blocks.json"), long
	if err := m.note(); err != nil {
		t.Fatal(err)
	}
	if err := m.forgo(slotID{"default", block}, block); err != nil {
		t.Fatal(err)
	}
	next := manage(t, "node-1", s)
	next.clock, next.cfg.MemoPath, next.cfg.Grace = m.clock, m.cfg.MemoPath, long
	next.recall()
	if err := next.settle(ctx); err != nil || len(next.own.slots) != 1 {
		t.Errorf("the next agent knows of %v, %v", next.own.slots, err)
	}
}

// TestABlockOfAPoolThatIsDisabledIsGivenBackByWhoFindsIt, too: who has nothing to give out from it, and nothing in use of it.
func TestABlockOfAPoolThatIsDisabledIsGivenBackByWhoFindsIt(t *testing.T) {
	ctx, s, block := t.Context(), embedded(t), netip.MustParsePrefix("10.0.0.0/26")
	holder(t, "node-1", s, block)
	disabled := pool("default", "10.0.0.0/16")
	disabled.Disabled = true
	if _, err := NewPools(s).Put(ctx, disabled); err != nil {
		t.Fatal(err)
	}
	next := manage(t, "node-1", s)
	next.local = &kept{}
	if err := next.lookNow(ctx); err != nil {
		t.Fatal(err)
	}
	next.configure()
	next.adopt()
	if err := next.hold(ctx, "default"); err != nil {
		t.Fatal(err)
	}
	if left, err := Owned(ctx, s, ""); err != nil || len(left) > 0 {
		t.Errorf("it still owns %v, %v", left, err)
	}
}

func TestAMemoThatWasCutShortIsRemoved(t *testing.T) {
	m := manage(t, "node-1", embedded(t))
	m.cfg.MemoPath = filepath.Join(t.TempDir(), "blocks.json")
	if err := os.WriteFile(m.cfg.MemoPath+".new", []byte(`{"until":`), 0o600); err != nil {
		t.Fatal(err)
	}
	m.recall()
	if _, err := os.Stat(m.cfg.MemoPath + ".new"); err == nil {
		t.Error("it is there yet")
	}
}
