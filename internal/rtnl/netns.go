package rtnl

import (
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"
)

// In runs f in the network namespace that netns is a file descriptor of, on a thread that nobody else uses meanwhile.
// Sockets that f opens, and /proc/sys/net as f sees it, belong to that namespace; goroutines that f starts do not.
func In(netns int, f func() error) error {
	runtime.LockOSThread()
	own, err := unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("open the thread's own network namespace: %w", err)
	}
	defer unix.Close(own)
	if err := unix.Setns(netns, unix.CLONE_NEWNET); err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("enter the network namespace: %w", err)
	}
	err = f()
	if back := unix.Setns(own, unix.CLONE_NEWNET); back != nil {
		// The thread stays locked, so that the runtime ends it with this goroutine instead of using it for others.
		return fmt.Errorf("return to the thread's own network namespace: %w", back)
	}
	runtime.UnlockOSThread()
	return err
}

// DialAt opens a socket in the network namespace that netns is a file descriptor of.
func DialAt(netns int) (conn *Conn, err error) {
	err = In(netns, func() error {
		conn, err = Dial()
		return err
	})
	return conn, err
}
