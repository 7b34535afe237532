package multipool

import (
	"math/rand/v2"
	"testing"
	"time"
)

// TestSearchPauses looks for blocks of a pool that is full: less and less often.
func TestSearchPauses(t *testing.T) {
	var now time.Duration
	s := searches{func() time.Duration { return now }, rand.New(rand.NewPCG(1, 2)), time.Second, map[poolFamily]search{}}
	at := poolFamily{pool: "default"}
	if !s.mayBegin(at) || !s.mayList(at) {
		t.Fatal("the first search waits")
	}
	s.noteList(at, 7)
	for pause := time.Second; pause < maxSearchTime; pause *= 2 {
		s.noteFailure(at)
		if now += pause/2 - 1; s.mayBegin(at) {
			t.Errorf("the next search begins less than %s after the last one", pause/2)
		}
		if now += pause + 1; !s.mayBegin(at) {
			t.Errorf("the next search waits for more than %s", pause*3/2)
		}
	}
	if s.mayList(at) || !s.recentlyFull()[at] {
		t.Error("the blocks are listed again at once, or the pool is not known to be full")
	}
	if now += listTime; !s.mayList(at) {
		t.Errorf("the blocks are not listed again after %s", listTime)
	}
	if s.forget(at); !s.mayBegin(at) || s.recentlyFull()[at] {
		t.Error("a pool with a free block is still known to be full")
	}
}
