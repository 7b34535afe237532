package policymap

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"porin.dev/porin/internal/flock"
)

// ErrLocked is returned when another process writes the maps.
var ErrLocked = errors.New("another process writes the maps of the policy")

// Lock is held by the process that writes the maps: an agent from its first write to its end, and a proxy while it writes what one answer says. It is a lock of the folder
// where they are pinned (flock(2)): the kernel releases it when the process ends. It is for one goroutine at a time.
type Lock struct {
	folder *os.File
}

// OpenLock opens the lock, and does not take it.
func OpenLock(folder string) (*Lock, error) {
	file, err := os.Open(folder)
	if err != nil {
		return nil, fmt.Errorf("open the folder of the maps: %w", err)
	}
	return &Lock{file}, nil
}

// Close releases the lock, too.
func (l *Lock) Close() error { return l.folder.Close() }

// TryLock takes the lock, or returns [ErrLocked]. It does not wait.
func (l *Lock) TryLock() error {
	return l.explain(flock.Try(l.folder))
}

// Unlock releases the lock.
func (l *Lock) Unlock() error { return flock.Unlock(l.folder) }

// lockRetry is the time between two looks at a lock that is taken. A proxy has it for some 50 µs.
const lockRetry = time.Millisecond

// Lock takes the lock, and waits for it until ctx ends: then the error is [ErrLocked].
func (l *Lock) Lock(ctx context.Context) error {
	return l.explain(flock.Wait(ctx, l.folder, lockRetry))
}

func (l *Lock) explain(err error) error {
	if errors.Is(err, flock.ErrLocked) {
		err = fmt.Errorf("lock %s: %w", l.folder.Name(), ErrLocked)
	}
	return err
}
