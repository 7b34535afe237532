package server

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"time"

	"go.uber.org/fx"
	"golang.org/x/sys/unix"

	"porin.dev/porin/internal/fault"
	"porin.dev/porin/internal/flock"
)

// SocketLock makes this process the only agent of a socket. The agent holds it while it serves, and with [LockSocket]
// from before its first cell starts until after its last has stopped. It is for one goroutine at a time, as the hooks
// of fx are. The file of the lock stays.
type SocketLock struct {
	path    string // of the socket
	holders int
	file    *os.File // nil without holders; the kernel releases the lock when the process dies
}

// NewSocketLock does not lock yet.
func NewSocketLock(cfg Config) (*SocketLock, error) {
	return &SocketLock{path: cfg.Socket}, cfg.Validate()
}

// LockSocket makes the agent lock its socket before any cell starts that is listed after it: list it first. A second
// agent then fails before it has touched what is in the kernel, which is the first one's.
func LockSocket() fx.Option {
	// A module of its own: a module's invokes come before the program's own.
	return fx.Module("socket-lock", fx.Invoke(func(lc fx.Lifecycle, l *SocketLock) {
		lc.Append(fx.Hook{OnStart: l.Acquire, OnStop: func(context.Context) error { return l.Release() }})
	}))
}

// Acquire locks the socket and removes what a killed agent left of it. It returns [ErrInUse] when another agent lives,
// and leaves alone what is no socket. It may be called more than once, and takes as many calls of Release.
func (l *SocketLock) Acquire(ctx context.Context) error {
	if l.holders == 0 {
		if err := l.acquire(ctx); err != nil {
			return err
		}
	}
	l.holders++
	return nil
}

func (l *SocketLock) acquire(ctx context.Context) error {
	if err := makeParent(filepath.Dir(l.path)); err != nil {
		return fmt.Errorf("make room for socket %s: %w", l.path, err)
	}
	file, err := os.OpenFile(l.path+".lock", os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return fmt.Errorf("open socket %s: %w", l.path, err)
	}
	switch err = flock.Try(file); {
	case err == nil:
		err = removeStale(ctx, l.path)
	case errors.Is(err, flock.ErrLocked):
		pid, _ := listenerPID(ctx, l.path) // it may not listen yet; then its number is unknown
		err = errorInUse(l.path, pid)
	default:
		err = fmt.Errorf("lock %s: %w", file.Name(), err)
	}
	if err != nil {
		return errors.Join(err, file.Close())
	}
	l.file = file
	return nil
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

// Release takes back one Acquire.
func (l *SocketLock) Release() error {
	if l.holders--; l.holders > 0 {
		return nil
	}
	file := l.file
	l.file = nil
	return file.Close()
}

// ErrInUse is returned when another agent serves the socket.
var ErrInUse = fault.New(fault.Conflict, "another agent serves it")

// removeStale removes the socket that a killed agent left at path. The caller holds the lock.
func removeStale(ctx context.Context, path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look at socket: %w", err)
	}
	if info.Mode().Type() != fs.ModeSocket {
		return fmt.Errorf("open socket %s: a file that is no socket is in the way (%s); remove it, or choose another --api-socket", path, info.Mode())
	}
	pid, err := listenerPID(ctx, path)
	switch {
	case err == nil:
		return errorInUse(path, pid)
	case errors.Is(err, unix.ECONNREFUSED): // bound once, and no process listens: its owner is dead
		return os.Remove(path)
	default:
		return fmt.Errorf("ask who serves socket: %w", err)
	}
}

func errorInUse(path string, pid int) error {
	who := ""
	if pid != 0 {
		who = fmt.Sprintf(" (pid %d)", pid)
	}
	return fmt.Errorf("open socket %s: %w%s; stop it, or choose another --api-socket", path, ErrInUse, who)
}

// listenerPID connects to the socket and returns the process that listens. The number is 0 when it is of another PID
// namespace.
func listenerPID(ctx context.Context, path string) (pid int, err error) {
	dialer := net.Dialer{Timeout: time.Second}
	conn, err := dialer.DialContext(ctx, "unix", path)
	if err != nil {
		return 0, err
	}
	defer func() { _ = conn.Close() }()
	peer, _, err := peerOf(conn)
	return peer.PID, err
}
