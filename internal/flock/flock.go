// Package flock locks files against other processes (flock(2)). The kernel releases a lock when all copies of the file
// are closed: at the latest when the processes that have them end.
package flock

import (
	"context"
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// ErrLocked is returned when another process has the lock.
var ErrLocked = errors.New("another process has locked it")

// Try takes the lock, or returns [ErrLocked]. It does not wait.
func Try(file *os.File) error {
	err := flock(file, unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		err = ErrLocked
	}
	return err
}

// Wait takes the lock, and tries that again after each pause until ctx ends: then it returns [ErrLocked].
func Wait(ctx context.Context, file *os.File, pause time.Duration) error {
	tick := time.NewTicker(pause)
	defer tick.Stop()
	for {
		if err := Try(file); !errors.Is(err, ErrLocked) {
			return err
		}
		select {
		case <-ctx.Done():
			return ErrLocked
		case <-tick.C:
		}
	}
}

// flock leaves the file in the runtime's hands, which [os.File.Fd] would not.
func flock(file *os.File, how int) error {
	raw, err := file.SyscallConn()
	if err != nil {
		return err
	}
	controlErr := raw.Control(func(fd uintptr) {
		for err = unix.EINTR; err == unix.EINTR; {
			err = unix.Flock(int(fd), how)
		}
	})
	return errors.Join(controlErr, os.NewSyscallError("flock", err))
}
