// Package turns has those who want the same thing take turns by a key, so that one who wants it often keeps others waiting for no longer than once.
package turns

import "context"

// slots is how many keys can have a turn at a time. Keys that share one wait for each other.
const slots = 64

// Turns is the turns of all keys.
type Turns struct{ slots [slots]chan struct{} }

// New returns turns that nobody has.
func New() *Turns {
	t := &Turns{}
	for i := range t.slots {
		t.slots[i] = make(chan struct{}, 1)
	}
	return t
}

// Begin waits for the turn of a key, or returns the error of ctx. The caller calls end once.
func (t *Turns) Begin(ctx context.Context, key uint16) (end func(), err error) {
	slot := t.slots[key%slots]
	select {
	case slot <- struct{}{}:
		return func() { <-slot }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
