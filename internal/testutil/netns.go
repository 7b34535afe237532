package testutil

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"porin.dev/porin/internal/rtnl"
)

// Namespace is a network namespace, bound to a file as container runtimes do it. lo is up in it.
type Namespace struct {
	path  string
	file  *os.File
	close sync.Once
}

// NetNS makes a namespace that lives until [Namespace.Close] or the end of the test.
func NetNS(t testing.TB) *Namespace {
	t.Helper()
	Root(t)
	ns := &Namespace{path: filepath.Join(t.TempDir(), "netns")}
	if err := ns.make(); err != nil {
		t.Fatalf("make a network namespace: %v", err)
	}
	t.Cleanup(ns.Close)
	return ns
}

// make lets a thread that ends afterwards unshare its namespace and bind it to the path.
func (n *Namespace) make() error {
	if err := os.WriteFile(n.path, nil, 0o600); err != nil {
		return err
	}
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		done <- func() error {
			if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
				return fmt.Errorf("unshare: %w", err)
			}
			if err := loUp(); err != nil {
				return err
			}
			return unix.Mount("/proc/thread-self/ns/net", n.path, "", unix.MS_BIND, "")
		}()
	}()
	if err := <-done; err != nil {
		return err
	}
	file, err := os.Open(n.path)
	n.file = file
	return err
}

// Path is the file that the namespace is bound to.
func (n *Namespace) Path() string { return n.path }

// FD is a file descriptor of the namespace, valid until Close.
func (n *Namespace) FD() int { return int(n.file.Fd()) }

// Do runs f in the namespace, on a thread of its own. Goroutines that f starts are not in it; sockets that f opens are.
func (n *Namespace) Do(f func() error) error { return rtnl.In(n.FD(), f) }

// Conn opens a route-netlink socket in the namespace, closed at the end of the test.
func (n *Namespace) Conn(t testing.TB) *rtnl.Conn {
	t.Helper()
	conn, err := rtnl.DialAt(n.FD())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// Close lets go of the namespace and leaves an ordinary empty file at its path, as runtimes do for a moment before
// they remove it. The namespace ends when nobody else holds it. Twice is fine.
func (n *Namespace) Close() {
	n.close.Do(func() {
		_ = n.file.Close()
		_ = unix.Unmount(n.path, unix.MNT_DETACH)
	})
}
