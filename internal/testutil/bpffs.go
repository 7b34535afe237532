package testutil

import (
	"testing"

	"golang.org/x/sys/unix"
)

// BPFFS mounts an empty BPF file system and returns its path. It goes at the end of the test, and with it what was
// pinned in it and is used by nothing else.
func BPFFS(t testing.TB) string {
	t.Helper()
	Root(t)
	dir := t.TempDir()
	if err := unix.Mount("bpf", dir, "bpf", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "mode=0700"); err != nil {
		t.Fatalf("mount a BPF file system: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Errorf("unmount %s: %v", dir, err)
		}
	})
	return dir
}
