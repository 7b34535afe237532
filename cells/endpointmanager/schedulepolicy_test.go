package endpointmanager_test

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"

	"porin.dev/porin/cells/policy"
	"porin.dev/porin/cells/policy/engine"
)

// simPolicies is what the kernel has of policies: which endpoint each number is of. It outlives agents.
type simPolicies struct {
	mu sync.Mutex // guards the field below
	of map[uint16]string
}

func (p *simPolicies) numbers() map[uint16]string {
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
	return policy.NewQueue(engine.Config{}, &simEnforcer{node: n, agent: a}, slog.New(slog.DiscardHandler))
}

// Apply leaves numbers that it was never told of as they are, as the datapath does.
func (e *simEnforcer) Apply(_ *engine.Engine, _ *engine.Change, locals map[string]policy.Local) error {
	ids := slices.Sorted(maps.Keys(locals))
	if err := e.node.pass(e.agent.process, fmt.Sprint("kernel.Policies.Apply ", ids)); err != nil {
		return err
	}
	p := &e.node.policies
	p.mu.Lock()
	defer p.mu.Unlock()
	maps.DeleteFunc(p.of, func(number uint16, _ string) bool { return e.known[number] })
	e.known = map[uint16]bool{}
	for id, local := range locals {
		p.of[local.Number], e.known[local.Number] = id, true
	}
	return nil
}

func (e *simEnforcer) Forget(number uint16) error {
	p := &e.node.policies
	id, there := p.numbers()[number]
	if !there || e.knows(number) || e.node.fault.noForget {
		return nil
	}
	if err := e.node.pass(e.agent.process, "kernel.Policies.Forget "+id); err != nil { // numbers depend on goroutines
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.of, number)
	return nil
}

func (e *simEnforcer) knows(number uint16) bool {
	e.node.policies.mu.Lock()
	defer e.node.policies.mu.Unlock()
	return e.known[number]
}

func (*simEnforcer) Allows(policy.Question) (bool, error) { return false, nil }

func (*simEnforcer) Compare(*engine.Engine, map[string]policy.Local) ([]policy.Difference, error) {
	return nil, nil
}
