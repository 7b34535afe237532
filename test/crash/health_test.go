package crash

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/cells/health"
	"porin.dev/porin/internal/testutil"
)

const (
	healthOn  = "--health-endpoint=true"
	healthOff = "--health-endpoint=false"
)

// agentHealthStart: an agent makes the node's health endpoint after its start. Killed wherever, the next agent has an
// endpoint that answers. The agent after it is started without one, and leaves nothing of it.
func agentHealthStart(s *scene) operation {
	return operation{
		victim: s.agents,
		prepare: func() error {
			return errors.Join(s.startAgain(healthOff), s.healthIs(v1.HealthOff), s.noHealthEndpoint())
		},
		run:   func() { s.runWithHealth(healthOn, v1.HealthOK) },
		judge: s.judgeHealth,
	}
}

// agentHealthRestart: an agent takes over the endpoint of the previous one.
func agentHealthRestart(s *scene) operation {
	return operation{
		victim:  s.agents,
		prepare: func() error { return errors.Join(s.startAgain(healthOn), s.healthIs(v1.HealthOK)) },
		run:     func() { s.runWithHealth(healthOn, v1.HealthOK) },
		judge:   s.judgeHealth,
	}
}

// agentHealthOff: an agent without a health endpoint removes the previous agent's.
func agentHealthOff(s *scene) operation {
	return operation{
		victim:  s.agents,
		prepare: func() error { return errors.Join(s.startAgain(healthOn), s.healthIs(v1.HealthOK)) },
		run:     func() { s.runWithHealth(healthOff, v1.HealthOff) },
		judge:   s.judgeHealth,
	}
}

func (s *scene) startAgain(flag string) error {
	s.agent.End()
	s.agent.Configure(s.flags(flag)...)
	return s.restart()
}

// runWithHealth starts the agent that may be killed, and waits until it has done what it is to do.
func (s *scene) runWithHealth(flag, status string) {
	s.agent.End()
	if s.agents.wasHit() { // the previous agent, which answers probes while it ends
		return
	}
	s.agent.Configure(s.flags(flag)...)
	if s.agent.TryStart() != nil || s.agents.wasHit() {
		return
	}
	_ = s.healthIs(status)
	if status == v1.HealthOff {
		_ = s.noHealthEndpoint()
	}
}

func (s *scene) judgeHealth() error {
	if err := errors.Join(s.agentDies(), s.startAgain(healthOn), s.healthIs(v1.HealthOK)); err != nil {
		return err
	}
	a := health.Attachment()
	if err := s.check("with the endpoint", nil, &testutil.Container{ID: a.ContainerID, IfName: a.IfName}); err != nil {
		return err
	}
	if err := errors.Join(s.startAgain(healthOff), s.noHealthEndpoint()); err != nil {
		return err
	}
	return s.check("without the endpoint", nil)
}

// eventually waits for a condition, unless the agent is killed meanwhile.
func (s *scene) eventually(condition func() error) error {
	for deadline := time.Now().Add(reach); ; time.Sleep(2 * time.Millisecond) {
		err := condition()
		if err == nil || s.agents.wasHit() || time.Now().After(deadline) {
			return err
		}
	}
}

func (s *scene) healthIs(status string) error {
	return s.eventually(func() error {
		var answer v1.ClusterHealth
		if err := s.agent.Get("/v1/health", &answer); err != nil {
			return err
		}
		if answer.Endpoint.Status != status {
			return fmt.Errorf("the health endpoint is %+v, want %s", answer.Endpoint, status)
		}
		return nil
	})
}

func (s *scene) noHealthEndpoint() error {
	return s.eventually(func() error {
		var endpoints []v1.Endpoint
		if err := s.agent.Get("/v1/endpoint", &endpoints); err != nil {
			return err
		}
		for _, ep := range endpoints {
			if ep.Kind != "" {
				return fmt.Errorf("endpoint %d is there", ep.ID)
			}
		}
		if _, err := os.Lstat(filepath.Join(s.node.StateDir, "health.netns")); !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("the namespace of the health endpoint: %v", err)
		}
		return nil
	})
}
