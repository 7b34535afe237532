package blocks

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"testing"
	"time"

	"porin.dev/porin/cells/store"
)

// full is a store in which one entry cannot be written.
type full struct {
	store.Store
	key string
}

func (f full) CompareAndSwap(ctx context.Context, key string, was int64, value []byte) (int64, error) {
	if key == f.key {
		return 0, store.ErrTooLarge
	}
	return f.Store.CompareAndSwap(ctx, key, was, value)
}

// TestABlockThatCannotBeWrittenHoldsUpNoOther, and is not given out from.
func TestABlockThatCannotBeWrittenHoldsUpNoOther(t *testing.T) {
	ctx, s, blocks := t.Context(), embedded(t), prefixes("10.0.0.0/26", "10.0.0.64/26")
	m, local := holder(t, "node-1", s, blocks[0])
	if err := m.claimPart(ctx, slotID{"default", blocks[1]}, versioned{}, blocks[1]); err != nil {
		t.Fatal(err)
	}
	m.adopt()
	local.busy = blocks[0]
	m.store = full{s, slotKey("default", blocks[0])}
	m.round(ctx) // it has come back
	if open := local.open(); m.lease == nil || !slices.Equal(open, blocks[1:]) || local.until <= 0 {
		t.Errorf("lease %v; it gives out from %v until %s", m.lease, open, local.until)
	}
	m.store = s
	m.round(ctx)
	if open := local.open(); len(open) != 2 {
		t.Errorf("when it can be written again it gives out from %v", open)
	}
}

// TestABlockOfNoPoolIsGivenBack though the node has known nothing of it, as after a boot.
func TestABlockOfNoPoolIsGivenBack(t *testing.T) {
	ctx, s, block := t.Context(), embedded(t), netip.MustParsePrefix("10.0.0.0/26")
	if err := manage(t, "node-1", s).claimPart(ctx, slotID{"gone", block}, versioned{}, block); err != nil {
		t.Fatal(err)
	}
	m := manage(t, "node-1", s)
	m.local = &kept{pool: "gone"}
	if err := m.lookNow(ctx); err != nil {
		t.Fatal(err)
	}
	m.round(ctx)
	if _, err := s.Get(ctx, slotKey("gone", block)); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("it has the block yet: %v", err)
	}
}

// TestAPartThatHasChangedBehindTheNodesBackIsWrittenBeforeItIsTrusted: it has as many as before, and others.
func TestAPartThatHasChangedBehindTheNodesBackIsWrittenBeforeItIsTrusted(t *testing.T) {
	ctx, s, block := t.Context(), embedded(t), netip.MustParsePrefix("10.0.0.0/26")
	m, _ := holder(t, "node-1", s, block)
	low, high := halves(block)
	was := m.own.slots[slotID{"default", block}]
	changed := slot{}.with(part{Prefix: high, Node: "node-1"}).with(part{Prefix: low, Node: "node-2"})
	revision, err := s.CompareAndSwap(ctx, slotKey("default", block), was.revision, encode(changed))
	if err != nil {
		t.Fatal(err)
	}
	if err := m.lookNow(ctx); err != nil {
		t.Fatal(err)
	}
	e, err := s.Get(ctx, slotKey("default", block))
	if err != nil || e.Revision == revision {
		t.Errorf("revision %d, %v", e.Revision, err)
	}
}

// TestAllPartsOfDeadNodesInABlockComeBackTogether: the taking of one is not taken for a sign of life of the others.
func TestAllPartsOfDeadNodesInABlockComeBackTogether(t *testing.T) {
	ctx, s, block := t.Context(), embedded(t), netip.MustParsePrefix("10.0.0.0/26")
	low, high := halves(block)
	dead := slot{}.with(part{Prefix: low, Node: "dead-1"}).with(part{Prefix: high, Node: "dead-2"})
	if _, err := s.Create(ctx, slotKey("default", block), encode(dead), nil); err != nil {
		t.Fatal(err)
	}
	taker := manage(t, "taker", s)
	now := time.Hour
	taker.clock = func() time.Duration { return now }
	for range 2 {
		if err := taker.lookNow(ctx); err != nil {
			t.Fatal(err)
		}
		now += taker.cfg.Grace
	}
	if owned, err := Owned(ctx, s, ""); len(owned) > 0 || err != nil {
		t.Errorf("owned yet: %v, %v", owned, err)
	}
}

// TestABlockThatOnlyRestsIsLookedAtSoon when it is to be given back: whoever deletes a pool waits for that.
func TestABlockThatOnlyRestsIsLookedAtSoon(t *testing.T) {
	m := manage(t, "node-1", embedded(t))
	m.cfg.Interval = 20 * time.Millisecond
	resting := Usage{Block: netip.MustParsePrefix("10.0.0.0/26"), Capacity: 64, Resting: 1}
	if m.spare("default", resting, true, false, 64) || m.restless {
		t.Error("one that the node keeps is looked at soon, or given back")
	}
	if m.spare("default", resting, false, false, 64) || !m.restless {
		t.Error("one of a pool that is no more is given back though addresses rest, or is not looked at soon")
	}
	m.returnSoon()
	select {
	case <-m.kick:
	case <-time.After(10 * time.Second):
		t.Error("no round begins")
	}
	if m.restless {
		t.Error("it is restless for ever")
	}
}

// TestWhatIsAnothersIsNotForgottenForTheNextBlock of which it cannot be said whose it is.
func TestWhatIsAnothersIsNotForgottenForTheNextBlock(t *testing.T) {
	ctx, s, blocks := t.Context(), embedded(t), prefixes("10.0.0.0/26", "10.0.0.64/26")
	holder(t, "other", s, blocks[0])
	if _, err := s.Create(ctx, slotKey("default", blocks[1]), []byte(`{"version":2}`), nil); err != nil {
		t.Fatal(err)
	}
	m := manage(t, "node-1", s)
	m.local = &kept{blocks: blocks, busy: netip.MustParsePrefix("10.0.0.0/25")}
	if err := errors.Join(m.readPools(ctx), m.regain(ctx)); err != nil {
		t.Fatal(err)
	}
	if !m.lacking {
		t.Error("it does not ask again for what is another's and in use here")
	}
}
