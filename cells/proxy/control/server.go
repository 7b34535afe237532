package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"go.uber.org/fx"

	"porin.dev/porin/cells/proxy"
	"porin.dev/porin/cells/proxy/accesslog"
	"porin.dev/porin/cells/proxy/redirect"
	"porin.dev/porin/internal/fault"
	"porin.dev/porin/internal/task"
	"porin.dev/porin/internal/version"
)

// Maps are the agent's. A proxy opens them when an agent connects, which may have replaced them.
type Maps interface {
	Open() error
}

// Server is the proxy's end: it is controlled by the agent, and gives its place to the next proxy.
//
// Locks are taken in this order: updating, [proxy.Proxy]'s (held when it tells of its sockets), mu,
// [redirect.Redirect]'s.
type Server struct {
	cfg             ServerConfig
	proxy           *proxy.Proxy
	maps            Maps
	learner         *Learner
	requests        requestSender
	replaced        func()        // has the process end, when another one has taken over
	replacedDone    chan struct{} // closed when that was called
	log             *slog.Logger
	file            rulesFile
	handoverTimeout time.Duration // how long the next proxy may take to serve

	serving sync.WaitGroup // of connections and loops
	ctx     context.Context
	cancel  context.CancelFunc

	updating sync.Mutex // held while the proxy gets rules: guards version
	version  uint64     // of the current agent's rules

	mu       sync.Mutex // guards the fields below
	listener *net.UnixListener
	lock     *os.File
	rules    snapshot // the proxy's rules
	agents   map[*rpcConn]struct{}
	current  *rpcConn            // that said hello last
	sockets  *redirect.Listeners // the proxy listens on them; nil: none
	// The four flags are independent: a server that stops may be handing over, and a server that hands over may not have
	// the rules yet.
	//
	//	Start ends --> started --> take-over: handingOver --> aborted: not any more
	//	                                          '--> serving: stopping, too; handingOver stays, so that rules of an agent are not confirmed
	//	Stop, at any time --> stopping
	handingOver bool // the next proxy is taking over, or has taken over
	stopping    bool
	started     bool // no other proxy is asked for its place any more: this one may give its own
	resumed     bool // the rules of the file, or of the previous proxy, are in use, or there are none

	agentConnected chan struct{} // closed when the first agent has
}

// ServerParams is what a [Server] needs.
type ServerParams struct {
	fx.In

	Config   ServerConfig
	Proxy    *proxy.Proxy
	Maps     Maps
	Learner  *Learner
	Requests *accesslog.Log // the proxy's
	Log      *slog.Logger
}

// NewServer returns a server that has not started. replaced is called when another process has taken over.
func NewServer(p ServerParams, replaced func()) (*Server, error) {
	cfg := p.Config
	s := &Server{
		cfg: cfg, proxy: p.Proxy, maps: p.Maps, learner: p.Learner, replacedDone: make(chan struct{}), log: p.Log, agents: map[*rpcConn]struct{}{}, agentConnected: make(chan struct{}),
		file: rulesFile{cfg.StateDir}, handoverTimeout: handoverTimeout,
	}
	s.replaced = sync.OnceFunc(func() {
		close(s.replacedDone)
		replaced()
	})
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.requests.requests, s.requests.agent = p.Requests, s.agent
	p.Proxy.OnListeners(s.listens)
	return s, cfg.Validate()
}

// Start takes over from the proxy that serves the socket, or else serves it, waits for the agent a moment, and goes on
// with the rules that were in force last.
func (s *Server) Start(ctx context.Context) error {
	took, err := s.takeOver(ctx)
	if err != nil {
		return err
	}
	if !took {
		if err := s.listen(ctx); err != nil {
			return err
		}
	}
	s.serving.Go(s.reportLoop)
	s.requests.start(s.ctx)
	s.mu.Lock()
	s.started, s.resumed = true, took
	s.mu.Unlock()
	if !took {
		s.serving.Go(s.accept)
		s.serving.Go(s.startFromFile)
	}
	return nil
}

// Drain lets the requests end that are being served before Stop, while the proxy serves new ones, and may be replaced
// by another one at once. It returns when they have ended, or another one has taken over.
func (s *Server) Drain() {
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	go func() {
		select {
		case <-s.replacedDone:
			cancel()
		case <-ctx.Done():
		}
	}()
	s.proxy.Drain(ctx)
}

// Stop lets the requests end that are being served, while the agent still controls them, and closes the connections to
// the agent. It stops the proxy.
func (s *Server) Stop(ctx context.Context) error {
	s.mu.Lock()
	s.stopping = true
	listener, lock := s.listener, s.lock
	s.lock = nil
	agents := slices.Collect(maps.Keys(s.agents))
	s.mu.Unlock()
	var errs []error
	if listener != nil {
		errs = append(errs, ignoreClosed(listener.Close()))
	}
	if lock != nil { // another one may start while requests end
		errs = append(errs, lock.Close())
	}
	for _, agent := range agents { // it is to connect to that one, when it comes
		_ = agent.notify(methodReplaced, struct{}{})
	}
	errs = append(errs, s.proxy.Stop(ctx))
	s.requests.stop()
	s.cancel()
	s.serving.Wait()
	return errors.Join(errs...)
}

func ignoreClosed(err error) error {
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// listen serves the socket. The lock says whose it is, also after a kill.
func (s *Server) listen(ctx context.Context) error {
	if err := os.MkdirAll(s.cfg.StateDir, 0o755); err != nil {
		return err
	}
	lock, err := lockFile(s.cfg.Socket + lockSuffix)
	if err != nil {
		return err
	}
	listener, err := listenAt(ctx, s.cfg.Socket)
	if err != nil {
		return errors.Join(err, lock.Close())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listener, s.lock = listener, lock
	return nil
}

func (s *Server) accept() {
	s.mu.Lock()
	listener := s.listener
	s.mu.Unlock()
	for {
		conn, err := listener.AcceptUnix()
		if errors.Is(err, net.ErrClosed) || errors.Is(err, os.ErrDeadlineExceeded) { // the next proxy accepts
			return
		}
		if err != nil {
			s.log.Warn("cannot accept a connection of the agent; trying again", "error", err)
			if task.Sleep(s.ctx, 100*time.Millisecond) != nil {
				return
			}
			continue
		}
		s.serving.Go(func() { s.serve(conn) })
	}
}

// serve serves an agent, or the next proxy.
func (s *Server) serve(conn *net.UnixConn) {
	if err := checkUser(conn); err != nil {
		s.log.Warn("a connection was refused", "error", err)
		_ = conn.Close()
		return
	}
	c := &serverConn{server: s}
	c.rpc = newRPCConn(conn, c.handle)
	err := c.rpc.serve(s.ctx)
	s.mu.Lock()
	_, agent := s.agents[c.rpc]
	delete(s.agents, c.rpc)
	if s.current == c.rpc {
		s.current = nil
	}
	s.mu.Unlock()
	s.learner.removeAgent(c.rpc)
	if agent && s.ctx.Err() == nil {
		s.log.Info("the agent has left; goes on with the rules that it gave", "error", err)
	}
	c.abortHandover("another process was to take over, and has left")
}

// serverConn is a connection to an agent, or to the next proxy.
type serverConn struct {
	server     *Server
	rpc        *rpcConn
	handedOver bool // the next proxy has what it needs, and does not serve yet; guarded by the server's lock
	stopTimer  context.CancelFunc
}

// handle implements [handler].
func (c *serverConn) handle(ctx context.Context, m message) (any, []*os.File, error) {
	defer func() { closeFiles(m.files) }()
	switch m.Method {
	case methodHello:
		return c.server.handleHello(ctx, c.rpc, &m)
	case methodRules:
		var rules snapshot
		if err := json.Unmarshal(m.Body, &rules); err != nil {
			return nil, nil, err
		}
		rejected, err := c.server.update(ctx, c.rpc, rules)
		return rulesAnswer{rejected}, nil, err
	case methodChanged:
		c.server.proxy.Changed()
		return nil, nil, nil
	case methodCloseEndpoint:
		var body closeEndpoint
		if err := json.Unmarshal(m.Body, &body); err != nil {
			return nil, nil, err
		}
		ctx, cancel := context.WithTimeout(ctx, proxy.CloseTimeout) // the agent gives up after it
		defer cancel()
		c.server.learner.acknowledged.removeEndpoint(body.Endpoint)
		return nil, nil, c.server.proxy.CloseEndpoint(ctx, body.Endpoint)
	case methodImportNames:
		return nil, nil, nil
	case methodTakeOver:
		return c.handOver(&m)
	case methodServing:
		return nil, nil, c.completeHandover()
	}
	return nil, nil, fault.New(fault.NotFound, fmt.Sprintf("this version of the proxy (%s) knows no call %q", version.Of(), m.Method))
}

// reportInterval is how often the agent hears how the proxy is, if that has changed.
const reportInterval = time.Second

func (s *Server) reportLoop() {
	tick := time.NewTicker(reportInterval)
	defer tick.Stop()
	told := map[*rpcConn]report{}
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-tick.C:
		}
		status := s.proxy.Status()
		r := report{InUse: status.InUse, RuleSets: status.RuleSets, Connections: status.Connections}
		if status.Err != nil {
			r.Error = status.Err.Error()
		}
		s.learner.acknowledged.expire()
		s.mu.Lock()
		agents := slices.Collect(maps.Keys(s.agents))
		s.mu.Unlock()
		maps.DeleteFunc(told, func(agent *rpcConn, _ report) bool { return !slices.Contains(agents, agent) })
		for _, agent := range agents {
			if before, ok := told[agent]; !ok || before != r {
				told[agent] = r
				_ = agent.notify(methodReport, r) // the reader notices a closed connection
			}
		}
	}
}
