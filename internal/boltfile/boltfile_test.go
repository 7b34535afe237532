package boltfile_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"go.etcd.io/bbolt"

	"porin.dev/porin/internal/boltfile"
)

var errFault, errDamaged, errContent = errors.New("it cannot be opened"), errors.New("it is damaged"), errors.New("its content is not ours")

var bucket = []byte("things")

func kind(check func(*bbolt.Tx) error) boltfile.Kind {
	return boltfile.Kind{
		Name: "thing", Check: check,
		Fill:    func(tx *bbolt.Tx) error { _, err := tx.CreateBucket(bucket); return err },
		Fault:   func(_ string, err error) error { return errors.Join(errFault, err) },
		Damaged: func(_ string, err error) error { return errors.Join(errDamaged, err) },
	}
}

func TestOpen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state", "things.db")
	for range 2 {
		db, err := kind(nil).Open(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := db.View(func(tx *bbolt.Tx) error {
			if tx.Bucket(bucket) == nil {
				t.Error("what Fill writes is not there")
			}
			return nil
		}); err != nil {
			t.Error(err)
		}
		if _, err := kind(nil).Open(path); !errors.Is(err, errFault) {
			t.Errorf("a second process: %v", err)
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(path + ".new"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the file it was made as: %v", err)
	}
}

func TestOpenMakesFolders(t *testing.T) {
	top := filepath.Join(t.TempDir(), "a")
	db, err := kind(nil).Open(filepath.Join(top, "b", "c", "things.db"))
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{top, filepath.Join(top, "b"), filepath.Join(top, "b", "c")} {
		if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o750 {
			t.Errorf("%s: %v, %v", dir, info, err)
		}
	}
}

func TestOpenFolderIsFile(t *testing.T) {
	taken := filepath.Join(t.TempDir(), "taken")
	if err := os.WriteFile(taken, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{filepath.Join(taken, "things.db"), filepath.Join(taken, "state", "things.db")} {
		if _, err := kind(nil).Open(path); !errors.Is(err, syscall.ENOTDIR) || !strings.Contains(err.Error(), taken) {
			t.Errorf("%s: error %v, want ENOTDIR", path, err)
		}
	}
}

func TestOpenDamaged(t *testing.T) {
	for name, spoil := range map[string]func(path string) error{
		"empty":      func(path string) error { return os.Truncate(path, 0) },
		"cut":        func(path string) error { return os.Truncate(path, int64(os.Getpagesize())*2) },
		"other text": func(path string) error { return os.WriteFile(path, []byte("precious"), 0o600) },
	} {
		path := filepath.Join(t.TempDir(), "things.db")
		db, err := kind(nil).Open(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(db.Close(), spoil(path)); err != nil {
			t.Fatal(err)
		}
		before, _ := os.ReadFile(path)
		if _, err := kind(nil).Open(path); !errors.Is(err, errDamaged) {
			t.Errorf("%s: error %v, want errDamaged", name, err)
		}
		if after, _ := os.ReadFile(path); string(after) != string(before) {
			t.Errorf("%s: the file was changed", name)
		}
	}
}

func TestOpenForeignContent(t *testing.T) {
	path := filepath.Join(t.TempDir(), "things.db")
	db, err := kind(nil).Open(path)
	if err == nil {
		err = db.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := kind(func(*bbolt.Tx) error { return errContent }).Open(path); !errors.Is(err, errContent) || !errors.Is(err, errDamaged) {
		t.Errorf("error %v, want errContent as damage", err)
	}
}
