package server

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"porin.dev/porin/internal/fault"
)

// ErrInUse is that another agent serves the socket.
var ErrInUse = fault.New(fault.Conflict, "another agent serves it")

// vacate removes the socket that a killed agent left at path. The caller holds the lock.
func vacate(ctx context.Context, path string) error {
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
	pid, err := ask(ctx, path)
	switch {
	case err == nil:
		return occupied(path, pid)
	case errors.Is(err, unix.ECONNREFUSED): // bound once, and nobody listens: its owner is dead
		return os.Remove(path)
	default:
		return fmt.Errorf("ask who serves socket: %w", err)
	}
}

// inUse explains why the lock was not to be had.
func inUse(ctx context.Context, path string, err error) error {
	if !errors.Is(err, errLocked) {
		return fmt.Errorf("open socket %s: %w", path, err)
	}
	pid, _ := ask(ctx, path) // it may not listen yet; then nobody knows its number
	return occupied(path, pid)
}

func occupied(path string, pid int) error {
	who := ""
	if pid != 0 {
		who = fmt.Sprintf(" (pid %d)", pid)
	}
	return fmt.Errorf("open socket %s: %w%s; stop it, or choose another --api-socket", path, ErrInUse, who)
}

// ask connects to the socket and returns the process that listens. The number is 0 when it is of another PID
// namespace.
func ask(ctx context.Context, path string) (pid int, err error) {
	dialer := net.Dialer{Timeout: time.Second}
	conn, err := dialer.DialContext(ctx, "unix", path)
	if err != nil {
		return 0, err
	}
	defer func() { _ = conn.Close() }()
	p, err := peerOf(conn)
	return p.pid, err
}
