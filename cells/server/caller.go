package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Caller is the process at the other end of a connection, as it was when it connected. The kernel vouches for it
// (unix(7)).
type Caller struct {
	PID      int // 0 when it is of another PID namespace
	UID, GID uint32
	// NetNSCookie identifies the network namespace that it opened its socket in (SO_NETNS_COOKIE, Linux 5.14).
	NetNSCookie uint64
}

// CallerOf returns who sent the request; false when the context is of no connection.
func CallerOf(ctx context.Context) (Caller, bool) {
	c, ok := ctx.Value(connectionKey{}).(*connection)
	if !ok {
		return Caller{}, false
	}
	return c.caller, true
}

// WithCaller returns a context whose [CallerOf] is the caller: for tests of handlers.
func WithCaller(ctx context.Context, caller Caller) context.Context {
	c := connection{received: &descriptor{}}
	if before, ok := ctx.Value(connectionKey{}).(*connection); ok {
		c = *before
	}
	c.caller = caller
	return context.WithValue(ctx, connectionKey{}, &c)
}

// connectionKey is the key of a connection in the context of its requests.
type connectionKey struct{}

// connection is what the server knows of one.
type connection struct {
	caller   Caller
	refusal  error // why the caller may not use the API; nil when it may
	received *descriptor
}

// netNSCookie reads in which network namespace the peer of an accepted connection opened its socket: an accepted socket
// belongs to the connecting process' namespace (unix_stream_connect).
func netNSCookie(conn net.Conn) (cookie uint64, err error) {
	err = onDescriptor(conn, func(fd int) error {
		cookie, err = unix.GetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE)
		return err
	})
	return cookie, err
}

// peer is the process at the other end of a Unix socket.
type peer struct {
	pid      int
	uid, gid uint32
	groups   []uint32 // supplementary
}

// peerOf reads the other end's credentials. For a connection that was made from here they belong to the process
// that listens.
func peerOf(conn net.Conn) (peer, error) {
	var p peer
	err := onDescriptor(conn, func(fd int) (err error) {
		p, err = peerOfFD(fd)
		return err
	})
	return p, err
}

// onDescriptor calls f with the socket's file descriptor, which is valid during the call.
func onDescriptor(conn net.Conn, f func(fd int) error) (err error) {
	sc, ok := conn.(syscall.Conn)
	if !ok {
		return fmt.Errorf("%T is no socket", conn)
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return err
	}
	if ctlErr := raw.Control(func(fd uintptr) { err = f(int(fd)) }); ctlErr != nil {
		return ctlErr
	}
	return err
}

func peerOfFD(fd int) (peer, error) {
	cred, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return peer{}, fmt.Errorf("SO_PEERCRED: %w", err)
	}
	groups, err := peerGroups(fd)
	if err != nil {
		return peer{}, fmt.Errorf("SO_PEERGROUPS: %w", err)
	}
	return peer{pid: int(cred.Pid), uid: cred.Uid, gid: cred.Gid, groups: groups}, nil
}

// peerGroups reads SO_PEERGROUPS (Linux 4.13), which x/sys/unix has no function for. The kernel answers ERANGE and
// the size it wants when the buffer is too small.
func peerGroups(fd int) ([]uint32, error) {
	groups := make([]uint32, 32)
	for {
		size := uint32(len(groups) * 4)
		_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_PEERGROUPS,
			uintptr(unsafe.Pointer(unsafe.SliceData(groups))), uintptr(unsafe.Pointer(&size)), 0)
		switch {
		case errno == 0:
			return groups[:size/4], nil
		case errors.Is(errno, unix.ERANGE) && int(size/4) > len(groups):
			groups = make([]uint32, size/4)
		default:
			return nil, errno
		}
	}
}
