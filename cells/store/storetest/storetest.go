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
	// Compact makes it forget the past.
	Compact func(t testing.TB, s store.Store)
	// EndLeases ends the leases that have entries, behind their holders' backs.
	EndLeases func(t testing.TB)
	// Interrupt takes the store away while during runs. It is nil where no store can be away.
	Interrupt func(t testing.TB, during func())
}

// Run holds a kind of store to what package store promises. fresh returns one that is empty, for each test.
func Run(t *testing.T, fresh func(t testing.TB) Backend) {
	t.Run("together", func(t *testing.T) {
		for name, test := range together {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				test(t, fresh(t))
			})
		}
	})
	t.Run("watch across compaction", func(t *testing.T) { testWatchAcrossCompaction(t, fresh(t)) })
}

// RunAway holds a kind of store that can be away to the rest of it. Nothing else may use it meanwhile.
func RunAway(t *testing.T, fresh func(t testing.TB) Backend) {
	for name, test := range away {
		t.Run(name, func(t *testing.T) { test(t, fresh(t)) })
	}
}

type tests map[string]func(*testing.T, Backend)

var together = tests{
	"entries":                  testEntries,
	"lists":                    testLists,
	"a list is of one moment":  testListIsOfOneMoment,
	"hostile keys":             testHostileKeys,
	"hostile values":           testHostileValues,
	"cancelled":                testCancelled,
	"stopped":                  testStopped,
	"one creator wins":         testOneCreatorWins,
	"no count is lost":         testNoCountIsLost,
	"watch":                    testWatch,
	"watch from nothing":       testWatchFromNothing,
	"watch of the future":      testWatchOfTheFuture,
	"watch ends":               testWatchEnds,
	"slow reader":              testSlowReader,
	"watch and writers":        testWatchAndWriters,
	"lease is kept":            testLeaseIsKept,
	"lease is released":        testLeaseIsReleased,
	"lease is lost":            testLeaseIsLost,
	"lease of another":         testLeaseOfAnother,
	"lease outlives a restart": testLeaseOutlivesARestart,
	"lease changes":            testLeaseChanges,
}

var away = tests{
	"calls end":                          testCallsEndWhileAway,
	"watch goes on":                      testWatchAcrossInterruption,
	"watch across compaction while away": testWatchAcrossBoth,
	"lease is over by the clock":         testLeaseIsOverByTheClock,
}
