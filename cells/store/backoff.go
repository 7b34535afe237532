package store

import (
	"math/rand/v2"
	"time"
)

const (
	firstPause = 50 * time.Millisecond
	lastPause  = 3 * time.Second
)

// backoff is pauses that double. Each is up to a half longer, so that the nodes of a cluster do not come back as one.
type backoff struct{ last time.Duration }

func (b *backoff) next() time.Duration {
	b.last = min(max(firstPause, 2*b.last), lastPause)
	return b.last + rand.N(b.last/2)
}

func (b *backoff) reset() { b.last = 0 }
