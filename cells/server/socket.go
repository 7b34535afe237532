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

	"golang.org/x/sys/unix"

	"porin.dev/porin/internal/fd"
)

// socket is where the agent listens.
type socket struct {
	guard
	listener *net.UnixListener
}

// openSocket listens at path with mode 0660. The caller has the [SocketLock] to it.
func openSocket(ctx context.Context, path, group string) (_ *socket, err error) {
	s := &socket{guard: guard{path: path}}
	if s.listener, err = fd.ListenUnix(ctx, path); err != nil {
		return nil, fmt.Errorf("open socket: %w", err)
	}
	if err := s.setGroup(group); err != nil {
		return nil, errors.Join(err, s.listener.Close(), s.remove())
	}
	return s, nil
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

// remove takes the socket out of the file system, after the last request. That it has gone already is fine.
func (s *socket) remove() error {
	if err := os.Remove(s.path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
