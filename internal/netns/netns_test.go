package netns_test

import (
	"errors"
	"os"
	"runtime"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"porin.dev/porin/internal/netns"
	"porin.dev/porin/internal/testutil"
)

// The main thread cannot end: the tests must not run on it, for one of them leaves a thread in another namespace.
func init() { runtime.LockOSThread() }

func TestMain(m *testing.M) { testutil.Main(m, testutil.NoLeaks()) }

var errOfTest = errors.New("error of the test")

// ownNamespace names the network namespace of the calling thread.
func ownNamespace(t *testing.T) string {
	t.Helper()
	name, err := os.Readlink("/proc/thread-self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	return name
}

// leavesNothing runs f often, and then looks for threads in other namespaces and for open files.
func leavesNothing(t *testing.T, f func()) {
	t.Helper()
	f() // opens what the runtime and the library keep
	files := testutil.OpenFiles(t)
	for range 50 {
		f()
	}
	testutil.NoThreadsAway(t)
	if left := testutil.OpenFiles(t); left != files {
		t.Errorf("%d files are open, %d before", left, files)
	}
}

func TestIn(t *testing.T) {
	ns, own := testutil.NetNS(t), ownNamespace(t)
	leavesNothing(t, func() {
		err := netns.In(ns.FD(), func() error {
			if ownNamespace(t) == own {
				t.Error("the function runs in the namespace of its caller")
			}
			if testutil.ThreadsAway(t) == 0 {
				t.Error("ThreadsAway does not see a thread in another namespace")
			}
			return errOfTest
		})
		if !errors.Is(err, errOfTest) {
			t.Errorf("error = %v, want the function's", err)
		}
		if name := ownNamespace(t); name != own {
			t.Errorf("the caller is in %s, and was in %s", name, own)
		}
	})
}

func TestInNested(t *testing.T) {
	a, b, own := testutil.NetNS(t), testutil.NetNS(t), ownNamespace(t)
	leavesNothing(t, func() {
		err := netns.In(a.FD(), func() error {
			between := ownNamespace(t)
			if err := netns.In(b.FD(), func() error { return nil }); err != nil {
				return err
			}
			if name := ownNamespace(t); name != between {
				t.Errorf("the inner call left the thread in %s, want %s", name, between)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
		if name := ownNamespace(t); name != own {
			t.Errorf("the caller is in %s, and was in %s", name, own)
		}
	})
}

func TestInGoexit(t *testing.T) {
	ns := testutil.NetNS(t)
	leavesNothing(t, func() {
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = netns.In(ns.FD(), func() error { runtime.Goexit(); return nil })
		}()
		<-done
	})
}

func TestInNoNamespace(t *testing.T) {
	testutil.Root(t)
	file, err := os.Open("/dev/null")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for _, fd := range []int{-1, int(file.Fd())} {
		leavesNothing(t, func() {
			err := netns.In(fd, func() error { t.Error("the function is called"); return nil })
			if err == nil {
				t.Error("no error")
			}
			if _, handle, err := netns.Open(fd); handle != nil || err == nil {
				t.Errorf("handle = %v, error = %v, want an error", handle, err)
			}
		})
	}
}

func TestInNew(t *testing.T) {
	testutil.Root(t)
	own := ownNamespace(t)
	leavesNothing(t, func() {
		err := netns.InNew(func() error {
			if ownNamespace(t) == own {
				t.Error("the function runs in the namespace of its caller")
			}
			return errOfTest
		})
		if !errors.Is(err, errOfTest) {
			t.Errorf("error = %v, want the function's", err)
		}
	})
}

func TestWriteSysctl(t *testing.T) {
	ns := testutil.NetNS(t)
	leavesNothing(t, func() {
		if err := netns.WriteSysctl(ns.FD(), "ipv6/conf/lo/disable_ipv6", "1"); err != nil {
			t.Error(err)
		}
		if err := netns.WriteSysctl(ns.FD(), "not/there", "1"); err == nil {
			t.Error("a file that is not there was written")
		}
	})
}

// TestInStranded takes the right to change namespaces from a thread that is in another one.
func TestInStranded(t *testing.T) {
	ns := testutil.NetNS(t)
	testutil.NoThreadsAway(t)
	files := testutil.OpenFiles(t)
	err := netns.In(ns.FD(), func() error {
		return errors.Join(errOfTest, dropCapabilities())
	})
	if !errors.Is(err, unix.EPERM) || !errors.Is(err, errOfTest) {
		t.Errorf("error = %v, want the function's, and EPERM", err)
	}
	// The thread ends with its goroutine: many others, each with a thread of its own, do not meet it.
	own := ownNamespace(t)
	met := make(chan string)
	var locked sync.WaitGroup
	locked.Add(100)
	for range 100 {
		go func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			locked.Done()
			locked.Wait()
			name, err := os.Readlink("/proc/thread-self/ns/net")
			if err != nil {
				name = err.Error()
			}
			met <- name
		}()
	}
	for range 100 {
		if name := <-met; name != own {
			t.Errorf("a goroutine runs in %s, want %s", name, own)
		}
	}
	testutil.NoThreadsAway(t)
	if left := testutil.OpenFiles(t); left != files {
		t.Errorf("%d files are open, %d before", left, files)
	}
}

// dropCapabilities takes all effective rights from the calling thread, and from no other.
func dropCapabilities() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var rights [2]unix.CapUserData
	return unix.Capset(&header, &rights[0])
}

func TestOpen(t *testing.T) {
	ns := testutil.NetNS(t)
	leavesNothing(t, func() {
		cookie, handle, err := netns.Open(ns.FD())
		if err != nil {
			t.Fatal(err)
		}
		if want, err := netns.Cookie(ns.FD()); err != nil || cookie != want {
			t.Errorf("cookie %d, error %v, want %d", cookie, err, want)
		}
		defer handle.Close()
		links, err := handle.LinkList()
		if err != nil || len(links) != 1 || links[0].Attrs().Name != "lo" {
			t.Errorf("links = %v, %v, want lo alone", links, err)
		}
	})
}
