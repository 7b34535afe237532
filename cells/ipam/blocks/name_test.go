package blocks

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"path/filepath"
	"testing"
	"time"

	"porin.dev/porin/cells/store"
)

// twins are agents of one name, each with a folder of its own, on a store that both reach. Their clock is the test's.
type twins struct {
	*testing.T
	store store.Store
	now   time.Duration
}

func (w *twins) agent(dir string) (*Manager, *kept) {
	w.Helper()
	cfg := DefaultConfig()
	cfg.Node, cfg.MemoPath = "twin", filepath.Join(dir, "blocks.json")
	local := &kept{until: -1}
	m, err := New(cfg, w.store, local, func() time.Duration { return w.now }, slog.New(slog.DiscardHandler))
	if err != nil {
		w.Fatal(err)
	}
	m.recall()
	return m, local
}

func newTwins(t *testing.T) *twins {
	return &twins{T: t, store: struct{ store.Store }{embedded(t)}, now: time.Hour}
}

// watched has an agent ask for as long as that, each interval.
func (w *twins) watched(m *Manager, d time.Duration) {
	for end := w.now + d; w.now < end; w.now += m.cfg.Interval {
		if err := m.live(w.Context()); !errors.Is(err, ErrNameTaken) {
			w.Fatalf("at %s: error %v", w.now, err)
		}
	}
}

func release(t *testing.T, m *Manager) {
	t.Helper()
	if err := m.lease.Release(context.Background()); err != nil {
		t.Fatal(err)
	}
}

func TestTheSecondAgentOfANameGivesOutNothing(t *testing.T) {
	w := newTwins(t)
	first, _ := w.agent(t.TempDir())
	if err := first.live(t.Context()); err != nil {
		t.Fatal(err)
	}
	second, local := w.agent(t.TempDir())
	w.watched(second, time.Minute)
	if err := second.taken.err(); local.until != 0 || !errors.Is(err, ErrNameTaken) || (source{second}).Resources()[0].Err == nil {
		t.Errorf("it gives out until %s; STATUS says %v", local.until, err)
	}
	if err := first.live(t.Context()); err != nil || first.taken.err() != nil {
		t.Errorf("the first one: %v", err)
	}
}

func TestTheNextLifeOfAnAgentWaitsForNoLease(t *testing.T) {
	w, dir := newTwins(t), t.TempDir()
	for range 3 { // each is killed
		m, _ := w.agent(dir)
		if err := m.live(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAfterABootANodeWaitsForItsLeaseAndNoLonger(t *testing.T) {
	w := newTwins(t)
	before, _ := w.agent(t.TempDir())
	if err := before.live(t.Context()); err != nil {
		t.Fatal(err)
	}
	after, local := w.agent(t.TempDir())
	w.watched(after, after.cfg.LeaseTTL)
	release(t, before)
	if err := after.live(t.Context()); err != nil || local.until <= w.now || after.taken.err() != nil {
		t.Errorf("%v; it gives out until %s", err, local.until)
	}
}

// TestAnAgentThatWasAlwaysThereIsNotSucceededWhenItIsCutOff: it gives out addresses as long as its fence lets it.
func TestAnAgentThatWasAlwaysThereIsNotSucceededWhenItIsCutOff(t *testing.T) {
	w := newTwins(t)
	first, _ := w.agent(t.TempDir())
	if err := first.live(t.Context()); err != nil {
		t.Fatal(err)
	}
	second, _ := w.agent(t.TempDir())
	w.watched(second, 4*second.cfg.LeaseTTL)
	release(t, first)
	w.watched(second, second.cfg.Grace-second.cfg.Interval)
	w.now += second.cfg.Interval
	if err := second.live(t.Context()); err != nil {
		t.Errorf("after its grace time: %v", err)
	}
}

// TestAnAgentWhoseNameIsAnothersWhenItComesBackStops, in its next life too.
func TestAnAgentWhoseNameIsAnothersWhenItComesBackStops(t *testing.T) {
	w, dir, block := newTwins(t), t.TempDir(), netip.MustParsePrefix("10.0.0.0/26")
	first, local := w.agent(dir)
	if err := first.live(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := first.claimPart(t.Context(), slotID{"default", block}, versioned{}, block); err != nil {
		t.Fatal(err)
	}
	if err := first.note(); err != nil {
		t.Fatal(err)
	}
	release(t, first)
	second, _ := w.agent(t.TempDir())
	if err := second.live(t.Context()); err != nil {
		t.Fatal(err)
	}
	first.lease = nil // as when it has found out that it is lost
	if err := first.live(t.Context()); !errors.Is(err, ErrNameTaken) || local.until != 0 {
		t.Errorf("error %v, it gives out until %s", err, local.until)
	}
	if _, local = w.agent(dir); len(local.blocks) > 0 {
		t.Errorf("its next life gives out from %v before it has asked", local.blocks)
	}
}

func TestACopiedFolderMakesNoAgentTheSame(t *testing.T) {
	mine := identify("")
	if identify(mine) != mine {
		t.Errorf("the next life of %s is another agent", mine)
	}
	if other := identify("ABC.another-boot"); other == "ABC.another-boot" {
		t.Error("an agent of another boot is taken for this one")
	}
}
