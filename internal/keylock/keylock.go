// Package keylock has a lock for each key, that can be waited for with a context. Work for one key is done one after
// the other, and does not keep that for other keys waiting.
package keylock

import (
	"context"
	"sync"
)

// Locks is the locks of all keys. The zero value has none that is held. Its methods may be called concurrently.
type Locks[K comparable] struct {
	mu    sync.Mutex // guards the field below, and the numbers of users
	locks map[K]*lock
}

// lock exists while a caller holds it, or waits for it.
type lock struct {
	held  chan struct{} // full while it is held
	users int
}

// Acquire waits for the lock of a key, or returns the error of ctx. The caller calls release once.
func (l *Locks[K]) Acquire(ctx context.Context, key K) (release func(), err error) {
	of := l.join(key)
	select {
	case of.held <- struct{}{}:
		return func() {
			<-of.held
			l.leave(key, of)
		}, nil
	case <-ctx.Done():
		l.leave(key, of)
		return nil, ctx.Err()
	}
}

func (l *Locks[K]) join(key K) *lock {
	l.mu.Lock()
	defer l.mu.Unlock()
	of := l.locks[key]
	if of == nil {
		if l.locks == nil {
			l.locks = map[K]*lock{}
		}
		of = &lock{held: make(chan struct{}, 1)}
		l.locks[key] = of
	}
	of.users++
	return of
}

func (l *Locks[K]) leave(key K, of *lock) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if of.users--; of.users == 0 {
		delete(l.locks, key)
	}
}
