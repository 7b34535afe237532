package server

import (
	"context"
	"net"

	"golang.org/x/sys/unix"
)

// Caller is the process at the other end of a connection, as it was when it connected. The kernel vouches for it (unix(7)).
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

// WithCaller returns a context of which [CallerOf] returns the caller: for tests of handlers.
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
// belongs to the namespace of the one that connected (unix_stream_connect).
func netNSCookie(conn net.Conn) (cookie uint64, err error) {
	err = onDescriptor(conn, func(fd int) error {
		cookie, err = unix.GetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE)
		return err
	})
	return cookie, err
}
