// Package storetest has what tests need of a store: one to work on, and the test that every backend must pass.
package storetest

import (
	"log/slog"
	"testing"

	"porin.dev/porin/cells/store"
)

// New returns a started store of the test's own, in a file. It is stopped when the test ends.
func New(t testing.TB) store.Service {
	t.Helper()
	cfg := store.DefaultConfig()
	cfg.Dir = t.TempDir()
	return Open(t, cfg)
}

// Open returns the store of the configuration, started. It is stopped when the test ends, if not before.
func Open(t testing.TB, cfg store.Config) store.Service {
	t.Helper()
	s, err := store.New(cfg, slog.New(slog.DiscardHandler))
	if err == nil {
		err = s.Start(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(t, s) })
	return s
}

func stop(t testing.TB, s store.Service) {
	t.Helper()
	if err := s.Stop(t.Context()); err != nil {
		t.Errorf("stop: %v", err)
	}
}

// Backend is a kind of store.
type Backend struct {
	// Open returns the store, started. When it has been stopped, another one on the same state. Several at once are for
	// tests of a Shared one only.
	Open   func(t testing.TB) store.Service
	Shared bool
	// Compact makes the store forget old changes, and Interrupt takes it away while during runs. Both are of a Shared one.
	Compact   func(t testing.TB)
	Interrupt func(t testing.TB, during func())
}

// Run holds a kind of store to what package store promises. fresh returns one that is empty, for each test.
func Run(t *testing.T, fresh func(t testing.TB) Backend) {
	for name, test := range together {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, fresh(t))
		})
	}
}

// RunAway holds a kind of store that can be away to the rest of it. Nothing else may use it meanwhile.
func RunAway(t *testing.T, fresh func(t testing.TB) Backend) {
	for name, test := range away {
		t.Run(name, func(t *testing.T) { test(t, fresh(t)) })
	}
}

type tests map[string]func(*testing.T, Backend)

var together = tests{
	"entries":                 testEntries,
	"pages":                   testPages,
	"hostile keys":            testHostileKeys,
	"hostile values":          testHostileValues,
	"cancelled":               testCancelled,
	"stopped":                 testStopped,
	"one creator wins":        testOneCreatorWins,
	"no count is lost":        testNoCountIsLost,
	"watch":                   testWatch,
	"watch ends":              testWatchEnds,
	"resync is of one moment": testResyncIsOfOneMoment,
	"slow reader":             testSlowReader,
	"watch and writers":       testWatchAndWriters,
}

var away = tests{
	"calls end":               testCallsEndWhileAway,
	"watch goes on":           testWatchAcrossInterruption,
	"watch across compaction": testWatchAcrossCompaction,
	"list across compaction":  testListAcrossCompaction,
}
