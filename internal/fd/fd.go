// Package fd copies descriptors.
package fd

import (
	"errors"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// Duplicate returns a copy of the descriptor, which a child process does not get. Name is the file's, for errors.
func Duplicate(of syscall.Conn, name string) (copied *os.File, err error) {
	raw, err := of.SyscallConn()
	if err != nil {
		return nil, err
	}
	controlErr := raw.Control(func(fd uintptr) {
		var other int
		if other, err = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0); err != nil {
			err = os.NewSyscallError("fcntl", err)
			return
		}
		copied = os.NewFile(uintptr(other), name)
	})
	return copied, errors.Join(controlErr, err)
}
