package nft

import (
	"errors"
	"io"
	"log/slog"
	"os"
	"testing"

	"porin.dev/porin/internal/testutil"
)

// An agent that has no descriptor left for a netfilter socket gets an error, and goes on when there is one again.
func TestOwnerWithoutDescriptors(t *testing.T) {
	ns := testutil.NetNS(t)
	namespace, err := os.Open(ns.Path())
	if err != nil {
		t.Fatal(err)
	}
	defer namespace.Close()
	table := &Table{Name: "porin-test", Unsupported: errors.ErrUnsupported}
	owner := New(namespace, table, slog.New(slog.NewTextHandler(io.Discard, nil)))
	if _, err := owner.Read(); err != nil {
		t.Fatal(err)
	}
	for free := range 3 {
		if err := owner.Close(); err != nil {
			t.Fatal(err)
		}
		files := testutil.OpenFiles(t)
		testutil.WithFewFiles(t, free, func() { _, err = owner.Read() })
		if free < 2 && err == nil {
			t.Errorf("%d descriptors are free: no error", free)
		}
		if left := testutil.OpenFiles(t); err != nil && left != files {
			t.Errorf("%d descriptors are free: %d files are open, %d before", free, left, files)
		}
	}
	if _, err := owner.Read(); err != nil {
		t.Errorf("with descriptors again: %v", err)
	}
	if err := owner.Close(); err != nil {
		t.Fatal(err)
	}
	testutil.NoThreadsAway(t)
}
