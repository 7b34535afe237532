package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"sync"
	"time"

	"porin.dev/porin/cells/policy"
	"porin.dev/porin/cells/policy/model"
	"porin.dev/porin/cells/proxy"
	"porin.dev/porin/cells/proxy/names"
	"porin.dev/porin/cells/proxy/redirect"
	"porin.dev/porin/internal/fault"
	"porin.dev/porin/internal/task"
	"porin.dev/porin/internal/version"
)

// ErrNotConnected is why layer 7 rules cannot be given to a proxy in a process of its own.
var ErrNotConnected = fault.New(fault.Unavailable, "porin-proxy is not connected: does it run, with the same --proxy-socket?")

const (
	firstDial = 20 * time.Millisecond // the pause after a dial that failed
	lastDial  = time.Second
	// greetTimeout bounds the first call, with which the proxy gets all rules.
	greetTimeout = 10 * time.Second
	// learnTimeout bounds a call of the proxy, which has given it up by then.
	learnTimeout = time.Second
)

// Remote is the agent's end of the connection to a proxy in a process of its own: a [policy.Proxy]. While the proxy is away, connections that need it wait.
type Remote struct {
	cfg    RemoteConfig
	names  Names
	log    *slog.Logger
	task   *task.Task
	needed chan struct{} // closed when a proxy may be needed: nothing is connected before
	need   func()

	mu       sync.Mutex // guards the fields below
	rules    map[uint32]json.RawMessage
	version  uint64                // of the rules
	partial  bool                  // the agent starts: there may be more rules than it knows of
	sessions map[*session]struct{} // connections to the proxy, and to former ones whose requests have not ended
	current  *session              // nil while no proxy is connected
	arrived  chan struct{}         // closed when current is set
	taking   bool                  // policies are about to be written, or are: nothing else learns names
	held     redirect.Sockets
	lastErr  error // of the last dial, while no proxy is connected
}

var (
	_ policy.Proxy = (*Remote)(nil)
	_ proxy.Closer = (*Remote)(nil)

	_ policy.NameKeeper = (*Remote)(nil)
)

// Names learns what names have: see [policy.Names].
type Names interface {
	policy.Learner
	Replay(learned []names.Lookup)
	FinishReplay(ctx context.Context) error
}

// session is a connection to a proxy.
type session struct {
	peer       *peer
	background func(func(context.Context)) // runs a function until the agent stops
	status     Status

	sending chan struct{} // holds a token while it is given rules: guards the fields below
	version uint64        // of the rules that it has
	refused rejected
}

// Status is what an operator wants to know of the proxy.
type Status struct {
	Connected   bool
	PID         int
	Version     string // of the program
	InUse       bool
	RuleSets    int
	Connections int
	Former      int   // proxies that were replaced, and whose requests have not ended
	Err         error // why the proxy does not work, or not as it should
}

// NewRemote returns one that does not connect before its task runs. names answers the proxy's queries, and gets what the proxy has learned without the agent.
func NewRemote(cfg RemoteConfig, names Names, log *slog.Logger) *Remote {
	r := &Remote{
		cfg: cfg, names: names, log: log, needed: make(chan struct{}), rules: map[uint32]json.RawMessage{}, version: 1, partial: true, sessions: map[*session]struct{}{}, arrived: make(chan struct{}),
	}
	r.need = sync.OnceFunc(func() { close(r.needed) })
	r.task = task.Forever(log, "proxy-control", r.run)
	return r
}

// Task is the loop that connects to the proxy.
func (r *Remote) Task() *task.Task { return r.task }

// Close closes the sockets that the agent holds, after the task has ended. Where the proxy is away, connections that wait are reset.
func (r *Remote) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	err := r.held.Close()
	r.held = nil
	return err
}

// Supports implements [policy.Proxy]: the rules of this version.
func (r *Remote) Supports(rules model.Layer7) error { return proxy.Supports(rules) }

// Prepare implements [policy.Proxy]. It waits for a proxy that is away.
func (r *Remote) Prepare(ctx context.Context, rules map[uint32]model.Layer7) error {
	encoded := map[uint32]json.RawMessage{}
	for number, one := range rules {
		text, err := json.Marshal(one)
		if err != nil {
			return fmt.Errorf("encode rules %d: %w", number, err)
		}
		encoded[number] = text
	}
	r.mu.Lock()
	maps.Copy(r.rules, encoded)
	r.version++
	needed := r.version
	r.mu.Unlock()
	r.need()
	r.sendFormer(ctx, needed)
	for {
		s, err := r.await(ctx)
		if err != nil {
			return err
		}
		refused, err := r.send(ctx, s, needed)
		if errors.Is(err, errPeerGone) {
			r.leave(s)
			continue
		}
		if err != nil && !r.isCurrent(s) { // it was replaced meanwhile
			continue
		}
		if err != nil {
			return err
		}
		for number := range rules {
			if text, ok := refused[number]; ok {
				return fault.New(fault.Invalid, fmt.Sprintf("porin-proxy cannot use rules %d: %s", number, text))
			}
		}
		return nil
	}
}

// await returns the current session.
func (r *Remote) await(ctx context.Context) (*session, error) {
	for {
		r.mu.Lock()
		s, arrived, lastErr := r.current, r.arrived, r.lastErr
		r.mu.Unlock()
		if s != nil {
			return s, nil
		}
		select {
		case <-arrived:
		case <-ctx.Done():
			return nil, errors.Join(ErrNotConnected, lastErr)
		}
	}
}

// formerTimeout bounds how long rules wait for proxies that were replaced.
const formerTimeout = time.Second

// sendFormer gives the rules to proxies that were replaced and still serve requests, which are decided by the rows that are about to be written.
func (r *Remote) sendFormer(ctx context.Context, needed uint64) {
	ctx, cancel := context.WithTimeout(ctx, formerTimeout)
	defer cancel()
	r.mu.Lock()
	current := r.current
	r.mu.Unlock()
	var sent sync.WaitGroup
	for _, s := range r.list() {
		if s != current {
			sent.Go(func() {
				if _, err := r.send(ctx, s, needed); err != nil {
					r.log.Debug("a proxy that was replaced does not have the rules", "error", err)
				}
			})
		}
	}
	sent.Wait()
}

// send gives the proxy the rules that there are, unless it has the version that is needed.
func (r *Remote) send(ctx context.Context, s *session, needed uint64) (rejected, error) {
	select {
	case s.sending <- struct{}{}:
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for the proxy, which has not answered about other rules: %w", context.Cause(ctx))
	}
	defer func() { <-s.sending }()
	if s.version >= needed {
		return s.refused, nil
	}
	rules := r.snapshot()
	var answer rulesAnswer
	if _, err := s.peer.call(ctx, methodRules, rules, &answer); err != nil {
		return nil, err
	}
	s.version, s.refused = rules.Version, answer.Rejected
	return s.refused, nil
}

func (r *Remote) snapshot() snapshot {
	r.mu.Lock()
	defer r.mu.Unlock()
	return snapshot{Version: r.version, Partial: r.partial, Rules: maps.Clone(r.rules)}
}

// Complete says that the agent's start has ended: the proxy may forget all rules that it was not given since.
func (r *Remote) Complete() {
	r.mu.Lock()
	r.partial = false
	r.mu.Unlock()
	r.need()
	r.Release(nil)
}

// Healthy implements [policy.Proxy].
func (r *Remote) Healthy() error { return r.Status().Err }

// Release implements [policy.Proxy]. The proxy hears of it with the next rules.
func (r *Remote) Release(numbers []uint32) {
	r.mu.Lock()
	for _, n := range numbers {
		delete(r.rules, n)
	}
	r.version++
	needed := r.version
	r.mu.Unlock()
	for _, s := range r.list() {
		r.sendLater(s, needed)
	}
}

// Changed implements [policy.Proxy].
func (r *Remote) Changed() {
	for _, s := range r.list() {
		go func() { _ = s.peer.notify(methodChanged, struct{}{}) }() // an end that is gone is noticed by who reads
	}
}

func (r *Remote) list() (all []*session) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for s := range r.sessions {
		all = append(all, s)
	}
	return all
}

// CloseEndpoint implements [proxy.Closer]. A proxy that ends takes its connections with it.
func (r *Remote) CloseEndpoint(ctx context.Context, id uint16) error {
	sessions := r.list()
	errs := make([]error, len(sessions))
	var waiting sync.WaitGroup
	for i, s := range sessions {
		waiting.Go(func() {
			if _, err := s.peer.call(ctx, methodCloseEndpoint, closeEndpoint{id}, nil); !errors.Is(err, errPeerGone) {
				errs[i] = err
			}
		})
	}
	waiting.Wait()
	return errors.Join(errs...)
}

// run connects again and again.
func (r *Remote) run(ctx context.Context) error {
	var serving sync.WaitGroup
	defer serving.Wait()
	select {
	case <-r.needed:
	case <-ctx.Done():
	}
	pause := firstDial
	for ctx.Err() == nil {
		s, ended, err := r.connect(ctx, &serving)
		r.noteDial(err)
		if err == nil {
			pause = firstDial
			select {
			case <-ended:
			case <-ctx.Done():
			}
			r.leave(s)
			continue
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
			pause = min(2*pause, lastDial)
		}
	}
	return ctx.Err()
}

// connect greets the proxy with all rules and the sockets that the agent holds. ended is closed when the proxy is gone or replaced.
func (r *Remote) connect(ctx context.Context, serving *sync.WaitGroup) (_ *session, ended <-chan struct{}, err error) {
	greeting, cancel := context.WithTimeout(ctx, greetTimeout)
	defer cancel()
	conn, err := dial(greeting, r.cfg.Socket)
	if err != nil {
		return nil, nil, err
	}
	s := &session{sending: make(chan struct{}, 1), background: func(f func(context.Context)) { serving.Go(func() { f(ctx) }) }}
	gone := make(chan struct{})
	end := sync.OnceFunc(func() { close(gone) })
	s.peer = newPeer(conn, func(ctx context.Context, m message) (any, []*os.File, error) {
		return nil, nil, r.handle(ctx, s, m, end)
	})
	r.mu.Lock()
	r.sessions[s] = struct{}{}
	r.mu.Unlock()
	serving.Go(func() {
		err := s.peer.serve(ctx)
		r.log.Debug("a connection to the proxy has ended", "error", err)
		r.mu.Lock()
		delete(r.sessions, s)
		r.mu.Unlock()
		end()
	})
	s.sending <- struct{}{} // it gets rules with the greeting
	sent := sync.OnceFunc(func() { <-s.sending })
	defer sent()
	rules := r.snapshot()
	h := hello{Oldest: oldestProtocol, Newest: newestProtocol, Version: version.Of(), Rules: rules}
	files, err := r.heldFiles(&h)
	if err != nil {
		return nil, nil, errors.Join(err, conn.Close())
	}
	var w welcome
	_, err = s.peer.call(greeting, methodHello, h, &w, files...)
	closeFiles(files)
	if err != nil {
		return nil, nil, errors.Join(err, conn.Close())
	}
	s.version, s.refused = rules.Version, w.Rejected
	sent()
	r.mu.Lock()
	s.status.PID, s.status.Version, s.status.Connected = w.PID, w.Version, true
	newer := r.version
	r.current = s
	close(r.arrived)
	r.mu.Unlock()
	r.takeNamesLater(s)
	r.log.Info("porin-proxy is connected", "version", w.Version, "pid", w.PID, "sets", len(rules.Rules))
	if newer > rules.Version { // changes that did not find this session
		r.sendLater(s, newer)
	}
	return s, gone, nil
}

// sendLater gives a session the rules without waiting for it.
func (r *Remote) sendLater(s *session, needed uint64) {
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), greetTimeout)
		defer cancel()
		if _, err := r.send(ctx, s, needed); err != nil {
			r.log.Debug("the proxy has other rules than the agent, until the next change", "error", err)
		}
	}()
}

// heldFiles returns copies of the sockets that the agent holds, and says in the hello which they are.
func (r *Remote) heldFiles(h *hello) (files []*os.File, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	h.Sockets = placesOf(r.held)
	for _, place := range h.Sockets {
		file, err := duplicateFile(r.held[place])
		if err != nil {
			closeFiles(files)
			return nil, err
		}
		files = append(files, file)
	}
	return files, nil
}

func (r *Remote) isCurrent(s *session) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.current == s
}

// leave has callers wait for the next session.
func (r *Remote) leave(s *session) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.current == s {
		r.current, r.arrived = nil, make(chan struct{})
	}
}

func (r *Remote) noteDial(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lastErr = err
}

// handle answers the proxy.
func (r *Remote) handle(ctx context.Context, s *session, m message, end func()) error {
	defer func() { closeFiles(m.files) }()
	switch m.Method {
	case methodLearn:
		var body learnRequest
		if err := json.Unmarshal(m.Body, &body); err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(ctx, learnTimeout)
		defer cancel()
		return policy.LearnAndWait(ctx, r.names, body.Endpoint, body.Name, body.Addresses)
	case methodHold:
		var body hold
		if err := json.Unmarshal(m.Body, &body); err != nil {
			return err
		}
		sockets, err := socketsOf(&m, body.Sockets)
		if err != nil {
			return err
		}
		return r.hold(sockets)
	case methodReport:
		var body report
		if err := json.Unmarshal(m.Body, &body); err != nil {
			return err
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		s.status.InUse, s.status.RuleSets, s.status.Connections, s.status.Err = body.InUse, body.RuleSets, body.Connections, nil
		if body.Error != "" {
			s.status.Err = errors.New(body.Error)
		}
		return nil
	case methodNames:
		r.takeNamesLater(s)
		return nil
	case methodReplaced:
		r.leave(s)
		end()
		return nil
	}
	return fault.New(fault.NotFound, fmt.Sprintf("this version of the agent (%s) knows no call %q", version.Of(), m.Method))
}

// hold keeps sockets in place of others.
func (r *Remote) hold(sockets redirect.Sockets) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	before := r.held
	r.held = sockets
	return before.Close()
}

// Status returns how the proxy is.
func (r *Remote) Status() Status {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.current != nil {
		status := r.current.status
		status.Former = len(r.sessions) - 1
		return status
	}
	status := Status{Former: len(r.sessions)}
	if len(r.rules) > 0 {
		status.Err = errors.Join(ErrNotConnected, r.lastErr)
	}
	return status
}
