package redirect

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"porin.dev/porin/internal/fault"
	"porin.dev/porin/internal/flock"
)

// ErrInUse is returned when another process is the proxy.
var ErrInUse = fault.New(fault.Conflict, "another process is the proxy of this node: stop it, or have it handed over")

// lockFolder makes the folder of the pin this process's alone, until the file is closed in all processes that have it.
func (c Config) lockFolder() (*os.File, error) {
	for {
		file, err := c.tryLockFolder()
		if err != nil || file != nil {
			return file, err
		}
	}
}

// tryLockFolder returns nil when the folder that it has locked is not the one at the path any more: its owner has
// removed it.
func (c Config) tryLockFolder() (_ *os.File, err error) {
	folder := filepath.Dir(c.pin())
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, err
	}
	file, err := os.Open(folder)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	err = flock.Try(file)
	if errors.Is(err, flock.ErrLocked) {
		err = ErrInUse
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", folder, err), file.Close())
	}
	same, err := isAt(file, folder)
	if err != nil || !same {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

func isAt(file *os.File, path string) (bool, error) {
	there, err := os.Stat(path)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	is, err := file.Stat()
	return err == nil && os.SameFile(is, there), err
}

func (c Config) pin() string { return filepath.Join(c.BPFRoot, "proxy", "select_listener") }
