package crash

import (
	"errors"
	"unsafe"

	"golang.org/x/sys/unix"
)

// notification is struct seccomp_notif: a system call that has not begun yet.
type notification struct {
	id    uint64
	tid   uint32
	flags uint32
	nr    int32
	arch  uint32
	ip    uint64
	args  [6]uint64
}

// verdict is struct seccomp_notif_resp.
type verdict struct {
	id    uint64
	value int64
	errno int32
	flags uint32
}

// next waits for a notification. ok is false when the process, with all its threads, has ended.
func next(listener int) (n notification, ok bool, err error) {
	for {
		poll := []unix.PollFd{{Fd: int32(listener), Events: unix.POLLIN}}
		_, err := unix.Poll(poll, -1)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return n, false, err
		case poll[0].Revents&unix.POLLIN == 0:
			return n, false, nil
		}
		n = notification{}
		err = ioctl(listener, unix.SECCOMP_IOCTL_NOTIF_RECV, unsafe.Pointer(&n))
		if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EINTR) {
			continue // the thread that waited was killed
		}
		return n, err == nil, err
	}
}

// proceed lets the call happen.
func proceed(listener int, n notification) error {
	v := verdict{id: n.id, flags: unix.SECCOMP_USER_NOTIF_FLAG_CONTINUE}
	err := ioctl(listener, unix.SECCOMP_IOCTL_NOTIF_SEND, unsafe.Pointer(&v))
	if errors.Is(err, unix.ENOENT) {
		return nil // killed meanwhile
	}
	return err
}

func ioctl(fd int, request uint, arg unsafe.Pointer) error {
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), uintptr(request), uintptr(arg))
	if errno != 0 {
		return errno
	}
	return nil
}
