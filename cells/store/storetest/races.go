package storetest

import (
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"porin.dev/porin/cells/store"
)

const writers = 50

// several returns the store, and more of the same state where there may be.
func several(t testing.TB, b Backend) []store.Service {
	stores := []store.Service{b.Open(t)}
	for b.Shared && len(stores) < 5 {
		stores = append(stores, b.Open(t))
	}
	return stores
}

// each runs a function for every writer at once.
func each(stores []store.Service, run func(s store.Store, i int)) {
	var done sync.WaitGroup
	for i := range writers {
		done.Go(func() { run(stores[i%len(stores)], i) })
	}
	done.Wait()
}

func testOneCreatorWins(t *testing.T, b Backend) {
	var wins, losses atomic.Int64
	each(several(t, b), func(s store.Store, i int) {
		for round := range 5 {
			err := s.Create(t.Context(), fmt.Sprintf("block/%d", round), []byte(strconv.Itoa(i)))
			switch {
			case err == nil:
				wins.Add(1)
			case errors.Is(err, store.ErrExists):
				losses.Add(1)
			default:
				t.Error(err)
			}
		}
	})
	if wins.Load() != 5 || losses.Load() != 5*(writers-1) {
		t.Errorf("%d have won and %d have lost", wins.Load(), losses.Load())
	}
}

func testNoCountIsLost(t *testing.T, b Backend) {
	stores := several(t, b)
	create(t, stores[0], "count", "0")
	each(stores, func(s store.Store, _ int) {
		for counted := 0; counted < 2; {
			now, err := s.Get(t.Context(), "count")
			if err != nil {
				t.Error(err)
				return
			}
			n, _ := strconv.Atoi(string(now.Value))
			err = s.Replace(t.Context(), "count", now.Value, []byte(strconv.Itoa(n+1)))
			switch {
			case err == nil:
				counted++
			case !errors.Is(err, store.ErrConflict):
				t.Error(err)
				return
			}
		}
	})
	wantValue(t, stores[0], "count", strconv.Itoa(2*writers))
}
