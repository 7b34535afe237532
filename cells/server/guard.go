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

// guard knows who may use the API. The mode of the socket says the same, and is not enough: somebody may change it by
// hand, or bind the socket into a container.
type guard struct {
	path     string
	uid, gid uint32 // of the socket
}

// admission is the key in a connection's context under which its refusal is; no value is a refusal, too.
type admission struct{}

// admit is http.Server.ConnContext: the credentials are read once a connection. They are those of the moment in which
// the peer connected, and cannot be forged (unix(7)).
func (g guard) admit(ctx context.Context, conn net.Conn) context.Context {
	return context.WithValue(ctx, admission{}, &verdict{g.judge(conn)})
}

type verdict struct{ err error }

func (g guard) judge(conn net.Conn) error {
	peer, err := peerOf(conn)
	if err != nil {
		return fault.Wrap(fault.Forbidden, fmt.Errorf("read who calls: %w", err))
	}
	if peer.uid == 0 || peer.uid == g.uid || peer.gid == g.gid || slices.Contains(peer.groups, g.gid) {
		return nil
	}
	return fault.New(fault.Forbidden, fmt.Sprintf("user %d, group %d may not use %s: it takes root and group %d", peer.uid, peer.gid, g.path, g.gid))
}

// refuseStrangers answers whom the guard did not admit.
func refuseStrangers(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		v, ok := r.Context().Value(admission{}).(*verdict)
		switch {
		case !ok:
			httpx.WriteProblem(w, fault.New(fault.Forbidden, "nobody looked who calls"))
		case v.err != nil:
			httpx.WriteProblem(w, v.err)
		default:
			next.ServeHTTP(w, r)
		}
	})
}
