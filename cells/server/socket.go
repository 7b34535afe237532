package server

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/user"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// socket is where the agent listens.
type socket struct {
	listener *net.UnixListener
	path     string
	uid, gid uint32
}

// openSocket listens at path with mode 0660. The caller has the [SocketLock] to it.
func openSocket(ctx context.Context, path, group string) (_ *socket, err error) {
	s := &socket{path: path}
	if s.listener, err = listen(ctx, path); err != nil {
		return nil, err
	}
	if err := s.setGroup(group); err != nil {
		return nil, errors.Join(err, s.listener.Close(), s.remove())
	}
	return s, nil
}

// makeParent leaves an existing folder as it is. All users can pass a folder that it makes, whatever the umask: the
// socket's mode restricts its users.
func makeParent(dir string) error {
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return os.Chmod(dir, 0o755)
}

// listen binds a socket that only its owner may use yet: bind(2) takes the mode of the file from that of the
// socket, so there is no moment in which it is open to all.
func listen(ctx context.Context, path string) (*net.UnixListener, error) {
	config := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) (err error) {
		ctlErr := raw.Control(func(fd uintptr) { err = unix.Fchmod(int(fd), 0o600) })
		return errors.Join(ctlErr, err)
	}}
	l, err := config.Listen(ctx, "unix", path)
	if err != nil {
		return nil, fmt.Errorf("open socket: %w", err)
	}
	listener := l.(*net.UnixListener)
	listener.SetUnlinkOnClose(false) // remove does it, after the last request
	return listener, nil
}

// setGroup gives the socket to the group and lets that group use it.
func (s *socket) setGroup(group string) error {
	gid, err := groupID(group)
	if err != nil {
		return fmt.Errorf("find group of socket %s: %w", s.path, err)
	}
	if err := os.Chown(s.path, -1, gid); err != nil {
		return fmt.Errorf("give socket to group %s: %w", group, err)
	}
	if err := os.Chmod(s.path, 0o660); err != nil {
		return err
	}
	var stat unix.Stat_t
	if err := unix.Stat(s.path, &stat); err != nil {
		return fmt.Errorf("read owner of socket %s: %w", s.path, err)
	}
	s.uid, s.gid = stat.Uid, stat.Gid
	return nil
}

// groupID reads a number or looks up a name; -1, which chown(2) takes for "as it is", when there is none.
func groupID(group string) (int, error) {
	if group == "" {
		return -1, nil
	}
	if gid, err := strconv.ParseUint(group, 10, 31); err == nil {
		return int(gid), nil
	}
	found, err := user.LookupGroup(group)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(found.Gid)
}

func (s *socket) guard() guard { return guard{path: s.path, uid: s.uid, gid: s.gid} }

// remove takes the socket out of the file system. That it has gone already is fine.
func (s *socket) remove() error { return removeIfExists(s.path) }
