package control

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"

	"porin.dev/porin/cells/proxy/redirect"
	"porin.dev/porin/internal/fault"
	"porin.dev/porin/internal/version"
)

// handleHello gives the proxy the rules of an agent, and makes that the current one.
func (s *Server) handleHello(ctx context.Context, agent *rpcConn, m *message) (any, []*os.File, error) {
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
	if err := s.maps.Open(); err != nil {
		return nil, nil, fmt.Errorf("open the agent's maps: %w", err)
	}
	s.updating.Lock()
	defer s.updating.Unlock()
	s.mu.Lock()
	leaving := s.handingOver || s.stopping
	s.mu.Unlock()
	if leaving { // accepted just before the next proxy accepts: its rules are not for this one
		return nil, nil, errReplaced
	}
	s.learner.setAgent(agent) // queries come as soon as the rules are applied
	rejected, err := s.apply(ctx, h.Rules)
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
	before := slices.Collect(maps.Keys(s.agents)) // there is one agent, which has connected again
	s.agents[agent], s.current = struct{}{}, agent
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
	s.sendSockets(agent)
	return helloAnswer{Protocol: protocol, Version: version.Of(), PID: os.Getpid(), Rejected: rejected}, nil, nil
}

// errReplaced is for an agent that is to connect again, to the next proxy.
var errReplaced = fault.New(fault.Unavailable, "another process is taking over as the proxy")

// agent is the current one, nil if there is none.
func (s *Server) agent() *rpcConn {
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

// sendSockets sends an agent copies of the sockets. It does not wait for an answer, but up to [writeTimeout] for the
// write.
func (s *Server) sendSockets(agent *rpcConn) {
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
	indexes := slices.Sorted(maps.Keys(copies))
	var files []*os.File
	for _, index := range indexes {
		files = append(files, copies[index])
	}
	if err := agent.notify(methodHold, hold{indexes}, files...); err != nil {
		s.log.Debug("the agent does not hold the proxy's sockets", "error", err)
	}
}
