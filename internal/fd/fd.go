// Package fd works with the descriptors of files and sockets.
package fd

import (
	"context"
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// Do calls f with the descriptor of a file or socket, which is valid during the call.
func Do(of syscall.Conn, f func(fd int) error) error {
	raw, err := of.SyscallConn()
	if err != nil {
		return err
	}
	return Control(raw, f)
}

// Control is [Do] for a raw connection, as net gives it to the function Control of a dialer or a [net.ListenConfig].
func Control(raw syscall.RawConn, f func(fd int) error) (err error) {
	if controlErr := raw.Control(func(fd uintptr) { err = f(int(fd)) }); controlErr != nil {
		return controlErr
	}
	return err
}

// Duplicate returns a copy of the descriptor, which a child process does not get. Name is the file's, for errors.
func Duplicate(of syscall.Conn, name string) (copied *os.File, err error) {
	err = Do(of, func(fd int) error {
		other, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			return os.NewSyscallError("fcntl", err)
		}
		copied = os.NewFile(uintptr(other), name)
		return nil
	})
	return copied, err
}

// ListenUnix listens at path on a Unix socket that only its owner may use, from the start: bind(2) takes the mode of
// the file from the socket. The file stays when the listener is closed.
func ListenUnix(ctx context.Context, path string) (*net.UnixListener, error) {
	config := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		return Control(raw, func(fd int) error { return unix.Fchmod(fd, 0o600) })
	}}
	l, err := config.Listen(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	listener := l.(*net.UnixListener)
	listener.SetUnlinkOnClose(false)
	return listener, nil
}
