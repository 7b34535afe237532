package netns_test

import (
	"errors"
	"io/fs"
	"os/exec"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"porin.dev/porin/internal/netns"
	"porin.dev/porin/internal/testutil"
)

func TestInUse(t *testing.T) {
	with, without := testutil.NetNS(t), testutil.NetNS(t)
	startIn(t, with)
	inUse, err := netns.InUse()
	if err != nil {
		t.Fatal(err)
	}
	for namespace, want := range map[*testutil.Namespace]bool{with: true, without: false} {
		cookie, err := netns.Cookie(namespace.FD())
		if err != nil {
			t.Fatal(err)
		}
		if inUse[cookie] != want {
			t.Errorf("%v has a process: %v, want %v", namespace.Path(), inUse[cookie], want)
		}
	}
}

// startIn starts a process in the namespace.
func startIn(t *testing.T, ns *testutil.Namespace) {
	t.Helper()
	process := exec.Command("sleep", "60")
	if err := ns.Do(process.Start); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = process.Process.Kill()
		_ = process.Wait()
	})
}

// A thread that the agent may not look at could be a pod's, also when it is not listed (hidepid).
func TestInUseWithoutPermission(t *testing.T) {
	testutil.Root(t)
	failed := make(chan error)
	go func() {
		runtime.LockOSThread() // and never back: the thread ends with the goroutine
		if err := withoutPtrace(); err != nil {
			failed <- err
			return
		}
		_, err := netns.InUse()
		failed <- err
	}()
	if err := <-failed; !errors.Is(err, fs.ErrPermission) {
		t.Errorf("error %v, want %v", err, fs.ErrPermission)
	}
}

// withoutPtrace takes CAP_SYS_PTRACE from the calling thread.
func withoutPtrace() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var caps [2]unix.CapUserData
	if err := unix.Capget(&header, &caps[0]); err != nil {
		return err
	}
	caps[0].Effective &^= 1 << unix.CAP_SYS_PTRACE
	return unix.Capset(&header, &caps[0])
}
