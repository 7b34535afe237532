package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"porin.dev/porin/internal/fault"
	"porin.dev/porin/internal/fd"
	"porin.dev/porin/internal/httpx"
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

// guard knows which users may use the API. The mode of the socket says the same, and is not enough: an administrator
// may change it by hand, or bind the socket into a container.
type guard struct {
	path     string
	uid, gid uint32 // of the socket
}

// admit is http.Server.ConnContext: the credentials are read once a connection. They are from the moment in which
// the peer connected, and cannot be forged (unix(7)).
func (g guard) admit(ctx context.Context, conn net.Conn) context.Context {
	c := &connection{received: &descriptor{}}
	c.caller, c.refusal = g.check(conn)
	if d, ok := conn.(*descriptorConn); ok {
		c.received = d.received
	}
	return context.WithValue(ctx, connectionKey{}, c)
}

func (g guard) check(conn net.Conn) (Caller, error) {
	caller, groups, err := peerOf(conn)
	if err != nil {
		return Caller{}, fault.Wrap(fault.Forbidden, fmt.Errorf("read who calls: %w", err))
	}
	if caller.UID == 0 || caller.UID == g.uid || caller.GID == g.gid || slices.Contains(groups, g.gid) {
		return caller, nil
	}
	return caller, fault.New(fault.Forbidden, fmt.Sprintf("user %d, group %d may not use %s: it takes root and group %d", caller.UID, caller.GID, g.path, g.gid))
}

// refuseUnauthorized answers callers that the guard does not admit.
func refuseUnauthorized(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, ok := r.Context().Value(connectionKey{}).(*connection)
		switch {
		case !ok:
			httpx.WriteProblem(w, fault.New(fault.Forbidden, "the caller is unknown"))
		case c.refusal != nil:
			httpx.WriteProblem(w, c.refusal)
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// peerOf reads who is at the other end of a Unix socket, with its supplementary groups. For a connection that was made
// from here that is the process that listens, and the network namespace is this process'.
func peerOf(conn net.Conn) (peer Caller, groups []uint32, err error) {
	socket, ok := conn.(syscall.Conn)
	if !ok {
		return peer, nil, fmt.Errorf("%T is no socket", conn)
	}
	err = fd.Do(socket, func(fd int) error {
		cred, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
		if err != nil {
			return fmt.Errorf("SO_PEERCRED: %w", err)
		}
		if groups, err = peerGroups(fd); err != nil {
			return fmt.Errorf("SO_PEERGROUPS: %w", err)
		}
		// An accepted socket belongs to the connecting process' namespace (unix_stream_connect).
		cookie, err := unix.GetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE)
		if err != nil {
			return fmt.Errorf("SO_NETNS_COOKIE: %w", err)
		}
		peer = Caller{PID: int(cred.Pid), UID: cred.Uid, GID: cred.Gid, NetNSCookie: cookie}
		return nil
	})
	return peer, groups, err
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
