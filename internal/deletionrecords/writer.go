package deletionrecords

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
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
	temp, err := writeTemp(w.dir, content)
	if err != nil {
		return err
	}
	if err := os.Rename(temp, path); err != nil {
		return errors.Join(err, os.Remove(temp))
	}
	return syncDir(w.dir)
}

// writeTemp writes a file of a name of its own, down to the disk. It leaves none when it fails.
func writeTemp(dir string, content []byte) (name string, err error) {
	file, err := os.CreateTemp(dir, "*"+tempSuffix)
	if err != nil {
		return "", err
	}
	_, err = file.Write(content)
	err = errors.Join(err, file.Sync(), file.Close())
	if err != nil {
		return "", errors.Join(err, os.Remove(file.Name()))
	}
	return file.Name(), nil
}

func syncDir(dir string) error {
	file, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(file.Sync(), file.Close())
}

// Put is Begin, Put and Close, for whoever has nothing to ask in between.
func Put(dir string, r Record) error {
	w, err := Begin(dir)
	if err != nil {
		return err
	}
	return errors.Join(w.Put(r), w.Close())
}
