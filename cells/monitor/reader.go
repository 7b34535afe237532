package monitor

import (
	"context"

	v1 "porin.dev/porin/api/v1"
)

// reader is one client's way through the ring.
type reader struct {
	ring *ring
	seq  uint64 // of the last event it has
	buf  [32]v1.Event
}

// newReader begins after since. A Seq that the ring has not reached is of an earlier life of the agent: then it
// begins with the oldest event.
func (r *ring) newReader(since uint64) *reader {
	if since > r.newest() {
		since = 0
	}
	return &reader{ring: r, seq: since}
}

// next returns what there is after the last call, which is only good until the next one. It waits when there is
// nothing, and returns nothing when ctx has ended or the ring was closed.
func (r *reader) next(ctx context.Context) []v1.Event {
	for {
		n, wake := r.ring.batch(r.seq, r.buf[:])
		if n > 0 {
			r.seq = r.buf[n-1].Seq
			return r.buf[:n]
		}
		if wake == nil {
			return nil
		}
		select {
		case <-wake:
		case <-ctx.Done():
			return nil
		}
	}
}

// upTo is next without waiting, and without what is newer than seq.
func (r *reader) upTo(seq uint64) []v1.Event {
	n, _ := r.ring.batch(r.seq, r.buf[:])
	for n > 0 && r.buf[n-1].Seq > seq {
		n--
	}
	if n > 0 {
		r.seq = r.buf[n-1].Seq
	}
	return r.buf[:n]
}
