package endpointmanager_test

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/policy"
	"porin.dev/porin/cells/policy/engine"
	"porin.dev/porin/cells/policy/model"
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
	return policy.NewQueue(engine.Config{}, &simEnforcer{node: n, agent: a}, simProxy{n, a}, nil, slog.New(slog.DiscardHandler))
}

// simProxy takes layer 7 rules when it is its turn, or never.
type simProxy struct {
	node  *simNode
	agent *simAgent
}

func (simProxy) Supports(model.Layer7) error { return nil }

func (p simProxy) Prepare(ctx context.Context, rules map[uint32]model.Layer7) error {
	if p.agent.proxyHangs {
		<-ctx.Done()
		return ctx.Err()
	}
	if err := p.node.pass(p.agent.process, fmt.Sprint("kernel.Proxy.Prepare ", slices.Sorted(maps.Keys(rules)))); err != nil {
		return err
	}
	if p.node.fault.liar {
		return nil
	}
	p.agent.mu.Lock()
	defer p.agent.mu.Unlock()
	for number := range rules {
		p.agent.prepared[number] = true
	}
	return nil
}

func (p simProxy) Release(numbers []uint32) {
	p.agent.mu.Lock()
	defer p.agent.mu.Unlock()
	for _, number := range numbers {
		delete(p.agent.prepared, number)
	}
}

func (simProxy) Healthy() error { return nil }

func (simProxy) Changed() {}

// layer7Policy has pods redirected to the proxy, unless a label frees them.
const layer7Policy = `
apiVersion: cilium.io/v2
kind: CiliumNetworkPolicy
metadata: {name: web, namespace: default}
spec:
  endpointSelector: {matchExpressions: [{key: free, operator: NotIn, values: ["true"]}]}
  egress: [{toPorts: [{ports: [{port: "80", protocol: TCP}], rules: {http: [{path: "/%d"}]}}]}]
`

// changePolicies has an operator put or delete a policy with layer 7 rules. Nobody waits for that.
func (r *simRuntime) changePolicies() {
	a := r.serves()
	put, path, timeout := r.rng.IntN(3) > 0, r.rng.IntN(3), time.Duration(1+r.rng.IntN(20))*time.Second
	if a == nil {
		return
	}
	time.Sleep(time.Millisecond) // no two of them begin at the same time
	r.say("the operator puts a policy: %t", put)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		defer cancel()
		if put {
			_, _, _ = a.manifests.Put(ctx, fmt.Appendf(nil, layer7Policy, path))
		} else {
			_ = a.manifests.Delete(ctx, model.PolicyID{Kind: model.KindCiliumNetworkPolicy, Namespace: "default", Name: "web"})
		}
	}()
}

// redirected returns an error when rows lead to the proxy that it has no rules for.
func (e *simEnforcer) redirected(eng *engine.Engine, locals map[string]policy.Local) (err error) {
	e.agent.mu.Lock()
	defer e.agent.mu.Unlock()
	for key := range locals {
		ep, _ := eng.Endpoint(key)
		for _, addr := range ep.Addresses {
			verdict := eng.Evaluate(addr, netip.AddrFrom4([4]byte{192, 0, 2, 1}), model.TCP, 80)
			if value := verdict.Egress.Value(); value > engine.ValueAllow && !e.agent.prepared[value] {
				err = fmt.Errorf("%s is redirected with rules %d, and the proxy has %v", key, value, e.agent.prepared)
			}
		}
	}
	return err
}

// gatedPolicyStep has the undo of an Attach that failed wait for its turn, too: it comes to the queue while the write
// that failed it ends, and the queue's loop could take other requests with it or without it.
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
func (e *simEnforcer) Apply(eng *engine.Engine, _ *engine.Change, locals map[string]policy.Local) error {
	keys := slices.Sorted(maps.Keys(locals))
	if err := e.node.pass(e.agent.process, fmt.Sprint("kernel.Policies.Apply ", keys)); err != nil {
		return err
	}
	if err := e.redirected(eng, locals); err != nil {
		e.node.say("%s breaks a promise: %v", e.agent.name, err)
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

func (e *simEnforcer) RemoveEndpoint(id uint16) error {
	p := &e.node.policies
	key, there := p.ids()[id]
	if !there || e.knows(id) || e.node.fault.noForget {
		return nil
	}
	if err := e.node.pass(e.agent.process, "kernel.Policies.RemoveEndpoint "+key); err != nil { // IDs depend on goroutines
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

func (*simEnforcer) Fits(*engine.Engine, map[string]policy.Local) error { return nil }

func (*simEnforcer) Verdict(policy.Question) (uint32, error) { return engine.ValueDeny, nil }

func (*simEnforcer) Layer7() (map[uint32]bool, error) { return nil, nil }

func (*simEnforcer) Compare(*engine.Engine, map[string]policy.Local) ([]policy.Difference, error) {
	return nil, nil
}
