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

	"golang.org/x/sys/unix"

	"porin.dev/porin/cells/policy/policymap"
	"porin.dev/porin/cells/proxy"
	"porin.dev/porin/cells/proxy/redirect"
	"porin.dev/porin/internal/fault"
	"porin.dev/porin/internal/version"
)

// Maps are the agent's. A proxy opens them when an agent connects, which may have made them anew.
type Maps interface {
	// Open opens them, and calls use with those of policies before it closes others.
	Open(use func(policymap.Maps)) error
}

// Server is the proxy's end: it is controlled by the agent, and gives its place to the next proxy.
type Server struct {
	cfg      Config
	proxy    *proxy.Proxy
	maps     Maps
	learner  *Learner
	replaced func() // has the process end, when another one has taken over
	log      *slog.Logger
	file     rulesFile

	serving sync.WaitGroup // of connections and loops
	ctx     context.Context
	cancel  context.CancelFunc

	updating sync.Mutex // held while the proxy gets rules: guards version
	version  uint64     // of the current agent's rules

	mu       sync.Mutex // guards the fields below
	listener *net.UnixListener
	lock     *os.File
	rules    snapshot // what the proxy has
	agents   map[*peer]struct{}
	current  *peer               // that was greeted last
	sockets  *redirect.Listeners // that the proxy listens on; nil: none
	yielding bool                // the next proxy is taking over
	stopping bool
	greeted  chan struct{} // closed when the first agent was
}

// NewServer returns a server that has not started. replaced is called when another process has taken over.
func NewServer(cfg Config, p *proxy.Proxy, m Maps, learner *Learner, replaced func(), log *slog.Logger) (*Server, error) {
	s := &Server{
		cfg: cfg, proxy: p, maps: m, learner: learner, replaced: replaced, log: log, agents: map[*peer]struct{}{}, greeted: make(chan struct{}),
		file: rulesFile{cfg.StateDir},
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	p.OnListeners(s.listens)
	return s, cfg.Validate()
}

// agentWait is how long a start without a former proxy waits for an agent, which may hold sockets with connections that wait.
const agentWait = 2 * time.Second

// Start takes over from the proxy that serves the socket, or else serves it, waits for the agent a moment, and goes on with the rules that were in force last.
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
	s.learner.open()
	if !took {
		s.serving.Go(s.accept)
		s.serving.Go(s.resume)
	}
	return nil
}

// resume goes on with the rules of the file, unless an agent comes before. Without maps no agent has run in this boot.
func (s *Server) resume() {
	select {
	case <-s.greeted:
		return
	case <-s.ctx.Done():
		return
	case <-time.After(agentWait):
	}
	rules, err := s.file.read()
	rules.Partial = false
	if err != nil {
		s.log.Warn("the layer 7 rules that were in force last cannot be read: what needs them is denied until an agent connects", "error", err)
		return
	}
	if len(rules.Rules) == 0 {
		return
	}
	if err := s.maps.Open(s.learner.useMaps); err != nil {
		s.log.Warn("the agent's maps cannot be opened: connections wait until an agent connects", "error", err)
		return
	}
	s.updating.Lock()
	defer s.updating.Unlock()
	select {
	case <-s.greeted:
		return
	default:
	}
	if refused, err := s.apply(s.ctx, rules); err != nil || len(refused) > 0 {
		s.log.Warn("not all of the layer 7 rules that were in force last are in use", "rejected", len(refused), "error", err)
		return
	}
	s.log.Info("no agent is there: goes on with the layer 7 rules that were in force last", "sets", len(rules.Rules))
}

// Stop lets the requests end that are being served, while the agent still controls them, and closes the connections to the agent. It stops the proxy.
func (s *Server) Stop(ctx context.Context) error {
	s.mu.Lock()
	s.stopping = true
	listener, lock := s.listener, s.lock
	s.mu.Unlock()
	var errs []error
	if listener != nil {
		errs = append(errs, ignoreClosed(listener.Close()))
	}
	errs = append(errs, s.proxy.Stop(ctx), s.learner.close())
	s.cancel()
	s.serving.Wait()
	if lock != nil {
		errs = append(errs, lock.Close())
	}
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
	lock, err := lockFile(s.cfg.Socket + ".lock")
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
			select {
			case <-s.ctx.Done():
				return
			case <-time.After(100 * time.Millisecond):
			}
			continue
		}
		s.serving.Go(func() { s.serve(conn) })
	}
}

// serve serves an agent, or the next proxy.
func (s *Server) serve(conn *net.UnixConn) {
	if err := isRoot(conn); err != nil {
		s.log.Warn("a connection was refused", "error", err)
		_ = conn.Close()
		return
	}
	var p *peer
	c := &serverConn{server: s}
	p = newPeer(conn, c.handle)
	c.peer = p
	err := p.serve(s.ctx)
	s.gone(c, err)
}

// gone notes that a connection has ended.
func (s *Server) gone(c *serverConn, err error) {
	s.mu.Lock()
	_, agent := s.agents[c.peer]
	delete(s.agents, c.peer)
	current := s.current == c.peer
	if current {
		s.current = nil
	}
	s.mu.Unlock()
	s.learner.leave(c.peer)
	if agent && s.ctx.Err() == nil {
		s.log.Info("the agent has left; goes on with the rules that it gave", "error", err)
	}
	if c.yielded {
		s.mu.Lock()
		s.yielding = false
		_ = s.listener.SetDeadline(time.Time{})
		s.mu.Unlock()
		s.serving.Go(s.accept)
		if err := s.proxy.Resume(); err != nil {
			s.log.Error("another process was to take over, and has left; the way into the proxy is not as it should be", "error", err)
		}
	}
}

// serverConn is a connection to an agent, or to the next proxy.
type serverConn struct {
	server  *Server
	peer    *peer
	yielded bool // the next proxy has what it needs, and does not serve yet
}

// handle implements [handler].
func (c *serverConn) handle(ctx context.Context, m message) (any, []*os.File, error) {
	defer func() { closeFiles(m.files) }()
	switch m.Method {
	case methodHello:
		return c.server.greet(ctx, c.peer, &m)
	case methodRules:
		var rules snapshot
		if err := json.Unmarshal(m.Body, &rules); err != nil {
			return nil, nil, err
		}
		refused, err := c.server.update(ctx, c.peer, rules)
		return rulesAnswer{refused}, nil, err
	case methodChanged:
		c.server.proxy.Changed()
		return nil, nil, nil
	case methodCloseEndpoint:
		var body closeEndpoint
		if err := json.Unmarshal(m.Body, &body); err != nil {
			return nil, nil, err
		}
		return nil, nil, c.server.proxy.CloseEndpoint(ctx, body.Endpoint)
	case methodTakeNames:
		answer, err := c.server.takeNames(c.peer)
		return answer, nil, err
	case methodReplayed:
		var body replayed
		if err := json.Unmarshal(m.Body, &body); err != nil {
			return nil, nil, err
		}
		return nil, nil, c.server.learner.forget(body.Mark)
	case methodTakeOver:
		return c.yield(&m)
	case methodServing:
		return nil, nil, c.handOver()
	}
	return nil, nil, fault.New(fault.NotFound, fmt.Sprintf("this version of the proxy (%s) knows no call %q", version.Of(), m.Method))
}

// greet makes an agent the current one.
func (s *Server) greet(ctx context.Context, p *peer, m *message) (any, []*os.File, error) {
	var h hello
	if err := json.Unmarshal(m.Body, &h); err != nil {
		return nil, nil, err
	}
	protocol, err := chooseProtocol(h)
	if err != nil {
		return nil, nil, err
	}
	sockets, err := socketsOf(m, h.Sockets)
	if err != nil {
		return nil, nil, err
	}
	if len(sockets) > 0 {
		if err := s.proxy.Take(redirect.Handover{Sockets: sockets}); err != nil {
			return nil, nil, err
		}
	}
	if err := s.maps.Open(s.learner.useMaps); err != nil {
		return nil, nil, fmt.Errorf("open the agent's maps: %w", err)
	}
	s.updating.Lock()
	defer s.updating.Unlock()
	if s.leaves() { // accepted just before the next proxy accepts
		return nil, nil, errReplaced
	}
	if h.TakeNames {
		s.learner.setAgent(p) // queries come as soon as the rules are applied
	} else {
		s.learner.setAgent(nil)
	}
	refused, err := s.apply(ctx, h.Rules)
	if err != nil {
		s.learner.setAgent(s.agent())
		s.log.Warn("an agent was refused: the proxy cannot apply its rules", "error", err)
		return nil, nil, err
	}
	s.version = h.Rules.Version
	s.mu.Lock()
	s.agents[p], s.current = struct{}{}, p
	if !isClosed(s.greeted) {
		close(s.greeted)
	}
	s.mu.Unlock()
	s.proxy.Changed()                        // endpoints may have gone while no agent was there
	if err := s.proxy.Repair(); err != nil { // the agent may have other maps
		s.log.Error("the way into the proxy is not as it should be; it is tried again", "error", err)
	}
	s.log.Info("an agent has connected", "version", h.Version, "sets", len(h.Rules.Rules))
	s.give(p)
	w := welcome{Protocol: protocol, Version: version.Of(), PID: os.Getpid(), Rejected: refused}
	if h.TakeNames {
		w.learned = s.learner.learned()
	}
	return w, nil, nil
}

// takeNames has an agent learn names, which was greeted before. It returns what was learned without one.
func (s *Server) takeNames(p *peer) (learned, error) {
	s.updating.Lock()
	defer s.updating.Unlock()
	if s.agent() != p {
		return learned{}, fault.New(fault.Conflict, "another agent controls the proxy")
	}
	s.learner.setAgent(p)
	return s.learner.learned(), nil
}

// keep writes the file for a start without the agent.
func (s *Server) keep(rules snapshot) {
	if err := s.file.write(rules); err != nil {
		s.log.Warn("the layer 7 rules are not kept for a start without the agent", "error", err)
	}
}

// errReplaced is for an agent that is to connect again, to the next proxy.
var errReplaced = fault.New(fault.Unavailable, "another process is taking over as the proxy")

// leaves reports whether the next proxy has what it needs.
func (s *Server) leaves() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.yielding || s.stopping
}

// agent is the current one, nil if there is none.
func (s *Server) agent() *peer {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.current
}

func isClosed(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// update gives the proxy other rules. Those of an agent that is not the current one, and older ones, are ignored.
func (s *Server) update(ctx context.Context, p *peer, rules snapshot) (rejected, error) {
	s.updating.Lock()
	defer s.updating.Unlock()
	s.mu.Lock()
	current := s.current == p
	s.mu.Unlock()
	if !current {
		return nil, fault.New(fault.Conflict, "another agent controls the proxy")
	}
	if rules.Version < s.version {
		return nil, nil
	}
	s.version = rules.Version
	return s.apply(ctx, rules)
}

// apply has the proxy use the rules, and no others unless they are partial. It expects updating.
func (s *Server) apply(ctx context.Context, rules snapshot) (rejected, error) {
	all, refused := rules.decode()
	s.mu.Lock()
	before, stopping := s.rules, s.stopping
	s.mu.Unlock()
	for number, one := range all {
		if err := s.proxy.Supports(one); err != nil {
			refused[number] = err.Error()
			delete(all, number)
		}
	}
	if stopping { // current requests are decided by them
		if err := s.proxy.Update(ctx, all); err != nil {
			return refused, err
		}
	} else if err := s.proxy.Prepare(ctx, all); err != nil {
		return refused, err
	}
	if rules.Partial {
		merged := maps.Clone(before.Rules)
		if merged == nil {
			merged = map[uint32]json.RawMessage{}
		}
		maps.Copy(merged, rules.Rules)
		rules.Rules = merged
	} else {
		var unused []uint32
		for number := range before.Rules {
			if _, ok := all[number]; !ok {
				unused = append(unused, number)
			}
		}
		s.proxy.Release(unused)
	}
	s.mu.Lock()
	s.rules = rules
	s.mu.Unlock()
	if !stopping {
		s.keep(rules)
	}
	return refused, nil
}

// listens is told of the proxy's sockets, while the proxy's lock is held.
func (s *Server) listens(l *redirect.Listeners) {
	s.mu.Lock()
	s.sockets = l
	agent := s.current
	s.mu.Unlock()
	if agent != nil {
		s.give(agent)
	}
}

// give has an agent hold copies of the sockets. It does not wait for that.
func (s *Server) give(agent *peer) {
	s.mu.Lock()
	sockets := s.sockets
	s.mu.Unlock()
	var copies redirect.Sockets
	if sockets != nil {
		var err error
		if copies, err = sockets.Sockets(); err != nil {
			s.log.Warn("the agent cannot hold the proxy's sockets: connections are refused if the proxy ends", "error", err)
			return
		}
	}
	defer func() { _ = copies.Close() }()
	places := placesOf(copies)
	files := make([]*os.File, len(places))
	for i, place := range places {
		files[i] = copies[place]
	}
	if err := agent.notify(methodHold, hold{places}, files...); err != nil {
		s.log.Debug("the agent does not hold the proxy's sockets", "error", err)
	}
}

// reportInterval is how often the agent hears how the proxy is, if that has changed.
const reportInterval = time.Second

func (s *Server) reportLoop() {
	tick := time.NewTicker(reportInterval)
	defer tick.Stop()
	told := map[*peer]report{}
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
		s.mu.Lock()
		agents := slices.Collect(maps.Keys(s.agents))
		s.mu.Unlock()
		maps.DeleteFunc(told, func(p *peer, _ report) bool { return !slices.Contains(agents, p) })
		for _, p := range agents {
			if before, ok := told[p]; !ok || before != r {
				told[p] = r
				_ = p.notify(methodReport, r) // an end that is gone is noticed by who reads
			}
		}
	}
}

// isRoot returns why the process at the other end may not control the proxy.
func isRoot(conn *net.UnixConn) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var peer *unix.Ucred
	controlErr := raw.Control(func(fd uintptr) { peer, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	if err := errors.Join(controlErr, err); err != nil {
		return err
	}
	if peer.Uid != uint32(os.Getuid()) {
		return fault.New(fault.Forbidden, fmt.Sprintf("process %d has user ID %d: only the agent's user may control the proxy", peer.Pid, peer.Uid))
	}
	return nil
}
