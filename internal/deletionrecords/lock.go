package deletionrecords

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// lockFile is the file in the folder that writers and the agent lock.
const lockFile = "lock"

// lockRetry is how long a wait for the lock takes between two attempts.
const lockRetry = 2 * time.Millisecond

// lock opens the folder, making it if need be, and takes the lock: how is unix.LOCK_SH or LOCK_EX. It gives up at the
// deadline. Closing the file gives the lock back, as the end of the process does.
func lock(dir string, how int, deadline time.Time) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the folder of deletion records: %w", err)
	}
	path := filepath.Join(dir, lockFile)
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock the deletion records: %w", err)
	}
	for {
		err := unix.Flock(int(file.Fd()), how|unix.LOCK_NB)
		if err == nil {
			return file, nil
		}
		busy := errors.Is(err, unix.EWOULDBLOCK) || errors.Is(err, unix.EINTR)
		if !busy || time.Now().After(deadline) {
			file.Close()
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		time.Sleep(lockRetry)
	}
}
