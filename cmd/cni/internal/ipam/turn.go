package ipam

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"
)

// turn is held by one call about an attachment at a time, by the plugin that is called as well: the runtime may kill the
// caller of an ADD and go on to DEL, while the plugin is about to give an address that nobody would take back. It is the name
// of an abstract Unix socket, which is the network namespace's, and which the kernel frees with the last who holds it.
type turn int

// maxWait bounds the wait for a turn: somebody whom a plugin has left in the background may hold one for ever.
const maxWait = 5 * time.Second

// turnRetry is the time between two attempts.
const turnRetry = time.Millisecond

// takeTurn waits until nobody else is at it, or until the deadline: then it goes without.
func takeTurn(name string, deadline time.Time) turn {
	if name == "" {
		return -1
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1
	}
	for {
		err := unix.Bind(fd, &unix.SockaddrUnix{Name: "@porin-ipam/" + name})
		if err == nil {
			return turn(fd)
		}
		if !errors.Is(err, unix.EADDRINUSE) || time.Now().After(deadline) {
			_ = unix.Close(fd)
			return -1
		}
		time.Sleep(turnRetry)
	}
}

func (t turn) end() {
	if t >= 0 {
		_ = unix.Close(int(t))
	}
}
