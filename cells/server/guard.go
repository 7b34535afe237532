package server

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"slices"

	"porin.dev/porin/internal/fault"
	"porin.dev/porin/internal/httpx"
)

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
	peer, err := peerOf(conn)
	if err != nil {
		return Caller{}, fault.Wrap(fault.Forbidden, fmt.Errorf("read who calls: %w", err))
	}
	cookie, err := netNSCookie(conn)
	if err != nil {
		return Caller{}, fault.Wrap(fault.Forbidden, fmt.Errorf("read the caller's network namespace: %w", err))
	}
	caller := Caller{PID: peer.pid, UID: peer.uid, GID: peer.gid, NetNSCookie: cookie}
	if peer.uid == 0 || peer.uid == g.uid || peer.gid == g.gid || slices.Contains(peer.groups, g.gid) {
		return caller, nil
	}
	return caller, fault.New(fault.Forbidden, fmt.Sprintf("user %d, group %d may not use %s: it takes root and group %d", peer.uid, peer.gid, g.path, g.gid))
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
