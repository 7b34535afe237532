package control

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
	"porin.dev/porin/internal/fd"
	"porin.dev/porin/internal/flock"
)

// errInUse is returned when another proxy has the lock.
var errInUse = fault.New(fault.Conflict, "another proxy serves it and has not handed it over: end that, or choose another --proxy-socket")

// lockWait is how long a proxy that was killed may have its lock: until the kernel has ended its threads.
const (
	lockWait  = 2 * time.Second
	lockRetry = 10 * time.Millisecond
)

// lockSuffix ends the name of the file that a proxy locks.
const lockSuffix = ".lock"

// lockFile takes the lock at path. Every process that has a copy of the file must close it before another one gets the
// lock. The file stays.
func lockFile(path string) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), lockWait)
	defer cancel()
	if err = flock.Wait(ctx, file, lockRetry); err == nil {
		return file, nil
	}
	if errors.Is(err, flock.ErrLocked) {
		err = errInUse
	}
	return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), file.Close())
}

// Lock keeps any proxy from serving a socket until the file is closed. It fails while one does, and returns nil if none
// ever has.
func Lock(socket string) (*os.File, error) {
	if _, err := os.Lstat(socket + lockSuffix); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return lockFile(socket + lockSuffix)
}

// unservedRetry is how often a proxy that was replaced looks whether its successor is there.
const unservedRetry = time.Second

// WaitUnserved returns when no proxy serves a socket any more, or when ctx ends.
func WaitUnserved(ctx context.Context, socket string) error {
	file, err := os.OpenFile(socket+lockSuffix, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	if err = flock.Wait(ctx, file, unservedRetry); errors.Is(err, flock.ErrLocked) {
		err = nil // ctx has ended
	}
	return errors.Join(err, file.Close())
}

// listenAt serves a socket for root alone, in place of a killed proxy's. The caller has the lock.
func listenAt(ctx context.Context, path string) (*net.UnixListener, error) {
	if info, err := os.Lstat(path); err == nil && info.Mode().Type() != fs.ModeSocket {
		return nil, fmt.Errorf("a file that is no socket is in the way: remove %s, or choose another --proxy-socket", path)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return fd.ListenUnix(ctx, path) // whose file stays: the next proxy may serve it
}

func dial(ctx context.Context, path string) (*net.UnixConn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	return conn.(*net.UnixConn), nil
}

// checkUser returns an error unless the process at the other end has the user ID of this process.
func checkUser(conn *net.UnixConn) error {
	var user *unix.Ucred
	err := fd.Do(conn, func(fd int) (err error) {
		user, err = unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
		return err
	})
	if err != nil {
		return err
	}
	if user.Uid != uint32(os.Getuid()) {
		return fault.New(fault.Forbidden, fmt.Sprintf("process %d has user ID %d: only processes of the proxy's own user may control it", user.Pid, user.Uid))
	}
	return nil
}
