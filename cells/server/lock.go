package server

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// lock is an flock(2) on a file: the kernel lets go of it when the process dies, however it dies.
type lock struct{ file *os.File }

// errLocked is that another process holds the lock.
var errLocked = errors.New("locked by another process")

// takeLock does not wait.
func takeLock(path string) (*lock, error) {
	for {
		l, err := tryLock(path)
		if err != nil || l != nil {
			return l, err
		}
	}
}

// tryLock returns nil when the file it has locked is no longer the one at path: its holder removed it in between, and
// the next one locks another.
func tryLock(path string) (_ *lock, err error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	l := &lock{file}
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		if errors.Is(err, unix.EWOULDBLOCK) {
			err = errLocked
		}
		return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), file.Close())
	}
	if !l.holds(path) {
		return nil, file.Close()
	}
	return l, nil
}

func (l *lock) holds(path string) bool {
	ours, err := l.file.Stat()
	if err != nil {
		return false
	}
	there, err := os.Lstat(path)
	return err == nil && os.SameFile(ours, there)
}

// release removes the file while it is still locked, so that nobody locks a file that is about to go.
func (l *lock) release() error {
	return errors.Join(removeIfThere(l.file.Name()), l.file.Close())
}

func removeIfThere(path string) error {
	if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
