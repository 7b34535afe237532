package testutil

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"
)

// WithFewFiles runs f while this process can open no more than n further files.
func WithFewFiles(t testing.TB, n int, f func()) {
	t.Helper()
	var before unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	few := unix.Rlimit{Cur: min(before.Cur, uint64(OpenFiles(t)+n+64)), Max: before.Max}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &few); err != nil {
		t.Fatal(err)
	}
	var taken []int
	defer func() {
		for _, fd := range taken {
			_ = unix.Close(fd)
		}
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &before); err != nil {
			t.Fatal(err)
		}
	}()
	for {
		fd, err := unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if errors.Is(err, unix.EMFILE) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		taken = append(taken, fd)
	}
	for range n {
		last := len(taken) - 1
		_ = unix.Close(taken[last])
		taken = taken[:last]
	}
	f()
}
