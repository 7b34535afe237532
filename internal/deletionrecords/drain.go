package deletionrecords

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	lockShared    = unix.LOCK_SH
	lockExclusive = unix.LOCK_EX
	// lockWait bounds the wait for the lock where the caller has no deadline. Writers hold it for two fsyncs.
	lockWait = 10 * time.Second
)

// entry is a record and the file it is in.
type entry struct {
	Record
	path string
}

// Drain calls remove with all records, the oldest first, and drops each whose error is nil; another stays for the next
// time. Without records it is not called. No record is written meanwhile. A file that is no record is renamed to
// "*.bad" and reported, never dropped. done counts the records that are gone. A folder that is not there is empty.
func Drain(dir string, remove func([]Record) []error) (done int, err error) {
	if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	file, err := lock(dir, lockExclusive, time.Now().Add(lockWait))
	if err != nil {
		return 0, err
	}
	defer file.Close()
	entries, err := scan(dir)
	errs := []error{err}
	if len(entries) == 0 {
		return 0, err
	}
	records := make([]Record, len(entries))
	for i, e := range entries {
		records[i] = e.Record
	}
	for i, err := range remove(records) {
		e := entries[i]
		if err == nil {
			err = os.Remove(e.path)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("recorded deletion of %s:%s: %w", e.ContainerID, e.IfName, err))
			continue
		}
		done++
	}
	return done, errors.Join(errs...)
}

// scan reads every record and cleans the folder: no writer is alive, so a temporary file has no owner.
func scan(dir string) (entries []entry, err error) {
	files, err := os.ReadDir(dir)
	errs := []error{err}
	for _, file := range files {
		path := filepath.Join(dir, file.Name())
		switch {
		case strings.HasSuffix(path, tempSuffix):
			errs = append(errs, os.Remove(path))
		case strings.HasSuffix(path, recordSuffix):
			record, err := readRecord(path)
			if err != nil {
				errs = append(errs, unread(path, err))
				continue
			}
			entries = append(entries, entry{record, path})
		}
	}
	slices.SortStableFunc(entries, func(a, b entry) int { return cmp.Compare(a.Began, b.Began) })
	return entries, errors.Join(errs...)
}

// unread returns why a file cannot be read, and renames it. A file that may be read the next time stays: it is the
// process that lacks something.
func unread(path string, why error) error {
	for _, passing := range []error{unix.EMFILE, unix.ENFILE, unix.ENOMEM} {
		if errors.Is(why, passing) {
			return fmt.Errorf("deletion record %s cannot be read now: %w", path, why)
		}
	}
	bad := strings.TrimSuffix(path, recordSuffix) + badSuffix
	if err := os.Rename(path, bad); err != nil {
		return fmt.Errorf("deletion record %s is unreadable: %w; setting it aside: %w", path, why, err)
	}
	return fmt.Errorf("deletion record is unreadable, look at it in %s: %w", bad, why)
}

// Look returns the paths of the waiting records, and of records that were set aside as unreadable. It takes no lock, so
// it may miss a record that is being written. A folder that is not there is empty.
func Look(dir string) (waiting, unreadable []string, err error) {
	files, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil, nil
	}
	for _, file := range files {
		path := filepath.Join(dir, file.Name())
		switch {
		case strings.HasSuffix(path, recordSuffix):
			waiting = append(waiting, path)
		case strings.HasSuffix(path, badSuffix):
			unreadable = append(unreadable, path)
		}
	}
	return waiting, unreadable, err
}
