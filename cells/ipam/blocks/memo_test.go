package blocks

import (
	"net/netip"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

func TestAMemoIsReliedOnAsLongAsItSaysAndNotAfterABoot(t *testing.T) {
	path := filepath.Join(t.TempDir(), "blocks.json")
	if _, ok := readMemo(path, time.Hour, time.Hour); ok {
		t.Error("a memo that is not there is relied on")
	}
	want := memo{Until: 2 * time.Hour, Parts: []memoPart{{"default", netip.MustParsePrefix("10.0.0.0/26"), netip.MustParsePrefix("10.0.0.0/26")}}}
	if err := want.write(path); err != nil {
		t.Fatal(err)
	}
	for now, relied := range map[time.Duration]bool{
		90 * time.Minute: true, 2*time.Hour - 1: true, 2 * time.Hour: false, 3 * time.Hour: false,
		time.Minute: false, // the node has booted since
	} {
		got, ok := readMemo(path, now, time.Hour)
		if ok != relied || ok && !slices.Equal(got.Parts, want.Parts) {
			t.Errorf("at %s: %+v, %t, want %t", now, got, ok, relied)
		}
	}
}

// TestWhatIsGivenBackIsNotReliedOn has the agent be killed right after it has given a block back.
func TestWhatIsGivenBackIsNotReliedOn(t *testing.T) {
	ctx, s := t.Context(), embedded(t)
	m := manage(t, "node-1", s)
	m.cfg.MemoPath = filepath.Join(t.TempDir(), "blocks.json")
	blocks := prefixes("10.0.0.0/26", "10.0.0.64/26")
	for _, block := range blocks {
		if err := m.claimPart(ctx, slotID{"default", block}, versioned{}, block); err != nil {
			t.Fatal(err)
		}
	}
	if err := m.note(); err != nil {
		t.Fatal(err)
	}
	if err := m.drop(ctx, "default", blocks[0]); err != nil {
		t.Fatal(err)
	}
	got, _ := readMemo(m.cfg.MemoPath, m.noted.Until-1, m.cfg.fence())
	if want := []memoPart{{"default", blocks[1], blocks[1]}}; !slices.Equal(got.Parts, want) {
		t.Errorf("the next agent relies on %v, want %v", got.Parts, want)
	}
}

// TestTheNextAgentKnowsAPoolAsItIsNow, also when the blocks are the same as before it was changed.
func TestTheNextAgentKnowsAPoolAsItIsNow(t *testing.T) {
	m := manage(t, "node-1", embedded(t))
	m.cfg.MemoPath, m.cfg.Grace = filepath.Join(t.TempDir(), "blocks.json"), 1000*time.Hour // its time alone is no news
	for _, quarantine := range []time.Duration{time.Second, time.Minute} {
		changed := pool("default", "10.0.0.0/16")
		changed.Quarantine = quarantine
		m.pools = map[string]Pool{"default": changed}
		if err := m.note(); err != nil {
			t.Fatal(err)
		}
		got, _ := readMemo(m.cfg.MemoPath, m.noted.Until-1, m.cfg.fence())
		if len(got.Pools) != 1 || got.Pools[0].Quarantine != quarantine {
			t.Errorf("the next agent relies on %+v, want a quarantine of %s", got.Pools, quarantine)
		}
	}
}
