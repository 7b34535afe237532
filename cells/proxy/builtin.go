package proxy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"porin.dev/porin/cells/policy"
	"porin.dev/porin/cells/policy/model"
	"porin.dev/porin/cells/proxy/accesslog"
	"porin.dev/porin/cells/proxy/dnsproxy"
	"porin.dev/porin/cells/proxy/http2proxy"
	"porin.dev/porin/cells/proxy/httpproxy"
	"porin.dev/porin/cells/proxy/redirect"
	"porin.dev/porin/internal/task"
)

// BuiltIn is the [Listener] for HTTP and DNS within this process.
type BuiltIn struct {
	kernel    Kernel
	redirect  *redirect.Redirect // for connections to servers
	log       *slog.Logger
	rules     rulesByNumber
	sessions  sessions
	memory    *memory
	dns       *dnsproxy.Handler
	udp       *redirect.UDPLoop // queries and their answers
	decided   decidedQueries
	meters    *meters
	recorder  recorder
	changed   chan struct{}  // signals that open connections must be decided about again
	serving   sync.WaitGroup // of connections and loops
	accepting sync.WaitGroup // of loops that accept connections
	admitting sync.WaitGroup // connections that were accepted, until they are sessions or refused
	drain     time.Duration  // how long requests that are being served may take when it stops

	mu       sync.Mutex      // guards the fields below
	stopped  context.Context // ends with Stop; nil before Serve
	stop     context.CancelFunc
	drainEnd time.Time // the end of what may be served after Drain; zero: it was not called
}

var (
	_ Listener = (*BuiltIn)(nil)
	_ Drainer  = (*BuiltIn)(nil)
)

// NewBuiltIn returns a listener that serves nothing yet. The learner hears of what answers say before pods have them.
func NewBuiltIn(kernel Kernel, r *redirect.Redirect, learner policy.Learner, cfg Config, log *slog.Logger) (*BuiltIn, error) {
	b := &BuiltIn{kernel: kernel, redirect: r, udp: redirect.NewUDPLoop(r), log: log, meters: newMeters(), memory: newMemory(maxEndpointMemory, maxMemory), decided: decidedQueries{}, changed: make(chan struct{}, 1), drain: cfg.DrainTimeout}
	b.recorder.meters = b.meters
	dns, err := b.newDNS(learner, cfg.DeniedNames)
	b.dns = dns
	return b, err
}

// Requests are what clients have asked for. Whoever reads them must do so often.
func (b *BuiltIn) Requests() *accesslog.Log { return &b.recorder.requests }

// Supports implements [policy.Proxy].
func (b *BuiltIn) Supports(rules model.Layer7) error { return Supports(rules) }

// Supports returns why a built-in listener of this version cannot apply rules, nil if it can.
func Supports(rules model.Layer7) error {
	_, err := compile(rules)
	return err
}

// Prepare implements [policy.Proxy]. It does not wait.
func (b *BuiltIn) Prepare(ctx context.Context, rules map[uint32]model.Layer7) error {
	sets := map[uint32]*ruleSet{}
	for number, one := range rules {
		set, err := compile(one)
		if err != nil {
			return fmt.Errorf("rules %d: %w", number, err)
		}
		sets[number] = set
	}
	if err := context.Cause(ctx); err != nil {
		return err
	}
	b.rules.add(sets)
	return nil
}

// Release implements [policy.Proxy].
func (b *BuiltIn) Release(numbers []uint32) { b.rules.remove(numbers) }

// Healthy implements [policy.Proxy].
func (b *BuiltIn) Healthy() error { return nil }

// Changed implements [policy.Proxy].
func (b *BuiltIn) Changed() {
	task.Wake(b.changed)
}

// CloseEndpoint implements [EndpointCloser].
func (b *BuiltIn) CloseEndpoint(ctx context.Context, id uint16) error {
	return end(ctx, b.sessions.list(func(s *session) bool { return s.hasEndpoint(id) }), errRemoved)
}

// Connections implements [Listener].
func (b *BuiltIn) Connections() (open int, accepted uint64) {
	return b.sessions.count(), b.meters.accepted.Load()
}

// Serve implements [Listener]. It decides again about connections when policies change, from the first time on.
func (b *BuiltIn) Serve(l *redirect.Listeners) error {
	b.mu.Lock()
	if b.stopped == nil {
		b.stopped, b.stop = context.WithCancel(context.Background())
		b.sessions.start()
		ended := b.stopped.Done()
		b.serving.Go(func() {
			for {
				select {
				case <-ended:
					return
				case <-b.changed:
					b.sessions.decideAgain()
				}
			}
		})
	}
	stopped := b.stopped // the context of what is served
	b.mu.Unlock()
	for _, socket := range l.UDP {
		err := b.udp.Serve(socket, func(d redirect.Datagram, err error) {
			if err != nil {
				b.log.Debug("datagram dropped", "error", err)
				return
			}
			b.serveDatagram(stopped, l, d)
		})
		if err != nil {
			return fmt.Errorf("serve queries: %w", err)
		}
	}
	for _, listener := range []*net.TCPListener{l.TCP4, l.TCP6} {
		if listener != nil {
			b.accepting.Go(func() { b.accept(stopped, listener) })
		}
	}
	return nil
}

// Drain implements [Drainer]: open connections have [Config.DrainTimeout].
func (b *BuiltIn) Drain(ctx context.Context) {
	b.mu.Lock()
	serves := b.stop != nil
	b.drainEnd = time.Now().Add(b.drain)
	b.mu.Unlock()
	if !serves {
		return
	}
	list := b.sessions.startDrain()
	b.log.Info("connections are drained, and new ones are accepted meanwhile", "connections", len(list), "timeout", b.drain)
	drained, cancel := context.WithTimeout(ctx, b.drain)
	defer cancel()
	_ = wait(drained, list)
	if ctx.Err() != nil {
		return
	}
	b.mu.Lock()
	b.drainEnd = time.Now()
	b.mu.Unlock()
	cut, err := finish(ctx, list)
	b.log.Info("connections were drained", "ended", len(list)-cut, "cut", cut)
	if err != nil {
		b.log.Warn("connections that were cut have not ended yet", "error", err)
	}
}

const (
	// afterDrain is how long requests may take that were begun while others were drained.
	afterDrain = 2 * time.Second
	// stopQueries is how long Stop waits for answers to queries.
	stopQueries = 5 * time.Second
)

// Stop implements [Listener]: requests have as long as [Config.DrainTimeout] says, or as is left of it after Drain.
func (b *BuiltIn) Stop(ctx context.Context) error {
	b.mu.Lock()
	stop, drainEnd := b.stop, b.drainEnd
	b.stopped, b.stop, b.drainEnd = nil, nil, time.Time{}
	b.mu.Unlock()
	if stop == nil {
		return nil
	}
	requests, queries := b.drain, min(b.drain, stopQueries)
	if !drainEnd.IsZero() {
		requests = min(b.drain, max(time.Until(drainEnd), afterDrain))
		queries = min(queries, requests)
	}
	b.accepting.Wait()
	b.admitting.Wait()
	began := time.Now()
	if n := b.sessions.count(); n > 0 {
		b.log.Info("connections are drained, and new ones wait for the next proxy", "connections", n, "timeout", requests)
	}
	cut, err := b.sessions.stop(ctx, requests)
	if cut > 0 {
		b.log.Info("connections were cut", "cut", cut)
	}
	if !drainEnd.IsZero() {
		queries -= time.Since(began)
	}
	answered := make(chan struct{})
	go func() {
		b.dns.Wait()
		close(answered)
	}()
	select {
	case <-answered:
	case <-time.After(queries):
	}
	stop() // queries that have no answer yet get none
	<-answered
	b.serving.Wait()
	return errors.Join(err, b.udp.Close())
}

// acceptPause is the time after an error that passes, as when there are too many open files.
const acceptPause = 50 * time.Millisecond

func (b *BuiltIn) accept(ctx context.Context, listener *net.TCPListener) {
	for {
		conn, err := listener.AcceptTCP()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			b.log.Warn("cannot accept a connection; trying again", "in", acceptPause, "error", err)
			if task.Sleep(ctx, acceptPause) != nil {
				return
			}
			continue
		}
		b.meters.accepted.Add(1)
		b.admitting.Add(1)
		b.serving.Go(func() { b.serveConn(conn) })
	}
}

// serveConn serves one connection to its end.
func (b *BuiltIn) serveConn(conn *net.TCPConn) {
	s, serve, err := b.open(conn)
	b.admitting.Done()
	if err != nil {
		b.log.Debug("connection refused", "source", conn.RemoteAddr(), "destination", conn.LocalAddr(), "error", err)
		b.meters.refuse(err)
		_ = conn.SetLinger(0) // which resets it: its client knows that it has failed
		_ = conn.Close()
		return
	}
	defer b.sessions.remove(s)
	defer s.memory.close()
	defer s.cancel(nil)
	if err := serve(s.ctx); err != nil {
		b.log.Debug("connection ended", "source", s.client, "destination", s.server, "error", err)
	}
}

// open makes a session of a connection, and returns what serves it.
func (b *BuiltIn) open(conn *net.TCPConn) (_ *session, serve func(context.Context) error, err error) {
	c, err := identify(b.kernel, &b.rules, model.TCP, addrPort(conn.RemoteAddr()), addrPort(conn.LocalAddr()))
	if err != nil {
		return nil, nil, err
	}
	d, err := c.decide()
	if err != nil {
		return nil, nil, err
	}
	dns, err := d.isDNS()
	if err != nil {
		return nil, nil, err
	}
	s := &session{connection: c, memory: &sessionMemory{of: b.memory, endpoint: c.endpoint()}, done: make(chan struct{})}
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	if dns {
		draining, drain := context.WithCancel(s.ctx)
		s.drain = drain
		serve = func(ctx context.Context) error {
			b.dns.ServeTCP(ctx, draining, conn, s.query())
			return nil
		}
	} else {
		serve = b.newHTTP(s, conn)
	}
	if err := b.sessions.add(s); err != nil {
		s.cancel(nil)
		return nil, nil, err
	}
	// Between the decision above and add, a policy may have changed, or an endpoint have gone.
	if _, err := c.decide(); err != nil {
		b.sessions.remove(s)
		s.cancel(nil)
		return nil, nil, err
	}
	return s, serve, nil
}

// newHTTP returns what serves a connection for HTTP.
func (b *BuiltIn) newHTTP(s *session, conn *net.TCPConn) (serve func(context.Context) error) {
	http := &httpproxy.Session{
		Client: conn, Decide: s.decideHTTP, Record: func(r httpproxy.Record) { b.recorder.request(s.connection, r) }, Memory: s.memory,
		Dial: func(ctx context.Context) (net.Conn, error) {
			client := redirect.Client{AddrPort: s.source(), IsLocal: s.opener.Endpoint != 0}
			return b.meters.dialed(b.redirect.Dial(ctx, client, s.server))
		},
	}
	http2 := &http2proxy.Session{Dial: http.Dial, Decide: http.Decide, Record: http.Record}
	http.HTTP2 = http2.Serve
	s.drain = func() {
		http.Drain()
		http2.Drain()
	}
	return http.Serve
}
