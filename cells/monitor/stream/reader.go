package stream

import "context"

// Reader is the position of one client in the ring.
type Reader[T any] struct {
	ring *Ring[T]
	seq  uint64 // of the last record it has
	buf  [32]T

	// First is the number of the first record of the last batch. Missed is how many records before it the ring had
	// lost. Both are 0 at first.
	First, Missed uint64
}

// NewReader begins after the record since. If the ring has not reached that number, it is of an earlier process of the
// agent: then the reader begins with the oldest record.
func (r *Ring[T]) NewReader(since uint64) *Reader[T] {
	if since > r.Newest() {
		since = 0
	}
	return &Reader[T]{ring: r, seq: since}
}

// Next returns the records since the last call; the slice is valid until the next call. It waits when there are none,
// and returns none when ctx has ended or the ring was closed.
func (r *Reader[T]) Next(ctx context.Context) []T {
	for {
		first, n, wake := r.ring.batch(r.seq, r.buf[:])
		if n > 0 {
			return r.advance(first, n)
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

// UpTo is Next without waiting, and without records that are newer than seq.
func (r *Reader[T]) UpTo(seq uint64) []T {
	first, n, _ := r.ring.batch(r.seq, r.buf[:])
	for n > 0 && first+uint64(n)-1 > seq {
		n--
	}
	return r.advance(first, n)
}

func (r *Reader[T]) advance(first uint64, n int) []T {
	if n > 0 {
		r.Missed = 0
		if r.seq > 0 {
			r.Missed = first - r.seq - 1
		}
		r.First, r.seq = first, first+uint64(n)-1
	}
	return r.buf[:n]
}
