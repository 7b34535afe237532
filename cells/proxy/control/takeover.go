package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"porin.dev/porin/cells/proxy/redirect"
	"porin.dev/porin/internal/fault"
	"porin.dev/porin/internal/fd"
	"porin.dev/porin/internal/version"
)

const (
	// takeOverTimeout is how long a proxy that takes over may take until it serves.
	takeOverTimeout = 10 * time.Second
	// handoverTimeout is how long the serving proxy waits for it; it goes on then.
	handoverTimeout = 15 * time.Second
	// servingWait is how long a serving proxy waits for the previous one to stop serving. It goes on then, unless the
	// previous one answers that it has gone on.
	servingWait = 5 * time.Second
)

// takeOver asks the proxy that serves the socket for its place. It returns false when there is none.
func (s *Server) takeOver(ctx context.Context) (took bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, takeOverTimeout)
	defer cancel()
	conn, err := dial(ctx, s.cfg.Socket)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ECONNREFUSED) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("ask the proxy that serves %s for its place: %w", s.cfg.Socket, err)
	}
	previous := newRPCConn(conn, s.handlePrevious)
	s.serving.Go(func() { _ = previous.serve(s.ctx) }) // the previous one may ask until its last query is answered
	defer func() {
		if !took {
			_ = previous.wire.close()
		}
	}()
	var given takeOverAnswer
	files, err := previous.call(ctx, methodTakeOver, hello{Oldest: oldestProtocol, Newest: newestProtocol, Version: version.Of()}, &given)
	if errors.Is(err, errConnClosed) {
		return false, nil // it has just ended: its lock says when
	}
	if err != nil {
		return false, fmt.Errorf("ask the proxy that serves %s for its place; end it if it hangs: %w", s.cfg.Socket, err)
	}
	if err := s.adoptHandover(given, files); err != nil {
		return false, err
	}
	if err := s.startAccepting(ctx, given); err != nil {
		return false, err
	}
	if err := s.confirmTakeover(previous); err != nil {
		return false, fmt.Errorf("take the place of the proxy that serves %s: %w", s.cfg.Socket, err)
	}
	s.log.Info("has taken over from the previous proxy", "sets", len(given.Rules.Rules))
	return true, nil
}

// confirmTakeover has the previous proxy end. From the call on it is that one which decides: with an error it goes on,
// and repairs what this one has changed.
func (s *Server) confirmTakeover(previous *rpcConn) error {
	answered := make(chan error, 1)
	s.serving.Go(func() {
		_, err := previous.call(s.ctx, methodServing, nil, nil)
		if errors.Is(err, errConnClosed) || s.ctx.Err() != nil { // it may have been killed meanwhile
			err = nil
		}
		answered <- err
	})
	select {
	case err := <-answered:
		return err
	case <-time.After(servingWait):
	}
	s.log.Warn("the previous proxy does not answer: goes on without it")
	s.serving.Go(func() {
		if err := <-answered; err != nil {
			s.log.Error("the previous proxy goes on: this one ends", "error", err)
			s.replaced()
		}
	})
	return nil
}

// handlePrevious answers the proxy that this one has taken over from. It implements [handler].
func (s *Server) handlePrevious(ctx context.Context, m message) (any, []*os.File, error) {
	defer func() { closeFiles(m.files) }()
	if m.Method != methodLearn {
		return nil, nil, fault.New(fault.NotFound, fmt.Sprintf("the next proxy knows no call %q", m.Method))
	}
	return nil, nil, handleLearn(ctx, s.learner, m)
}

// agentReturnWait is how long a proxy that takes over waits for the agent, which the previous one has told.
const agentReturnWait = 2 * time.Second

// startAccepting accepts connections: when the agent is here, which is to learn what answers say, or else with the
// rules of the previous proxy.
func (s *Server) startAccepting(ctx context.Context, given takeOverAnswer) error {
	s.serving.Go(s.accept)
	if given.Agent {
		select {
		case <-s.agentConnected:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(agentReturnWait):
			s.log.Warn("the agent that was connected to the previous proxy has not come: goes on with the rules of that")
		}
	}
	s.updating.Lock()
	defer s.updating.Unlock()
	if isClosed(s.agentConnected) {
		return nil
	}
	if err := s.maps.Open(); err != nil {
		s.log.Warn("the agent's maps cannot be opened: connections are refused until an agent connects", "error", err)
	}
	_, err := s.apply(ctx, given.Rules)
	return err
}

// adoptHandover has what the previous proxy gave.
func (s *Server) adoptHandover(given takeOverAnswer, files []*os.File) (err error) {
	for _, known := range given.Names {
		s.learner.acknowledged.restore(known)
	}
	m := message{Method: methodTakeOver, files: files}
	defer func() { closeFiles(m.files) }()
	sockets, err := socketsOf(&m, given.Sockets)
	if err != nil {
		return err
	}
	all := redirect.Handover{Sockets: sockets}
	next := func() (file *os.File) {
		if len(m.files) > 0 {
			file, m.files = m.files[0], m.files[1:]
		}
		return file
	}
	if given.Locked {
		all.Lock = next()
	}
	lock, control := next(), next()
	if control == nil {
		return errors.Join(errors.New("the previous proxy has not given its control socket"), all.Close(), lock.Close())
	}
	defer func() { err = errors.Join(err, control.Close()) }()
	listener, err := net.FileListener(control)
	if err != nil {
		return errors.Join(err, all.Close(), lock.Close())
	}
	if err := s.proxy.TakeOver(all); err != nil {
		return errors.Join(err, listener.Close(), lock.Close())
	}
	s.mu.Lock()
	s.listener, s.lock = listener.(*net.UnixListener), lock
	s.mu.Unlock()
	s.listener.SetUnlinkOnClose(false)
	return nil
}

// handOver gives the next proxy what it needs, and sends the agent there. This one goes on with connections and queries
// until that serves.
func (c *serverConn) handOver(m *message) (any, []*os.File, error) {
	s := c.server
	var h hello
	if err := json.Unmarshal(m.Body, &h); err != nil {
		return nil, nil, err
	}
	if _, err := chooseProtocol(h); err != nil {
		return nil, nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.handingOver {
		return nil, nil, errReplaced
	}
	if s.stopping || !s.started || s.listener == nil {
		return nil, nil, fault.New(fault.Unavailable, "the proxy is stopping, or has not started")
	}
	rules := s.rulesForNextLocked()
	given, err := s.proxy.HandOver()
	if err != nil {
		return nil, nil, err
	}
	c.handedOver, s.handingOver = true, true
	deciding, stopTimer := context.WithTimeout(s.ctx, s.handoverTimeout)
	c.stopTimer = stopTimer
	s.serving.Go(func() {
		<-deciding.Done()
		if errors.Is(deciding.Err(), context.DeadlineExceeded) {
			c.abortHandover("another process was to take over, and is silent")
		}
	})
	answer := takeOverAnswer{
		Sockets: slices.Sorted(maps.Keys(given.Sockets)), Locked: given.Lock != nil, Rules: rules, Agent: s.current != nil,
		Names: s.learner.acknowledged.list(),
	}
	files, err := s.handoverFilesLocked(given)
	if err == nil {
		err = s.listener.SetDeadline(time.Unix(1, 0)) // the next one accepts what comes
	}
	if err != nil {
		closeFiles(files)
		return nil, nil, err
	}
	for agent := range s.agents {
		_ = agent.notify(methodReplaced, struct{}{})
	}
	return answer, files, nil
}

// rulesForNextLocked returns the rules that the next proxy gets: the rules in use, or the file's while this proxy waits
// for its first agent.
func (s *Server) rulesForNextLocked() snapshot {
	if s.resumed || isClosed(s.agentConnected) {
		return s.rules
	}
	rules, err := s.file.read()
	if err != nil {
		s.log.Warn("the next proxy gets no layer 7 rules: those that were in force last cannot be read; what needs them is denied until an agent connects", "error", err)
	}
	rules.Partial = false
	return rules
}

// handoverFilesLocked returns the files of a [takeOverAnswer], in its order, also with an error: the caller closes
// them, given's too.
func (s *Server) handoverFilesLocked(given redirect.Handover) (files []*os.File, err error) {
	for _, index := range slices.Sorted(maps.Keys(given.Sockets)) {
		files = append(files, given.Sockets[index])
	}
	if given.Lock != nil {
		files = append(files, given.Lock)
	}
	lock, err := fd.Duplicate(s.lock, "lock of the control socket")
	if err != nil {
		return files, err
	}
	files = append(files, lock)
	control, err := s.listener.File()
	if err != nil {
		return files, err
	}
	return append(files, control), nil
}

// abortHandover has this proxy go on, unless the next one serves.
func (c *serverConn) abortHandover(why string) {
	s := c.server
	s.mu.Lock()
	if !c.handedOver {
		s.mu.Unlock()
		return
	}
	c.stopTimer()
	c.handedOver, s.handingOver = false, false
	_ = s.listener.SetDeadline(time.Time{})
	s.mu.Unlock()
	s.log.Warn("goes on as the proxy: " + why)
	s.serving.Go(s.accept)
	if err := s.proxy.AbortHandover(); err != nil {
		s.log.Error("the way into the proxy is not as it should be", "error", err)
	}
}

// completeHandover ends this proxy: the next one accepts connections.
func (c *serverConn) completeHandover() error {
	s := c.server
	s.mu.Lock()
	if !c.handedOver {
		s.mu.Unlock()
		return fault.New(fault.Conflict, "nothing is handed over on this connection, or not any more")
	}
	c.stopTimer()
	c.handedOver, s.stopping = false, true
	listener := s.listener
	s.mu.Unlock()
	err := ignoreClosed(listener.Close())
	s.learner.setAgent(c.rpc) // the next agent connects to that one
	s.log.Info("another process has taken over")
	s.replaced()
	return err
}
