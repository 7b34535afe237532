package fd_test

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"porin.dev/porin/internal/fd"
)

func TestDuplicate(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	copied, err := fd.Duplicate(w, "copy")
	if err != nil {
		t.Fatal(err)
	}
	defer copied.Close()
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	flags, err := unix.FcntlInt(copied.Fd(), unix.F_GETFD, 0)
	if err != nil || flags&unix.FD_CLOEXEC == 0 || copied.Name() != "copy" {
		t.Errorf("the copy %s has the flags %d, %v; want it closed on exec", copied.Name(), flags, err)
	}
	if _, err := copied.Write([]byte("x")); err != nil {
		t.Errorf("the original is closed, and the copy: %v", err)
	}
	if _, err := fd.Duplicate(w, "copy"); err == nil {
		t.Error("a copy of a closed file")
	}
}
