package health

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"porin.dev/porin/cells/health/probe"
	"porin.dev/porin/internal/httpx"
	"porin.dev/porin/internal/netns"
)

// responder answers HTTP in the namespace of the health endpoint. All of the cluster may call it, and no caller is
// trusted: a connection has one request and a few seconds, and when there are too many of them the oldest is closed.
type responder struct {
	log    *slog.Logger
	answer []byte

	cookie      uint64 // of the namespace that it serves in; 0 for none
	backgrounds []*httpx.Background
	ended       atomic.Bool // a server has ended by itself
}

const (
	maxConnections = 128
	callTime       = 3 * time.Second // of a connection, from its first byte to its last
	maxCallHeader  = 4 << 10
)

func newResponder(node string, log *slog.Logger) *responder {
	answer, _ := json.Marshal(probe.Answer{Node: node}) // never fails
	return &responder{log: log, answer: append(answer, '\n')}
}

// serve serves on the addresses in the namespace, and no more in another one.
func (r *responder) serve(ctx context.Context, namespace *os.File, cookie uint64, addresses []netip.Addr) error {
	if r.cookie == cookie && !r.ended.Load() {
		return nil
	}
	r.stop(ctx)
	listeners, err := listen(ctx, namespace, addresses)
	if err != nil {
		return fmt.Errorf("listen in the namespace of the health endpoint: %w", err)
	}
	for _, listener := range listeners {
		server := &http.Server{
			Handler: r.handler(), ReadTimeout: callTime, WriteTimeout: callTime, IdleTimeout: callTime, MaxHeaderBytes: maxCallHeader,
			ErrorLog: slog.NewLogLogger(r.log.Handler(), slog.LevelDebug),
		}
		server.SetKeepAlivesEnabled(false)
		r.backgrounds = append(r.backgrounds, httpx.Serve(server, newBounded(listener, maxConnections), func(err error) {
			r.log.Warn("health endpoint no longer answers HTTP, which is tried again", "error", err)
			r.ended.Store(true)
		}))
	}
	r.cookie = cookie
	return nil
}

// listen opens a socket for each address: for the one of all addresses, Go looks at the families of the agent's own
// namespace.
func listen(ctx context.Context, namespace *os.File, addresses []netip.Addr) (listeners []net.Listener, err error) {
	err = netns.In(int(namespace.Fd()), func() error {
		for _, addr := range addresses {
			l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", netip.AddrPortFrom(addr, probe.Port).String())
			if err != nil {
				return err
			}
			listeners = append(listeners, l)
		}
		return nil
	})
	if err != nil {
		for _, l := range listeners {
			err = errors.Join(err, l.Close())
		}
	}
	return listeners, err
}

// stop closes the sockets, which would keep the namespace alive.
func (r *responder) stop(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTime)
	defer cancel()
	for _, background := range r.backgrounds {
		if err := background.Stop(ctx); err != nil {
			r.log.Debug("calls of the health endpoint were cut", "error", err)
		}
	}
	r.backgrounds, r.cookie = nil, 0
	r.ended.Store(false)
}

func (r *responder) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+probe.HelloPath, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(r.answer)
	})
	return mux
}

// bounded is a listener that has no more than so many connections: it closes the oldest for a new one, so that a client
// with many keeps no other out.
type bounded struct {
	net.Listener
	most int

	mu   sync.Mutex // guards the field below
	open []*boundedConn
}

func newBounded(l net.Listener, most int) *bounded { return &bounded{Listener: l, most: most} }

// Accept implements net.Listener.
func (b *bounded) Accept() (net.Conn, error) {
	conn, err := b.Listener.Accept()
	if err != nil {
		return nil, err
	}
	added := &boundedConn{Conn: conn, of: b}
	b.mu.Lock()
	var oldest *boundedConn
	if len(b.open) >= b.most {
		oldest = b.open[0]
	}
	b.open = append(b.open, added)
	b.mu.Unlock()
	if oldest != nil {
		_ = oldest.Close()
	}
	return added, nil
}

// boundedConn is a connection of a bounded listener.
type boundedConn struct {
	net.Conn
	of *bounded
}

// Close implements net.Conn.
func (c *boundedConn) Close() error {
	c.of.mu.Lock()
	for i, other := range c.of.open {
		if other == c {
			c.of.open = append(c.of.open[:i], c.of.open[i+1:]...)
			break
		}
	}
	c.of.mu.Unlock()
	return c.Conn.Close()
}
