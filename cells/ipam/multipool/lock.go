package multipool

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"porin.dev/porin/internal/fault"
)

// ErrFolderInUse is returned when another agent runs with the same checkpoint.
var ErrFolderInUse = fault.New(fault.Conflict, "another process has it open; one agent a store-dir: end the other one or give this one its own")

// lockFolder keeps other processes from the folder until unlock, or until this process ends. It makes the folder if there is none.
func lockFolder(path string) (unlock func() error, err error) {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, fmt.Errorf("make the folder of the node's key: %w", err)
	}
	dir, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open the folder of the node's key: %w", err)
	}
	err = unix.Flock(int(dir.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		err = ErrFolderInUse
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lock the folder of the node's key %s: %w", path, err), dir.Close())
	}
	return dir.Close, nil
}
