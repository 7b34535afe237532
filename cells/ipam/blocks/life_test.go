package blocks

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"

	"porin.dev/porin/cells/store"
)

// nothing is a Local that gives nothing out.
type nothing struct{}

func (nothing) Configure(Pool)                    {}
func (nothing) Forget(string)                     {}
func (nothing) Add(string, netip.Prefix) error    { return nil }
func (nothing) Drain(string, netip.Prefix)        {}
func (nothing) Remove(string, netip.Prefix) error { return nil }
func (nothing) Usage(string) []Usage              { return nil }
func (nothing) Low(int, func())                   {}
func (nothing) Wanted() []string                  { return nil }
func (nothing) Until(time.Duration)               {}

// hooked calls back when it has found that a node is gone.
type hooked struct {
	store.Store
	gone func()
}

func (h hooked) Get(ctx context.Context, key string) (store.Entry, error) {
	e, err := h.Store.Get(ctx, key)
	if errors.Is(err, store.ErrNotFound) && strings.HasPrefix(key, nodesPrefix) {
		h.gone()
	}
	return e, err
}

func embedded(t *testing.T) store.Store {
	t.Helper()
	cfg := store.DefaultConfig()
	cfg.Dir = t.TempDir()
	s, err := store.New(cfg, slog.New(slog.DiscardHandler))
	if err == nil {
		err = s.Start(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return s
}

func manage(t *testing.T, name string, s store.Store) *Manager {
	t.Helper()
	cfg := DefaultConfig()
	cfg.Node = name
	var clock time.Duration
	m, err := New(cfg, s, nothing{}, func() time.Duration { clock += time.Hour; return clock }, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// TestANodeThatComesBackKeepsItsBlocks comes back in the moment between the question whether it is gone and the taking.
func TestANodeThatComesBackKeepsItsBlocks(t *testing.T) {
	ctx, s := t.Context(), embedded(t)
	block := netip.MustParsePrefix("10.0.0.0/26")
	back := manage(t, "back", s)
	if err := back.claimPart(ctx, slotID{"default", block}, versioned{}, block); err != nil {
		t.Fatal(err)
	}
	came := false
	taker := manage(t, "taker", hooked{s, func() {
		if came = true; back.live(ctx) != nil {
			t.Error("the node cannot come back")
		}
	}})
	for range 3 {
		if err := taker.lookNow(ctx); err != nil {
			t.Fatal(err)
		}
	}
	e, err := s.Get(ctx, slotKey("default", block))
	if err != nil || !came {
		t.Fatalf("the block: %v; the node came back: %t", err, came)
	}
	if got, err := decodeSlot(e); err != nil || len(got.ownedBy("back")) != 1 {
		t.Errorf("the block is %+v, %v", got, err)
	}
}

// TestTheBlocksOfADeadNodeComeBack after its grace time, and not before.
func TestTheBlocksOfADeadNodeComeBack(t *testing.T) {
	ctx, s := t.Context(), embedded(t)
	block := netip.MustParsePrefix("10.0.0.0/26")
	low, _ := halves(block)
	if err := manage(t, "dead", s).claimPart(ctx, slotID{"default", block}, versioned{}, low); err != nil {
		t.Fatal(err)
	}
	taker := manage(t, "taker", s)
	began, now := taker.clock(), time.Duration(0)
	taker.clock = func() time.Duration { return now }
	for _, look := range []struct {
		after time.Duration
		free  bool
	}{{0, false}, {taker.cfg.Grace - time.Second, false}, {taker.cfg.Grace, true}} {
		now = began + look.after
		if err := taker.lookNow(ctx); err != nil {
			t.Fatal(err)
		}
		_, err := s.Get(ctx, slotKey("default", block))
		if free := errors.Is(err, store.ErrNotFound); free != look.free {
			t.Errorf("after %s: free %t, want %t (%v)", look.after, free, look.free, err)
		}
	}
	if taker.nextLook > now+2*taker.cfg.Grace {
		t.Errorf("the next look is at %s, now is %s", taker.nextLook, now)
	}
}
