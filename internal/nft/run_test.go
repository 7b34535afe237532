package nft

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/google/nftables"

	"porin.dev/porin/internal/reconcile"
	"porin.dev/porin/internal/testutil"
)

// world is an owner of a table in a namespace, which runs until the test ends.
type world struct {
	namespace *testutil.Namespace
	owner     *Owner
}

func newWorld(t *testing.T) *world {
	w := &world{namespace: testutil.NetNS(t)}
	w.owner = w.newOwner(t)
	return w
}

func (w *world) newOwner(t *testing.T) *Owner {
	file, err := os.Open(w.namespace.Path())
	if err != nil {
		t.Fatal(err)
	}
	chain := Chain{Name: "input", Type: nftables.ChainTypeFilter, Hook: nftables.ChainHookInput, Rules: []Rule{On("counts").Count()}}
	owner := New(file, &Table{Name: "porin-test", Unsupported: errors.ErrUnsupported, Chains: []Chain{chain}}, slog.New(slog.DiscardHandler))
	t.Cleanup(func() {
		if err := errors.Join(owner.Close(), file.Close()); err != nil {
			t.Error(err)
		}
	})
	return owner
}

func (w *world) run(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- w.owner.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Run ends with %v", err)
		}
	})
}

// takeAway removes the table as another program does.
func (w *world) takeAway(t *testing.T) {
	if err := w.namespace.Do(func() error { _, err := DeleteTables("porin-test"); return err }); err != nil {
		t.Fatal(err)
	}
}

func (w *world) isThere(want bool) error {
	var tables []*nftables.Table
	err := w.namespace.Do(func() error {
		conn, err := nftables.New()
		if err == nil {
			tables, err = conn.ListTables()
		}
		return err
	})
	if err == nil && len(tables) == 1 != want {
		err = fmt.Errorf("%d tables, want one: %t", len(tables), want)
	}
	return err
}

// A table of another program's goes when there should be none: one from before Run, and a later one.
func TestRunRemoves(t *testing.T) {
	w := newWorld(t)
	other := w.newOwner(t)
	for _, err := range []error{other.Apply(State{}), w.owner.Apply(nil), other.Apply(State{})} {
		if err != nil {
			t.Fatal(err)
		}
	}
	w.run(t)
	testutil.Eventually(t, func() error { return w.isThere(false) })
	if err := other.Apply(State{}); err != nil {
		t.Fatal(err)
	}
	testutil.Eventually(t, func() error { return w.isThere(false) })
}

// Before the first Apply the table may be a previous agent's.
func TestRunWaitsForApply(t *testing.T) {
	w := newWorld(t)
	if err := w.newOwner(t).Apply(State{}); err != nil {
		t.Fatal(err)
	}
	w.run(t)
	differences, err := w.owner.Compare()
	if err := errors.Join(err, w.owner.Repair(), w.isThere(true)); err != nil || len(differences) > 0 {
		t.Errorf("error %v, differences %v", err, differences)
	}
}

// An Apply that fails is tried again.
func TestRunAfterFailure(t *testing.T) {
	w := newWorld(t)
	w.run(t)
	testutil.WithFewFiles(t, 0, func() {
		if err := w.owner.Apply(State{}); err == nil || w.owner.Err() == nil {
			t.Errorf("Apply without descriptors: %v, and Err is %v", err, w.owner.Err())
		}
	})
	testutil.Eventually(t, func() error { return errors.Join(w.isThere(true), w.owner.Err()) })
}

// Another program that removes the table after each repair does not keep the agent busy, and a finding says so.
func TestRunContested(t *testing.T) {
	w := newWorld(t)
	if err := w.owner.Apply(State{}); err != nil {
		t.Fatal(err)
	}
	w.run(t)
	const repairs = 5 // at once, see package reconcile
	for range repairs {
		w.takeAway(t)
		testutil.Eventually(t, func() error { return w.isThere(true) })
	}
	w.takeAway(t)
	testutil.Eventually(t, func() error {
		differences, err := w.owner.Compare()
		if err == nil && !slices.Contains(differences, reconcile.Contested) {
			err = fmt.Errorf("differences %q", differences)
		}
		return err
	})
	time.Sleep(100 * time.Millisecond)
	if err := w.isThere(false); err != nil {
		t.Error(err)
	}
	if err := errors.Join(w.owner.Repair(), w.isThere(true)); err != nil { // as the doctor does it
		t.Error(err)
	}
}
