package endpointmanager_test

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"

	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/policy"
	"porin.dev/porin/cells/policy/engine"
)

// simPolicies is what the kernel has of policies: which endpoint each ID is of. It outlives agents.
type simPolicies struct {
	mu sync.Mutex // guards the field below
	of map[uint16]string
}

func (p *simPolicies) ids() map[uint16]string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.of)
}

// simEnforcer writes them for one life of the agent. Each of its effects waits for its turn.
type simEnforcer struct {
	node  *simNode
	agent *simAgent
	known map[uint16]bool // guarded by the lock of the kernel's part
}

func (n *simNode) policyQueue(a *simAgent) *policy.Queue {
	return policy.NewQueue(engine.Config{}, &simEnforcer{node: n, agent: a}, nil, nil, slog.New(slog.DiscardHandler))
}

// gatedPolicyStep has the undo of an Attach that failed wait for its turn, too: it comes to the queue while the write that
// failed it ends, and the queue's loop could take other requests with it or without it.
type gatedPolicyStep struct {
	*policy.Step
	node  *simNode
	agent *simAgent
}

func (s gatedPolicyStep) Detach(ctx context.Context, ep endpoint.Endpoint, cfg endpoint.DeleteConfig) error {
	if err := s.node.pass(s.agent.process, "policy.Detach "+ep.Spec.Attachment.String()); err != nil {
		return err
	}
	return s.Step.Detach(ctx, ep, cfg)
}

// Apply leaves IDs that it was never told of as they are, as the datapath does.
func (e *simEnforcer) Apply(_ *engine.Engine, _ *engine.Change, locals map[string]policy.Local) error {
	keys := slices.Sorted(maps.Keys(locals))
	if err := e.node.pass(e.agent.process, fmt.Sprint("kernel.Policies.Apply ", keys)); err != nil {
		return err
	}
	p := &e.node.policies
	p.mu.Lock()
	defer p.mu.Unlock()
	maps.DeleteFunc(p.of, func(id uint16, _ string) bool { return e.known[id] })
	e.known = map[uint16]bool{}
	for key, local := range locals {
		p.of[local.ID], e.known[local.ID] = key, true
	}
	return nil
}

func (e *simEnforcer) Forget(id uint16) error {
	p := &e.node.policies
	key, there := p.ids()[id]
	if !there || e.knows(id) || e.node.fault.noForget {
		return nil
	}
	if err := e.node.pass(e.agent.process, "kernel.Policies.Forget "+key); err != nil { // IDs depend on goroutines
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.of, id)
	return nil
}

func (e *simEnforcer) knows(id uint16) bool {
	e.node.policies.mu.Lock()
	defer e.node.policies.mu.Unlock()
	return e.known[id]
}

func (*simEnforcer) Verdict(policy.Question) (uint32, error) { return engine.ValueDeny, nil }

func (*simEnforcer) Layer7() (map[uint32]bool, error) { return nil, nil }

func (*simEnforcer) OnRevision(func(inForce, next uint32)) {}

func (*simEnforcer) Compare(*engine.Engine, map[string]policy.Local) ([]policy.Difference, error) {
	return nil, nil
}
