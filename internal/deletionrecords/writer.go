package deletionrecords

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"porin.dev/porin/internal/diskfile"
)

// The ends of the names of files in the folder.
const (
	recordSuffix = ".delete"
	badSuffix    = ".bad" // set aside: could not be read
	tempSuffix   = ".tmp" // being written, or left by a writer that died
)

// Writer holds the shared lock: while it does, the agent is not working records off.
type Writer struct {
	dir  string
	lock *os.File
}

// Begin takes the shared lock on the folder, which it makes if need be. It waits some seconds for an agent that is
// working the records off.
func Begin(dir string) (*Writer, error) { return BeginUntil(dir, time.Now().Add(lockWait)) }

// BeginUntil is Begin for whoever has a deadline.
func BeginUntil(dir string, deadline time.Time) (*Writer, error) {
	file, err := lock(dir, lockShared, deadline)
	if err != nil {
		return nil, err
	}
	return &Writer{dir: dir, lock: file}, nil
}

// Close gives the lock back.
func (w *Writer) Close() error { return w.lock.Close() }

// Put writes a record. When it returns nil, the record is whole and on the disk.
func (w *Writer) Put(r Record) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("record the deletion of %s: %w", r.ContainerID, err)
		}
	}()
	content, err := r.encode()
	if err != nil {
		return err
	}
	sum := sha256.Sum256(content)
	path := filepath.Join(w.dir, hex.EncodeToString(sum[:])+recordSuffix)
	temp, err := os.CreateTemp(w.dir, "*"+tempSuffix) // two writers never meet in a file
	if err != nil {
		return err
	}
	_, err = temp.Write(content)
	if err = errors.Join(err, temp.Sync(), temp.Close()); err == nil {
		err = os.Rename(temp.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(temp.Name()))
	}
	return diskfile.SyncDir(w.dir)
}

// Put is Begin, Put and Close, for whoever has nothing to ask in between.
func Put(dir string, r Record) error {
	w, err := Begin(dir)
	if err != nil {
		return err
	}
	return errors.Join(w.Put(r), w.Close())
}

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
