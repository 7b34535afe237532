package netns

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// ErrNotNetNS is returned for a file that is no network namespace.
var ErrNotNetNS = errors.New("it is not a network namespace")

// ErrOwn is returned for the namespace of this process, which is never a container's.
var ErrOwn = errors.New("it is the network namespace of the agent itself, and not a container's")

// Check returns [ErrNotNetNS] unless fd is a file descriptor of a network namespace.
func Check(fd int) error {
	var fs unix.Statfs_t
	if err := unix.Fstatfs(fd, &fs); err != nil || fs.Type != unix.NSFS_MAGIC {
		return ErrNotNetNS
	}
	if kind, err := unix.IoctlRetInt(fd, unix.NS_GET_NSTYPE); err != nil || kind != unix.CLONE_NEWNET {
		return ErrNotNetNS
	}
	return nil
}

// CheckContainer is [Check] that returns [ErrOwn] for the namespace of the calling thread.
func CheckContainer(fd int) error {
	if err := Check(fd); err != nil {
		return err
	}
	var own, other unix.Stat_t
	if err := errors.Join(unix.Stat("/proc/thread-self/ns/net", &own), unix.Fstat(fd, &other)); err != nil {
		return fmt.Errorf("compare network namespaces: %w", err)
	}
	if own.Dev == other.Dev && own.Ino == other.Ino {
		return ErrOwn
	}
	return nil
}

// Cookie identifies the network namespace that fd is a file descriptor of, for as long as the machine runs
// (SO_NETNS_COOKIE, Linux 5.14). The inode number does not: the kernel gives it to the next namespace.
func Cookie(fd int) (uint64, error) { return Call(fd, cookieHere) }

// OwnCookie identifies the network namespace of the process.
var OwnCookie = sync.OnceValues(cookieHere)

// cookieHere is the cookie of the calling thread's namespace.
func cookieHere() (uint64, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("open a socket: %w", err)
	}
	defer unix.Close(fd)
	cookie, err := unix.GetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE)
	if err != nil {
		return 0, fmt.Errorf("SO_NETNS_COOKIE (Linux 5.14): %w", err)
	}
	return cookie, nil
}

// WriteSysctl writes a file below /proc/sys/net as the namespace of fd has it: "ipv6/conf/eth0/disable_ipv6". The
// thread that enters the namespace ends afterwards.
func WriteSysctl(fd int, name, value string) error {
	return enter(fd, func() error { return os.WriteFile("/proc/sys/net/"+name, []byte(value), 0) })
}
