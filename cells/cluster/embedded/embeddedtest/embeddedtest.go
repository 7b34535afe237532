// Package embeddedtest has what tests need of an embedded store.
package embeddedtest

import (
	"context"
	"log/slog"
	"testing"

	"go.etcd.io/bbolt"

	"porin.dev/porin/cells/cluster"
	"porin.dev/porin/cells/cluster/embedded"
)

// New returns the records of an empty store of the test's own.
func New(t testing.TB) cluster.Backend {
	t.Helper()
	return Open(t, t.TempDir()).Backend()
}

// Open returns the store in the folder, started. It is stopped when the test ends.
func Open(t testing.TB, dir string) *embedded.Store {
	t.Helper()
	s := embedded.New(dir, slog.New(slog.DiscardHandler))
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(context.Background()); err != nil {
			t.Errorf("stop: %v", err)
		}
	})
	return s
}

// Write sets the value of a key, for records that no agent writes. No watch tells it.
func Write(t testing.TB, s *embedded.Store, key, value string) {
	t.Helper()
	err := s.DB().Update(func(tx *bbolt.Tx) error { return tx.Bucket([]byte("entries-v2")).Put([]byte(key), []byte(value)) })
	if err != nil {
		t.Fatal(err)
	}
}
