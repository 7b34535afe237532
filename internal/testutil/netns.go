package testutil

import (
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"porin.dev/porin/internal/netns"
)

// Namespace is a network namespace, bound to a file as container runtimes do it. lo is up in it.
type Namespace struct {
	path   string
	file   *os.File
	close  sync.Once
	mu     sync.Mutex      // guards the field below
	handle *netlink.Handle // nil until it is first asked for, and after Close
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

// make makes a namespace and binds it to the path.
func (n *Namespace) make() error {
	if err := os.WriteFile(n.path, nil, 0o600); err != nil {
		return err
	}
	err := netns.InNew(func() error {
		if err := loUp(); err != nil {
			return err
		}
		return unix.Mount("/proc/thread-self/ns/net", n.path, "", unix.MS_BIND, "")
	})
	if err != nil {
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

// File is the namespace as an open file, valid until Close.
func (n *Namespace) File() *os.File { return n.file }

// Do runs f in the namespace, on a thread of its own. Goroutines that f starts are not in it; sockets that f opens are.
func (n *Namespace) Do(f func() error) error { return netns.In(n.FD(), f) }

// Close closes the namespace and leaves an ordinary empty file at its path, as runtimes do for a moment before
// they remove it. The namespace ends with its last holder. Twice is fine.
func (n *Namespace) Close() {
	n.close.Do(func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		if n.handle != nil { // an open socket keeps the namespace alive
			n.handle.Close()
			n.handle = nil
		}
		_ = n.file.Close()
		_ = unix.Unmount(n.path, unix.MNT_DETACH)
	})
}
