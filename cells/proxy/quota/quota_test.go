package quota_test

import (
	"math/rand/v2"
	"testing"

	"porin.dev/porin/cells/proxy/quota"
)

// TestAcquire has endpoints acquire all they get: none is left without anything.
func TestAcquire(t *testing.T) {
	for _, size := range []struct{ each, total, least int }{{8192, 32768, 64}, {256, 2048, 4}, {64, 1024, 2}} {
		q := quota.New(size.each, size.total)
		for endpoint := range uint16(256) {
			n := 0
			for q.Acquire(endpoint, 1) == quota.Acquired {
				n++
			}
			if n < size.least || n > size.each {
				t.Errorf("%d of %d: endpoint %d got %d, want %d to %d", size.each, size.total, endpoint, n, size.least, size.each)
			}
			if r := q.Acquire(0, 1); r != quota.EndpointLimit {
				t.Fatalf("one more for the first endpoint: %v", r)
			}
		}
		if q.Used() > size.total {
			t.Errorf("%d of %d are taken", q.Used(), size.total)
		}
	}
}

// TestRelease takes and releases at random: at the end all is free.
func TestRelease(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	q := quota.New(10, 20)
	var taken []uint16
	for range 10000 {
		if endpoint := uint16(r.IntN(5)); r.IntN(2) == 0 {
			if q.Acquire(endpoint, 1) == quota.Acquired {
				taken = append(taken, endpoint)
			}
		} else if len(taken) > 0 {
			i := r.IntN(len(taken))
			q.Release(taken[i], 1)
			taken[i] = taken[len(taken)-1]
			taken = taken[:len(taken)-1]
		}
		if q.Used() != len(taken) {
			t.Fatalf("%d are taken, want %d", q.Used(), len(taken))
		}
	}
	for _, endpoint := range taken {
		q.Release(endpoint, 1)
	}
	for i := range 10 {
		if r := q.Acquire(1, 1); r != quota.Acquired {
			t.Fatalf("all were released, and %d cannot be taken: %v", i, r)
		}
	}
}
