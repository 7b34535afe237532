package multipool

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"porin.dev/porin/cells/cluster"
	"porin.dev/porin/cells/cluster/clustertest"
	"porin.dev/porin/cells/ipam/allocator"
	"porin.dev/porin/internal/testutil"
)

// newSession returns the session of an agent that has the node's key.
func newSession(t *testing.T, store cluster.Sessions, id cluster.NodeID, boot string) *session {
	a, cfg := allocator.New(nil), DefaultConfig()
	cfg.ContestTime = time.Millisecond
	return &session{common: &common{
		cfg: cfg, backend: cluster.Backend{Sessions: store}, addresses: addresses{a.Pools(), a, 0}, log: slog.New(slog.DiscardHandler),
		checkpoint: &checkpoint{checkpointFields: checkpointFields{Node: id}, dir: t.TempDir(), boot: boot},
	}}
}

func noOtherOwners(context.Context) ([]string, error) { return nil, nil }

// TestSessionContested begins sessions of two agents with one key, and the first one again.
func TestSessionContested(t *testing.T) {
	store := clustertest.NewStrict(1)
	t.Cleanup(store.Close)
	sessions, id := store.Backend().Sessions, cluster.NodeID{Name: "one", Key: cluster.NewKey()}
	first, second := newSession(t, sessions, id, "boot 1"), newSession(t, sessions, id, "boot 2")
	for _, s := range []*session{first, second} {
		if err := s.begin(t.Context(), noOtherOwners); err != nil || s.contested != nil {
			t.Fatalf("begin: %v, contested %v", err, s.contested)
		}
	}
	if err := first.verify(t.Context()); !errors.Is(err, errReplaced) {
		t.Errorf("verify: %v, want %v", err, errReplaced)
	}
	for _, s := range []*session{first, second} { // the first one marks it as contested
		if err := s.begin(t.Context(), noOtherOwners); !errors.Is(err, ErrContested) || s.checkpoint.Contested == "" {
			t.Errorf("begin again: %v, want %v; checkpoint %q", err, ErrContested, s.checkpoint.Contested)
		}
	}
	if err := sessions.Delete(t.Context(), id); err != nil { // porin node reset
		t.Fatal(err)
	}
	testutil.Eventually(t, func() error { return first.begin(t.Context(), noOtherOwners) }) // a deletion may take a while
	if first.contested != nil || first.checkpoint.Contested != "" {
		t.Errorf("contested after a reset: %v", first.contested)
	}
}

// TestSessionReplacedAtRestart begins the next session of the same agent, which contests nothing.
func TestSessionReplacedAtRestart(t *testing.T) {
	store := clustertest.NewStrict(1)
	t.Cleanup(store.Close)
	before := newSession(t, store.Backend().Sessions, cluster.NodeID{Name: "one", Key: cluster.NewKey()}, "boot 1")
	if err := before.begin(t.Context(), noOtherOwners); err != nil {
		t.Fatal(err)
	}
	after := *before
	after.current, after.proposed = cluster.Session{}, ""
	if err := after.begin(t.Context(), noOtherOwners); err != nil || after.contested != nil || after.current.ID == before.current.ID {
		t.Errorf("begin after a restart: %v, contested %v, session %s, was %s", err, after.contested, after.current.ID, before.current.ID)
	}
}
