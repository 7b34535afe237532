package server

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/go-chi/chi/v5"

	"porin.dev/porin/internal/httpx"
)

// Info is what the server shows about the agent.
type Info struct {
	Version string
	Node    string
}

// Server is the agent's API. It is started once, and not again after it was stopped.
type Server struct {
	cfg      Config
	info     Info
	log      *slog.Logger
	parts    Parts
	limits   limits
	requests *requests
	lock     *SocketLock
	router   chi.Router
	started  time.Time // when it was built

	serving    atomic.Bool
	guard      guard   // set by Start, before the first connection
	socket     *socket // nil until Start
	background *httpx.Background
}

// New builds a server that carries all routes of parts, and opens nothing.
func New(cfg Config, info Info, log *slog.Logger, parts Parts) (*Server, error) {
	lock, err := NewSocketLock(cfg)
	if err != nil {
		return nil, err
	}
	return newServer(cfg, info, log, newRequests(), lock, parts), nil
}

func newServer(cfg Config, info Info, log *slog.Logger, requests *requests, lock *SocketLock, parts Parts) *Server {
	s := &Server{
		cfg: cfg, info: info, log: log, parts: parts, limits: defaultLimits(), requests: requests, lock: lock,
		started: time.Now(),
	}
	s.router = s.newRouter()
	return s
}

// Routes are all routes that are served.
func (s *Server) Routes() chi.Routes { return s.router }

// Start opens the socket and serves it in the background. When serving ends for another reason than Stop, failed is
// called once, from another goroutine.
func (s *Server) Start(ctx context.Context, failed func(error)) (err error) {
	if err := s.lock.Acquire(ctx); err != nil {
		return err
	}
	if s.socket, err = openSocket(ctx, s.cfg.Socket, s.cfg.Group); err != nil {
		return errors.Join(err, s.lock.Release())
	}
	s.guard = s.socket.guard
	s.serving.Store(true)
	s.background = httpx.Serve(s.newHTTP(), descriptorListener{s.socket.listener, make(chan struct{}, s.limits.connections)}, failed)
	s.log.Info("api serves", "socket", s.cfg.Socket)
	for _, w := range s.parts.Watchers {
		w.Serving()
	}
	return nil
}

// Stop notifies the watchers, accepts no more, waits for the running requests as long as ctx lasts, and removes the
// socket. Without a Start it does nothing.
func (s *Server) Stop(ctx context.Context) error {
	if !s.serving.Swap(false) {
		return nil
	}
	for _, w := range s.parts.Watchers {
		w.Stopping()
	}
	return errors.Join(s.background.Stop(ctx), s.socket.remove(), s.lock.Release())
}

func (s *Server) newHTTP() *http.Server {
	return &http.Server{
		Handler:           s.router,
		ReadHeaderTimeout: s.limits.header,
		ReadTimeout:       s.limits.read,
		IdleTimeout:       s.limits.idle,
		MaxHeaderBytes:    s.limits.headerBytes,
		ConnContext:       s.guard.admit,
		ErrorLog:          slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
}
