// Package watchable has values whose readers want the latest state, and notice of a new one.
package watchable

import "sync"

// Value is one value. The zero Value has the zero T. Its readers must not change its target.
type Value[T any] struct {
	mu      sync.Mutex // guards the fields below
	value   T
	changed chan struct{} // closed by the next Set; nil until a reader asks
}

// Get returns the value, and a channel that is closed when there is another one.
func (v *Value[T]) Get() (T, <-chan struct{}) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.changed == nil {
		v.changed = make(chan struct{})
	}
	return v.value, v.changed
}

// Set sets the value, and wakes all waiting readers.
func (v *Value[T]) Set(value T) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.value = value
	if v.changed != nil {
		close(v.changed)
		v.changed = nil
	}
}
