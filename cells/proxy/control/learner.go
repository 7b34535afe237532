package control

import (
	"context"
	"fmt"
	"sync"

	"porin.dev/porin/cells/policy"
	"porin.dev/porin/cells/proxy/dnsname"
	"porin.dev/porin/internal/fault"
)

// ErrNoAgent is why an answer is not passed on: nobody could put its addresses into the policy.
var ErrNoAgent = fault.New(fault.Unavailable, "no agent is connected that would put the addresses into the policy")

// Learner is the [policy.Learner] of a proxy in a process of its own: it asks the agent.
type Learner struct {
	mu    sync.Mutex // guards the field below
	agent *peer      // nil while none is connected
}

var _ policy.Learner = (*Learner)(nil)

// NewLearner returns one without an agent.
func NewLearner() *Learner { return &Learner{} }

func (l *Learner) setAgent(p *peer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.agent = p
}

// Learn implements [policy.Learner].
func (l *Learner) Learn(ctx context.Context, endpoint uint16, name string, addresses []dnsname.Address) error {
	l.mu.Lock()
	agent := l.agent
	l.mu.Unlock()
	if agent == nil {
		return fmt.Errorf("learn %s: %w", name, ErrNoAgent)
	}
	_, err := agent.call(ctx, methodLearn, learn{endpoint, name, addresses}, nil)
	return err
}
