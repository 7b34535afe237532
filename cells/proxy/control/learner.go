package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"porin.dev/porin/cells/policy"
	"porin.dev/porin/cells/policy/dnsname"
	"porin.dev/porin/internal/fault"
	"porin.dev/porin/internal/keylock"
)

// ErrNoAgent is returned for an answer whose addresses no agent has put into the policy in time.
var ErrNoAgent = fault.New(fault.Unavailable, "no agent has put the addresses into the policy")

const (
	// learnTimeout is longer than a query waits.
	learnTimeout = 5 * time.Second
	// slowAgent is how long an answer that passes without an agent waits for the agent that is connected.
	slowAgent = 50 * time.Millisecond
	// askAgain is the pause after an error of an agent, which is starting or ending.
	askAgain = 50 * time.Millisecond
	// manyAddresses is the size from which an endpoint's answers are sent to the agent one after the other: encoding and
	// writing them delays other endpoints.
	manyAddresses = 9
)

// Learner is the [policy.Learner] of a proxy in a process of its own: it calls the agent. While no agent answers, an
// answer that changes no policy passes, and any other answer waits for the next agent until its query's deadline.
type Learner struct {
	log          *slog.Logger
	acknowledged *acknowledged
	learning     keylock.Locks[uint16] // by endpoint: answers of manyAddresses

	mu      sync.Mutex    // guards the fields below
	agent   *rpcConn      // connection to the agent, or to the next proxy when it has taken over; nil: none
	scope   *scope        // nil: unknown
	changed chan struct{} // closed when agent changes
}

var _ policy.Learner = (*Learner)(nil)

// NewLearner returns a learner without an agent, which knows nothing.
func NewLearner(log *slog.Logger) *Learner {
	return &Learner{log: log, acknowledged: newAcknowledged(), changed: make(chan struct{})}
}

// setAgent sets the connection that learns for this proxy, and wakes the answers that wait; nil: there is none.
func (l *Learner) setAgent(conn *rpcConn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.setAgentLocked(conn)
}

func (l *Learner) setAgentLocked(conn *rpcConn) {
	l.agent = conn
	close(l.changed)
	l.changed = make(chan struct{})
}

// removeAgent is for a connection that has ended. It does nothing when there is another one by now.
func (l *Learner) removeAgent(conn *rpcConn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.agent == conn {
		l.setAgentLocked(nil)
	}
}

func (l *Learner) currentAgent() (agent *rpcConn, changed <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.agent, l.changed
}

// setScope sets which answers change no policy, as an agent has sent it; nil: unknown.
func (l *Learner) setScope(told *policy.NameScope) {
	s, err := newScope(told)
	if err != nil {
		l.log.Warn("rules for names cannot be used: while no agent answers, answers with new addresses wait, whatever the name", "error", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.scope = s
}

// Learn implements [policy.Learner].
func (l *Learner) Learn(endpoint uint16, name string, addresses []dnsname.Address) (wait func(context.Context) error, err error) {
	body := learnRequest{endpoint, name, addresses}
	if agent, _ := l.currentAgent(); agent == nil && l.passes(body) {
		return nil, nil
	}
	return func(ctx context.Context) error {
		if err := l.learn(ctx, body); err != nil {
			return fmt.Errorf("learn %s: %w", name, err)
		}
		return nil
	}, nil
}

// passes reports whether the answer changes no policy.
func (l *Learner) passes(body learnRequest) bool {
	l.mu.Lock()
	s := l.scope
	l.mu.Unlock()
	return !s.selects(body.Name) || l.acknowledged.has(body.Endpoint, body.Name, s.outside(body.Addresses))
}

func (l *Learner) learn(ctx context.Context, body learnRequest) error {
	if len(body.Addresses) >= manyAddresses && !l.passes(body) {
		release, err := l.learning.Acquire(ctx, body.Endpoint)
		if err != nil {
			return err
		}
		defer release()
	}
	for {
		agent, changed := l.currentAgent()
		passes := l.passes(body)
		var pause <-chan time.Time
		if agent != nil {
			err := l.ask(ctx, agent, body, passes)
			if err == nil || fault.KindOf(err) == fault.Exhausted {
				return err
			}
			pause = time.After(askAgain)
		}
		if passes {
			return nil
		}
		select {
		case <-changed:
		case <-pause:
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", ErrNoAgent, ctx.Err())
		}
	}
}

// ask calls the agent. When the answer passes without an agent, it waits slowAgent at most.
func (l *Learner) ask(ctx context.Context, agent *rpcConn, body learnRequest, passes bool) error {
	if passes {
		soon, cancel := context.WithTimeout(ctx, slowAgent)
		defer cancel()
		ctx = soon
	}
	began := time.Now()
	_, err := agent.call(ctx, methodLearn, body, nil)
	switch {
	case errors.Is(err, errConnClosed):
		l.removeAgent(agent)
	case err == nil:
		l.mu.Lock()
		s := l.scope
		l.mu.Unlock()
		if s.selects(body.Name) { // other names need no agent
			l.acknowledged.add(body, began)
		}
	}
	return err
}

// handleLearn answers [methodLearn]: in the agent, and for the proxy that this one has replaced.
func handleLearn(ctx context.Context, l policy.Learner, m message) error {
	var body learnRequest
	if err := json.Unmarshal(m.Body, &body); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, learnTimeout)
	defer cancel()
	return policy.LearnAndWait(ctx, l, body.Endpoint, body.Name, body.Addresses)
}
