package blocks

import (
	"cmp"
	"context"
	"net/netip"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"porin.dev/porin/cells/store"
)

// kept is a Local that notes what it may give out from.
type kept struct {
	nothing
	blocks  []netip.Prefix
	drained map[netip.Prefix]bool
	until   time.Duration
	pool    string       // "" is default
	busy    netip.Prefix // of which something is in use
}

func (k *kept) Drain(_ string, block netip.Prefix) {
	if k.drained == nil {
		k.drained = map[netip.Prefix]bool{}
	}
	k.drained[block] = true
}

// open returns what is not drained.
func (k *kept) open() []netip.Prefix {
	return slices.DeleteFunc(slices.Clone(k.blocks), func(block netip.Prefix) bool { return k.drained[block] })
}

func (k *kept) Until(deadline time.Duration) { k.until = deadline }

func (k *kept) Add(_ string, block netip.Prefix) error {
	delete(k.drained, block)
	if !slices.Contains(k.blocks, block) {
		k.blocks = append(k.blocks, block)
	}
	return nil
}

func (k *kept) Remove(_ string, block netip.Prefix) error {
	if k.busy.IsValid() && k.busy.Overlaps(block) {
		return ErrInUse
	}
	k.blocks = slices.DeleteFunc(k.blocks, func(own netip.Prefix) bool { return own == block })
	return nil
}

func (k *kept) Usage(string) (list []Usage) {
	for _, block := range k.blocks {
		u := Usage{Block: block, Capacity: 64, Drained: k.drained[block]}
		if k.busy.IsValid() && k.busy.Overlaps(block) {
			u.Used = 1
		}
		list = append(list, u)
	}
	return list
}

func (k *kept) Wanted() []string { return []string{cmp.Or(k.pool, "default")} }

// deaf is a store whose answers are lost once it is deaf. What was asked for is done.
type deaf struct {
	store.Store
	is bool
}

func (d *deaf) answer(err error) error {
	if d.is {
		return store.ErrUnavailable
	}
	return err
}

func (d *deaf) Create(ctx context.Context, key string, value []byte, l store.Lease) (int64, error) {
	revision, err := d.Store.Create(ctx, key, value, l)
	return revision, d.answer(err)
}

func (d *deaf) Delete(ctx context.Context, key string, revision int64) error {
	return d.answer(d.Store.Delete(ctx, key, revision))
}

// holder is a manager with a pool, one block of it, and a local that knows it.
func holder(t *testing.T, name string, s store.Store, block netip.Prefix) (*Manager, *kept) {
	t.Helper()
	if _, err := NewPools(s).Put(t.Context(), pool("default", "10.0.0.0/16")); err != nil {
		t.Fatal(err)
	}
	m, local := manage(t, name, s), &kept{}
	m.local = local
	if err := m.readPools(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := m.claimPart(t.Context(), slotID{"default", block}, versioned{}, block); err != nil {
		t.Fatal(err)
	}
	m.adopt()
	return m, local
}

// TestTwoShortAbsencesAreNotOneLongOne has a node come back in between, while the one that watches it sees nothing.
func TestTwoShortAbsencesAreNotOneLongOne(t *testing.T) {
	ctx, s, block := t.Context(), embedded(t), netip.MustParsePrefix("10.0.0.0/26")
	m, _ := holder(t, "absent", s, block)
	taker := manage(t, "taker", s)
	if err := taker.lookNow(ctx); err != nil {
		t.Fatal(err)
	}
	if err := m.live(ctx); err != nil { // it comes back
		t.Fatal(err)
	}
	if err := m.lease.Release(ctx); err != nil { // and is gone once more
		t.Fatal(err)
	}
	for range 2 { // an hour later each
		if err := taker.lookNow(ctx); err != nil {
			t.Fatal(err)
		}
		if owned, err := Owned(ctx, s, "absent"); len(owned) != 1 || err != nil {
			t.Fatalf("it has %v, %v", owned, err)
		}
		taker.clock = func() time.Duration { return 0 } // no time passes any more
	}
}

// TestANodeStopsBeforeOthersTakeItsBlocks holds the fence against the grace time: others begin to count when the lease is
// over, which may be as soon as the node has renewed it for the last time.
func TestANodeStopsBeforeOthersTakeItsBlocks(t *testing.T) {
	m, local := holder(t, "node-1", embedded(t), netip.MustParsePrefix("10.0.0.0/26"))
	m.clock = func() time.Duration { return 5 * time.Hour }
	for what, do := range map[string]func(){
		"it lives": func() {
			if err := m.live(t.Context()); err != nil {
				t.Fatal(err)
			}
		},
		"a new agent relies on the memo": func() {
			m.cfg.MemoPath = filepath.Join(t.TempDir(), "blocks.json")
			if err := m.note(); err != nil {
				t.Fatal(err)
			}
			m.recall()
		},
	} {
		do()
		if left := local.until - m.clock(); left <= 0 || left+m.cfg.LeaseTTL >= m.cfg.Grace {
			t.Errorf("%s: it gives out for %s more, of a grace time of %s", what, left, m.cfg.Grace)
		}
	}
}

// TestABlockWhoseEndWasNotAnsweredIsNotGivenOutFrom until the store says what became of it.
func TestABlockWhoseEndWasNotAnsweredIsNotGivenOutFrom(t *testing.T) {
	ctx, block := t.Context(), netip.MustParsePrefix("10.0.0.0/26")
	s := &deaf{Store: embedded(t)}
	m, local := holder(t, "node-1", s, block)
	s.is = true
	if err := m.give(ctx, "default", block); err == nil {
		t.Fatal("the answer was not lost")
	}
	m.adopt()
	if len(local.blocks) > 0 {
		t.Errorf("in doubt it gives out from %v", local.blocks)
	}
	s.is = false
	if err := m.settle(ctx); err != nil {
		t.Fatal(err)
	}
	m.adopt()
	if len(local.blocks) > 0 || len(m.own.slots) > 0 {
		t.Errorf("it has given it back, and gives out from %v", local.blocks)
	}
}

// TestABlockWhoseClaimWasNotAnsweredIsFound once the store answers.
func TestABlockWhoseClaimWasNotAnsweredIsFound(t *testing.T) {
	ctx, block := t.Context(), netip.MustParsePrefix("10.0.0.0/26")
	s := &deaf{Store: embedded(t)}
	m, local := holder(t, "node-1", s, block)
	s.is = true
	if claimed, _, err := m.claim(ctx, m.notices.pools["default"], ipv4); claimed || err == nil || len(local.blocks) != 1 {
		t.Fatalf("claimed %t, %v, gives out from %v", claimed, err, local.blocks)
	}
	s.is = false
	if err := m.settle(ctx); err != nil {
		t.Fatal(err)
	}
	m.adopt()
	if len(local.blocks) != 2 {
		t.Errorf("it gives out from %v, and has claimed two blocks", local.blocks)
	}
	for result, want := range map[string]float64{"claimed": 1, "failed": 1, "met": 0} {
		if got := testutil.ToFloat64(m.meters.claims.WithLabelValues(result)); got != want {
			t.Errorf("%v claims are counted as %s, want %v", got, result, want)
		}
	}
}

// TestWhatWasNotKnownIsWrittenBeforeItIsGivenOutFrom has a node find a block of its own that another one is about to take: the
// other has seen it at the revision that it had.
func TestWhatWasNotKnownIsWrittenBeforeItIsGivenOutFrom(t *testing.T) {
	ctx, s, block := t.Context(), embedded(t), netip.MustParsePrefix("10.0.0.0/26")
	holder(t, "node-1", s, block)
	before, err := s.Get(ctx, slotKey("default", block))
	if err != nil {
		t.Fatal(err)
	}
	again, local := manage(t, "node-1", s), &kept{}
	again.local = local
	if err := again.lookNow(ctx); err != nil {
		t.Fatal(err)
	}
	after, err := s.Get(ctx, slotKey("default", block))
	if err != nil || after.Revision == before.Revision || !slices.Contains(local.blocks, block) {
		t.Errorf("revision %d, before %d, %v; it gives out from %v", after.Revision, before.Revision, err, local.blocks)
	}
}
