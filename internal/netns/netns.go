// Package netns runs functions and opens netlink sockets in other network namespaces.
//
// A network namespace belongs to a thread, and Go moves goroutines between threads. [In], [InNew] and [WriteSysctl] are
// the only places that change the namespace of a thread, always in a goroutine of their own. A thread that is still in
// another namespace is never given back to the runtime: it ends with its goroutine. So it is never the main thread of
// the process, which cannot end: the runtime parks it for good, it would keep the namespace alive, and
// /proc/self/ns/net would name that one.
package netns

import (
	"errors"
	"fmt"
	"runtime"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// In runs f in the network namespace that fd is a file descriptor of, in a goroutine on a thread without other users
// meanwhile, and returns when f has. Sockets that f opens, and /proc/sys/net as f sees it, belong to that namespace;
// goroutines that f starts do not. f must not panic.
//
// When the thread cannot return to its own namespace, In returns an error, and the thread ends.
func In(fd int, f func() error) error {
	done := make(chan error, 1)
	onThread(func() {
		defer close(done)
		done <- in(fd, f)
	})
	return result(done)
}

// Call is [In] for a function with a result, which Call returns also when the thread cannot return.
func Call[T any](fd int, f func() (T, error)) (result T, err error) {
	err = In(fd, func() (err error) {
		result, err = f()
		return err
	})
	return result, err
}

// onThread starts f in a goroutine that is locked to its thread, and not to the main thread. The thread ends with f
// unless f unlocks it.
func onThread(f func()) {
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() != unix.Getpid() {
			f()
			return
		}
		// Hold the main thread until another one has taken f.
		taken := make(chan struct{})
		onThread(func() {
			close(taken)
			f()
		})
		<-taken
		runtime.UnlockOSThread()
	}()
}

// errGoexit is returned when f has ended its goroutine, as a failing test does.
var errGoexit = errors.New("the function ended its goroutine")

func result(done <-chan error) error {
	if err, returned := <-done; returned {
		return err
	}
	return errGoexit
}

// in runs on a locked thread, which it unlocks when it is in its own namespace.
func in(fd int, f func() error) error {
	own, err := unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("open the thread's own network namespace: %w", err)
	}
	defer unix.Close(own)
	if err := unix.Setns(fd, unix.CLONE_NEWNET); err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("enter the network namespace: %w", err)
	}
	err = f()
	if back := unix.Setns(own, unix.CLONE_NEWNET); back != nil {
		return errors.Join(err, fmt.Errorf("return to the thread's own network namespace: %w", back)) // without unlocking the thread
	}
	runtime.UnlockOSThread()
	return err
}

// InNew runs f in a new network namespace, which ends when f returns and has left nothing open. Otherwise it is [In].
func InNew(f func() error) error {
	return onEndingThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("make a network namespace: %w", err)
		}
		return f()
	})
}

// enter is [In] on a thread that does not return.
func enter(fd int, f func() error) error {
	return onEndingThread(func() error {
		if err := unix.Setns(fd, unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("enter the network namespace: %w", err)
		}
		return f()
	})
}

// onEndingThread runs f on a thread that ends afterwards.
func onEndingThread(f func() error) error {
	done := make(chan error, 1)
	onThread(func() {
		defer close(done)
		done <- f()
	})
	return result(done)
}

// Open opens a route-netlink socket in the network namespace that fd is a file descriptor of, and returns the [Cookie]
// of that. The socket stays in the namespace whatever thread uses it. The caller closes it.
//
// It exists because netlink.NewHandleAt ignores a thread that cannot return, and gives it to other goroutines.
func Open(fd int) (cookie uint64, handle *netlink.Handle, err error) {
	err = In(fd, func() (err error) {
		if cookie, err = cookieHere(); err != nil {
			return err
		}
		// The family is named: with none, the library opens sockets that a kernel without XFRM or netfilter refuses.
		if handle, err = netlink.NewHandle(unix.NETLINK_ROUTE); err != nil {
			return fmt.Errorf("open a route-netlink socket: %w", err)
		}
		return nil
	})
	if err != nil && handle != nil { // the thread did not return
		handle.Close()
		handle = nil
	}
	return cookie, handle, err
}
