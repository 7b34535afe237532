package multipool

import (
	"math/rand/v2"
	"testing"
	"time"
)

// TestSearchPauses looks for blocks of a pool that is full: less and less often.
func TestSearchPauses(t *testing.T) {
	var now time.Duration
	var s search
	if now < s.next || !s.mayList(now) {
		t.Fatal("the first search waits")
	}
	random := rand.New(rand.NewPCG(1, 2)).Int64N
	for pause := time.Second; pause < maxSearchTime; pause *= 2 {
		s.postpone(now, time.Second, random)
		if now += pause/2 - 1; now >= s.next {
			t.Errorf("the next search begins less than %s after the last one", pause/2)
		}
		if now += pause + 1; now < s.next {
			t.Errorf("the next search waits for more than %s", pause*3/2)
		}
	}
	if s.mayList(now) || !s.recent(now) {
		t.Error("the blocks are listed again at once, or the pool is not known to be full")
	}
	if now += listTime; !s.mayList(now) {
		t.Errorf("the blocks are not listed again after %s", listTime)
	}
}
