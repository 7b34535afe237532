package policymap

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
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
	err := l.flock(unix.LOCK_EX | unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		err = ErrLocked
	}
	return err
}

// Unlock releases the lock.
func (l *Lock) Unlock() error { return l.flock(unix.LOCK_UN) }

func (l *Lock) flock(how int) error {
	raw, err := l.folder.SyscallConn()
	if err != nil {
		return err
	}
	controlErr := raw.Control(func(fd uintptr) { err = unix.Flock(int(fd), how) })
	return errors.Join(controlErr, err)
}

// lockRetry is the time between two looks at a lock that is taken. A proxy has it for some 50 µs.
const lockRetry = time.Millisecond

// Lock takes the lock, and waits for it until ctx ends: then the error is [ErrLocked].
func (l *Lock) Lock(ctx context.Context) error {
	tick := time.NewTicker(lockRetry)
	defer tick.Stop()
	for {
		if err := l.TryLock(); !errors.Is(err, ErrLocked) {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("lock %s: %w", l.folder.Name(), ErrLocked)
		case <-tick.C:
		}
	}
}
