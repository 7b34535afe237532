package proxy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"porin.dev/porin/cells/policy"
	"porin.dev/porin/cells/policy/model"
	"porin.dev/porin/cells/proxy/dnsproxy"
	"porin.dev/porin/cells/proxy/http2proxy"
	"porin.dev/porin/cells/proxy/httpproxy"
	"porin.dev/porin/cells/proxy/redirect"
	"porin.dev/porin/internal/fault"
)

// Proxy applies layer 7 rules to redirected connections of one network namespace. It is a [policy.Proxy].
type Proxy struct {
	kernel   Kernel
	redirect *redirect.Redirect
	log      *slog.Logger
	rules    rulesByNumber
	sessions sessions
	dns      *dnsproxy.Handler
	meters   *meters
	use      use
	changed  chan struct{} // has a token when open connections are to be decided about anew
	served   sync.WaitGroup
	reading  sync.WaitGroup            // who accepts connections and reads datagrams
	admitted sync.WaitGroup            // connections that were accepted, until they are sessions or refused
	drain    time.Duration             // how long requests that are being served may take when the proxy stops
	opened   func(*redirect.Listeners) // is told of the listening sockets, and of nil when there are none any more

	mu        sync.Mutex          // guards the fields below; held while the way into the proxy is opened or removed
	started   bool                //
	listeners *redirect.Listeners // nil while there are no rules
	stopped   context.Context     // ends with Stop
	stop      context.CancelFunc
}

var _ policy.Proxy = (*Proxy)(nil)

// Config says where the way into the proxy is kept, and how long its end may take.
type Config struct {
	redirect.Config
	// DrainTimeout is how long requests that are being served may take when the proxy stops.
	DrainTimeout time.Duration
}

// DefaultDrainTimeout is that of a proxy within the agent.
const DefaultDrainTimeout = 5 * time.Second

// New returns a proxy that is not started. It touches nothing. The learner hears of what answers say before pods have them.
func New(kernel Kernel, learner policy.Learner, cfg Config, log *slog.Logger) (*Proxy, error) {
	p := &Proxy{
		kernel: kernel, redirect: redirect.New(cfg.Config, kernel, log), log: log, meters: newMeters(), use: use{opened: make(chan struct{}, 1)},
		changed: make(chan struct{}, 1), drain: cfg.DrainTimeout, opened: func(*redirect.Listeners) {},
	}
	dns, err := p.newDNS(learner)
	p.dns = dns
	return p, err
}

// Start begins to decide again when policies change. The way into the proxy is opened by Prepare. It is one of the network namespace of
// the thread that calls Prepare first.
func (p *Proxy) Start(context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.started {
		return nil
	}
	p.started = true
	p.stopped, p.stop = context.WithCancel(context.Background())
	p.sessions.start()
	stopped := p.stopped
	p.served.Go(func() {
		for {
			select {
			case <-stopped.Done():
				return
			case <-p.changed:
				p.sessions.decideAgain()
			}
		}
	})
	return nil
}

// Stop lets the current requests end, within ctx and [Config.DrainTimeout], and closes all connections. What is in the kernel stays: new
// connections wait for the next proxy.
func (p *Proxy) Stop(ctx context.Context) error {
	stop, err := p.stopAccepting()
	if stop == nil {
		return err
	}
	p.reading.Wait()
	p.admitted.Wait()
	err = errors.Join(err, p.sessions.stop(ctx, p.drain))
	answered := make(chan struct{})
	go func() {
		p.dns.Wait()
		close(answered)
	}()
	select {
	case <-answered:
	case <-time.After(min(p.drain, queryTimeout)):
	}
	stop() // queries that have no answer yet get none
	<-answered
	err = errors.Join(err, p.redirect.Close())
	p.served.Wait()
	return err
}

// queryTimeout is how long queries may take when the proxy stops, after all else has ended.
const queryTimeout = 5 * time.Second

// stopAccepting returns what ends the loops, nil when the proxy is not started.
func (p *Proxy) stopAccepting() (stop context.CancelFunc, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.started {
		return nil, nil
	}
	p.started = false
	p.use.noteStopped()
	if p.listeners != nil {
		err = p.listeners.StopAccepting()
		p.listeners = nil
	}
	return p.stop, err
}

// errNotStarted is returned before Start and after Stop.
var errNotStarted = fault.New(fault.Unavailable, "the proxy is not started")

// Supports implements [policy.Proxy].
func (p *Proxy) Supports(rules model.Layer7) error { return Supports(rules) }

// Supports returns why a proxy of this version cannot apply rules, nil if it can.
func Supports(rules model.Layer7) error {
	_, err := compile(rules)
	return err
}

// Prepare implements [policy.Proxy]. With the first rules it opens the way into the proxy.
func (p *Proxy) Prepare(ctx context.Context, rules map[uint32]model.Layer7) error {
	sets := map[uint32]*ruleSet{}
	for number, one := range rules {
		set, err := compile(one)
		if err != nil {
			return fmt.Errorf("rules %d: %w", number, err)
		}
		sets[number] = set
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.started {
		return errNotStarted
	}
	if err := context.Cause(ctx); err != nil {
		return err
	}
	p.rules.add(sets)
	p.use.noteNeeded()
	if p.rules.count() == 0 || p.listeners != nil {
		return nil
	}
	listeners, err := p.redirect.Open()
	p.use.noteOpened(err)
	if err != nil {
		p.rules.remove(slices.Collect(maps.Keys(sets))) // nobody releases what was not prepared
		return err
	}
	p.listeners = listeners
	p.serve(listeners)
	p.opened(listeners)
	return nil
}

// Update is Prepare for a proxy that is stopping and does not open its way any more: requests of its connections are decided by the rules.
func (p *Proxy) Update(rules map[uint32]model.Layer7) error {
	for number, one := range rules {
		set, err := compile(one)
		if err != nil {
			return fmt.Errorf("rules %d: %w", number, err)
		}
		p.rules.add(map[uint32]*ruleSet{number: set})
	}
	return nil
}

// Release implements [policy.Proxy]. The way into the proxy stays for a while, and as long as there are connections.
func (p *Proxy) Release(numbers []uint32) { p.rules.remove(numbers) }

// Changed implements [policy.Proxy].
func (p *Proxy) Changed() {
	select {
	case p.changed <- struct{}{}:
	default:
	}
}

// CloseEndpoint ends the connections of an endpoint, and waits for that until ctx ends.
func (p *Proxy) CloseEndpoint(ctx context.Context, id uint16) error {
	return end(ctx, p.sessions.list(func(s *session) bool { return s.hasEndpoint(id) }), errRemoved)
}

// serve accepts connections until the listeners are closed.
func (p *Proxy) serve(l *redirect.Listeners) {
	stopped := p.stopped
	for _, listener := range []*net.TCPListener{l.TCP4, l.TCP6} {
		if listener != nil {
			p.reading.Go(func() { p.accept(stopped, listener) })
		}
	}
	for _, socket := range []*net.UDPConn{l.UDP4, l.UDP6} {
		if socket != nil {
			p.reading.Go(func() { p.serveDatagrams(stopped, l, socket) })
		}
	}
}

// acceptPause is the time after an error that passes, as when there are too many open files.
const acceptPause = 50 * time.Millisecond

func (p *Proxy) accept(ctx context.Context, listener *net.TCPListener) {
	for {
		conn, err := listener.AcceptTCP()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			p.log.Warn("cannot accept a connection; trying again", "in", acceptPause, "error", err)
			select {
			case <-ctx.Done():
				return
			case <-time.After(acceptPause):
			}
			continue
		}
		p.meters.accept()
		p.admitted.Add(1)
		p.served.Go(func() { p.serveConn(conn) })
	}
}

// serveConn serves one connection to its end.
func (p *Proxy) serveConn(conn *net.TCPConn) {
	s, serve, err := p.begin(conn)
	p.admitted.Done()
	if err != nil {
		p.log.Debug("connection refused", "source", conn.RemoteAddr(), "destination", conn.LocalAddr(), "error", err)
		p.meters.refuse(err)
		reset(conn)
		return
	}
	defer p.sessions.remove(s)
	defer s.cancel(nil)
	if err := serve(s.ctx); err != nil {
		p.log.Debug("connection ended", "source", s.client, "destination", s.server, "error", err)
	}
}

// begin makes a session of a connection, and returns what serves it.
func (p *Proxy) begin(conn *net.TCPConn) (_ *session, serve func(context.Context) error, err error) {
	c, dns, err := p.admit(conn)
	if err != nil {
		return nil, nil, err
	}
	s := &session{connection: c, done: make(chan struct{})}
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	serve = p.newHTTP(s, conn)
	if dns {
		serve = p.newDNSStream(s, conn)
	}
	if err := p.sessions.add(s); err != nil {
		s.cancel(nil)
		return nil, nil, err
	}
	// Between the decision above and add, a policy may have changed, or an endpoint have gone.
	if _, err := c.decide(); err != nil {
		p.sessions.remove(s)
		s.cancel(nil)
		return nil, nil, err
	}
	return s, serve, nil
}

// newDNSStream returns what serves a connection for queries.
func (p *Proxy) newDNSStream(s *session, conn *net.TCPConn) (serve func(context.Context) error) {
	draining, drain := context.WithCancel(s.ctx)
	s.drain = drain
	return func(ctx context.Context) error {
		p.dns.ServeTCP(ctx, draining, conn, s.query())
		return nil
	}
}

// admit finds out who a connection is of, and by which protocol it is served.
func (p *Proxy) admit(conn *net.TCPConn) (c *connection, dns bool, err error) {
	c, err = identify(p.kernel, &p.rules, model.TCP, addrPort(conn.RemoteAddr()), addrPort(conn.LocalAddr()))
	if err != nil {
		return nil, false, err
	}
	d, err := c.decide()
	if err != nil {
		return nil, false, err
	}
	dns, err = d.isDNS()
	return c, dns, err
}

// newHTTP returns what serves a connection for HTTP.
func (p *Proxy) newHTTP(s *session, conn *net.TCPConn) (serve func(context.Context) error) {
	http := &httpproxy.Session{
		Client: conn, Decide: s.decideHTTP, Record: p.meters.request,
		Dial: func(ctx context.Context) (net.Conn, error) { return p.dial(ctx, s.connection) },
	}
	http2 := &http2proxy.Session{Dial: http.Dial, Decide: http.Decide, Record: http.Record}
	http.HTTP2 = http2.Serve
	s.drain = func() {
		http.Drain()
		http2.Drain()
	}
	return http.Serve
}

// dial connects to the server as the one who has opened the connection.
func (p *Proxy) dial(ctx context.Context, c *connection) (net.Conn, error) {
	return p.meters.dialed(p.redirect.Dial(ctx, "tcp", c.source(), c.server))
}

// reset closes a connection so that its client knows that it has failed.
func reset(conn *net.TCPConn) {
	_ = conn.SetLinger(0)
	_ = conn.Close()
}
