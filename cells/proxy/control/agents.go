package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"porin.dev/porin/cells/proxy/redirect"
	"porin.dev/porin/internal/fault"
	"porin.dev/porin/internal/version"
)

// handleHello makes an agent the current one.
func (s *Server) handleHello(ctx context.Context, p *peer, m *message) (any, []*os.File, error) {
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
		if err := s.proxy.TakeOver(redirect.Handover{Sockets: sockets}); err != nil {
			return nil, nil, err
		}
	}
	if err := s.maps.Open(s.learner.useMaps); err != nil {
		return nil, nil, fmt.Errorf("open the agent's maps: %w", err)
	}
	s.updating.Lock()
	defer s.updating.Unlock()
	if s.isLeaving() { // accepted just before the next proxy accepts
		return nil, nil, errReplaced
	}
	s.learner.setAgent(p) // queries come as soon as the rules are applied
	refused, err := s.apply(ctx, h.Rules)
	if err != nil {
		s.learner.setAgent(s.agent())
		s.log.Warn("an agent was refused: the proxy cannot apply its rules", "error", err)
		return nil, nil, err
	}
	s.mu.Lock()
	if s.handingOver || s.stopping { // meanwhile: the next proxy does not know of this agent
		s.mu.Unlock()
		s.learner.setAgent(s.agent())
		return nil, nil, errReplaced
	}
	s.version = h.Rules.Version
	before := slices.Collect(maps.Keys(s.agents)) // there is one agent, which has connected anew
	s.agents[p], s.current = struct{}{}, p
	if !isClosed(s.agentConnected) {
		close(s.agentConnected)
	}
	s.mu.Unlock()
	for _, other := range before {
		_ = other.wire.close()
	}
	s.proxy.Changed()                        // endpoints may have gone while no agent was there
	if err := s.proxy.Repair(); err != nil { // the agent may have other maps
		s.log.Error("the way into the proxy is not as it should be; it is tried again", "error", err)
	}
	s.log.Info("an agent has connected", "version", h.Version, "sets", len(h.Rules.Rules))
	s.sendSockets(p)
	return helloReply{Protocol: protocol, Version: version.Of(), PID: os.Getpid(), Rejected: refused}, nil, nil
}

// errReplaced is for an agent that is to connect again, to the next proxy.
var errReplaced = fault.New(fault.Unavailable, "another process is taking over as the proxy")

// isLeaving reports whether this proxy stops or is handing over: then no agent may become the current one.
func (s *Server) isLeaving() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.handingOver || s.stopping
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

// listens is told of the proxy's sockets, while the proxy's lock is held.
func (s *Server) listens(l *redirect.Listeners) {
	s.mu.Lock()
	s.sockets = l
	agent := s.current
	s.mu.Unlock()
	if agent != nil {
		s.sendSockets(agent)
	}
}

// sendSockets sends an agent copies of the sockets. It does not wait for an answer, but up to [writeTimeout] for the write.
func (s *Server) sendSockets(agent *peer) {
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
	var journal string
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-tick.C:
		}
		status := s.proxy.Status()
		r := report{InUse: status.InUse, RuleSets: status.RuleSets, Connections: status.Connections}
		journal = s.logJournal(journal)
		if err := errors.Join(status.Err, s.learner.journalError()); err != nil {
			r.Error = err.Error()
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

// logJournal says whether the journal of names can be used, when that is no longer as before. It returns why not.
func (s *Server) logJournal(before string) (now string) {
	err := s.learner.journalError()
	if err != nil {
		now = err.Error()
	}
	switch {
	case now == before:
	case err != nil:
		s.log.Warn("the journal of names cannot be written; trying again", "error", err)
	default:
		s.log.Info("the journal of names can be written again")
	}
	return now
}

// checkPeerUser returns an error unless the process at the other end has the user ID of this process.
func checkPeerUser(conn *net.UnixConn) error {
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
		return fault.New(fault.Forbidden, fmt.Sprintf("process %d has user ID %d: only processes of the proxy's own user may control it", peer.Pid, peer.Uid))
	}
	return nil
}
