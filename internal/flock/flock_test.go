package flock_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"porin.dev/porin/internal/flock"
)

// TestLock has two who open a file, as two processes do.
func TestLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	open := func() *os.File {
		file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { file.Close() })
		return file
	}
	first, second := open(), open()
	if err := errors.Join(flock.Try(first), flock.Try(first)); err != nil {
		t.Fatal(err)
	}
	if err := flock.Try(second); !errors.Is(err, flock.ErrLocked) {
		t.Errorf("locked by the first one: %v", err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := flock.Wait(ended, second, time.Hour); !errors.Is(err, flock.ErrLocked) {
		t.Errorf("a wait that has ended: %v", err)
	}
	waited := make(chan error)
	go func() { waited <- flock.Wait(t.Context(), second, time.Millisecond) }()
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-waited; err != nil {
		t.Fatal(err)
	}
	first = open()
	if err := flock.Try(first); !errors.Is(err, flock.ErrLocked) {
		t.Errorf("locked by the second one: %v", err)
	}
	if err := second.Close(); err != nil {
		t.Fatal(err)
	}
	if err := flock.Try(first); err != nil {
		t.Errorf("closed by the second one: %v", err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	if err := flock.Try(first); err == nil || errors.Is(err, flock.ErrLocked) {
		t.Errorf("a closed file: %v", err)
	}
}
