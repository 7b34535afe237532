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
	"porin.dev/porin/cells/policy/policymap"
	"porin.dev/porin/cells/proxy/offline"
	"porin.dev/porin/internal/fault"
	"porin.dev/porin/internal/keylock"
)

// ErrNoAgent is why an answer is not passed on: nobody could put its addresses into the policy.
var ErrNoAgent = fault.New(fault.Unavailable, "no agent is connected that would put the addresses into the policy")

// LearnRouter is the [policy.Learner] of a proxy in a process of its own. It chooses who learns a name: the agent when that writes policies, else this process,
// or, while one proxy takes over from another one, the one that has the journal.
type LearnRouter struct {
	dir      string
	classes  offline.ClassFiles
	log      *slog.Logger
	prepared *offline.PreparedJournal // of who opens the journal; nil: nothing was read

	mu           sync.Mutex       // guards the fields below
	agent        *rpcConn         // nil while none is connected
	journalOwner *rpcConn         // the other proxy, that has the journal: the previous one, or then the next one; nil: none
	journal      *offline.Journal // nil while it is not open
	openError    error            // why it is not; nil: it may be open soon
	local        *offline.Writer  // learns in this process; nil until the journal is open, or cannot be opened, and after it was closed
	counts       offline.Counts   // of local, when it was closed
	closed       bool
	maps         policymap.Maps
	lock         *policymap.Lock
	changed      chan struct{} // closed when one of the fields above has changed

	notifier *agentNotifier
	learning keylock.Locks[uint16] // by endpoint: answers that have many addresses
}

var _ policy.Learner = (*LearnRouter)(nil)

// NewLearnRouter returns one without an agent, whose journal is not open.
func NewLearnRouter(cfg ServerConfig, log *slog.Logger) *LearnRouter {
	l := &LearnRouter{dir: cfg.StateDir, classes: classFiles(cfg.Socket, log), log: log, changed: make(chan struct{})}
	l.notifier = newAgentNotifier(l.learn, log)
	return l
}

// broadcast has all who wait look again. It expects the lock.
func (l *LearnRouter) broadcast() {
	close(l.changed)
	l.changed = make(chan struct{})
}

// useMaps has this process write these maps from now on, when it learns itself.
func (l *LearnRouter) useMaps(m policymap.Maps, lock *policymap.Lock) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.maps, l.lock = m, lock
	if l.local == nil {
		return nil
	}
	return l.local.UseMaps(m, lock)
}

// setAgent has the agent be asked from now on; nil: there is none.
func (l *LearnRouter) setAgent(agent *rpcConn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.agent = agent
	l.broadcast()
}

// setJournalOwner has another proxy be asked, which has the journal; nil: there is none.
func (l *LearnRouter) setJournalOwner(owner *rpcConn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.journalOwner = owner
	l.broadcast()
}

// learnerTimeout is how long Learn waits for somebody who can learn: an agent or a proxy that is just coming.
const learnerTimeout = 100 * time.Millisecond

// mapsLockRetry is the time between two looks at the lock of the maps, of which nobody tells.
const mapsLockRetry = 5 * time.Millisecond

// Learn implements [policy.Learner]. What is in force already need not wait for an agent, which is told of it later. All else is done in what Learn returns: an
// agent has to be asked, or the kernel.
func (l *LearnRouter) Learn(endpoint uint16, name string, addresses []dnsname.Address) (wait func(context.Context) error, err error) {
	body := learnRequest{endpoint, name, addresses}
	if local := l.besideAgent(); local != nil && len(addresses) <= maxInline && local.IsKnown(name, addresses) && l.notifier.enqueue(body) {
		return nil, nil
	}
	return func(ctx context.Context) error {
		if len(addresses) > maxInline { // asking for all of them takes its time
			release, err := l.learning.Acquire(ctx, endpoint)
			if err != nil {
				return err
			}
			defer release()
		}
		if local := l.besideAgent(); local != nil && local.InForce(name, addresses) && l.notifier.enqueue(body) {
			return nil
		}
		return l.learnOrNotify(ctx, body)
	}, nil
}

// learnOrNotify has an answer learned. When nobody learns it in time, but its addresses are in force, an agent is notified later.
func (l *LearnRouter) learnOrNotify(ctx context.Context, body learnRequest) error {
	err := l.learn(ctx, body)
	inForce := errors.Is(err, errInForce) || err != nil && ctx.Err() != nil && l.isInForce(body) // this process may not have been scheduled for a while
	if inForce && l.notifier.enqueue(body) {
		return nil
	}
	return err
}

// maxInline is for how many addresses Learn asks the kernel itself, while its caller waits.
const maxInline = 8

// besideAgent returns what knows the datapath while an agent is there that writes it, else nil.
func (l *LearnRouter) besideAgent() *offline.Writer {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.agent == nil {
		return nil
	}
	return l.local
}

func (l *LearnRouter) isInForce(body learnRequest) bool {
	l.mu.Lock()
	local := l.local
	l.mu.Unlock()
	return local != nil && local.InForce(body.Name, body.Addresses)
}

func (l *LearnRouter) learn(ctx context.Context, body learnRequest) error {
	until := time.Now().Add(learnerTimeout)
	for {
		changed, err := l.tryLearn(ctx, body)
		if !errors.Is(err, ErrNoAgent) && !errors.Is(err, errConnClosed) {
			return err
		}
		if ctx.Err() != nil || time.Now().After(until) {
			return fmt.Errorf("learn %s: %w", body.Name, ErrNoAgent)
		}
		select {
		case <-changed:
		case <-ctx.Done():
		case <-time.After(mapsLockRetry):
		}
	}
}

// errInForce is why an answer has not been learned in vain: its addresses are in force.
var errInForce = errors.New("the agent does not answer; the addresses are in force")

// errRefusedByAgent is why an agent has not learned an answer: it has said so.
var errRefusedByAgent = errors.New("the agent does not learn it")

// tryLearn returns [ErrNoAgent] when nobody can learn, errConnClosed when who was asked has gone, and errInForce when nobody answers but the addresses are in
// force. changed is closed when it is to be tried again.
func (l *LearnRouter) tryLearn(ctx context.Context, body learnRequest) (changed <-chan struct{}, err error) {
	l.mu.Lock()
	asked, local, changed := l.agent, l.local, l.changed
	if l.journalOwner != nil && (asked == nil || !l.isLockedByOther()) {
		asked = l.journalOwner
	}
	l.mu.Unlock()
	if local != nil {
		switch err := local.Learn(ctx, body.Endpoint, body.Name, body.Addresses); {
		case errors.Is(err, offline.ErrAgentWrites), errors.Is(err, offline.ErrClosed), (errors.Is(err, offline.ErrStale) || errors.Is(err, offline.ErrNoJournal)) && asked != nil:
		case errors.Is(err, offline.ErrProtected):
			return changed, nil // as an agent does: what an address of the cluster is, no name changes
		default:
			return changed, err
		}
	}
	if asked != nil {
		err := askAgent(ctx, asked, local, body)
		if errors.Is(err, errConnClosed) {
			l.dropConn(asked)
		}
		switch {
		case err != nil && !l.asks(asked): // it is ending
			err = ErrNoAgent
		case err != nil && !errors.Is(err, errInForce) && !errors.Is(err, errConnClosed) && ctx.Err() == nil:
			err = fmt.Errorf("%w: %w", errRefusedByAgent, err)
		}
		return changed, err
	}
	if local != nil && local.InForce(body.Name, body.Addresses) {
		return changed, errInForce
	}
	return changed, ErrNoAgent
}

// isLockedByOther reports whether another process writes the maps: the agent does. It expects the lock, and that this process does not write.
func (l *LearnRouter) isLockedByOther() bool {
	if l.lock == nil || l.local != nil {
		return false
	}
	err := l.lock.TryLock()
	if err == nil {
		err = l.lock.Unlock()
	}
	return errors.Is(err, policymap.ErrLocked)
}

// Counts returns what came of names that this process was to learn itself.
func (l *LearnRouter) Counts() offline.Counts {
	l.mu.Lock()
	local, counts := l.local, l.counts
	l.mu.Unlock()
	if local == nil {
		return counts
	}
	return local.Counts()
}

// asks reports whether the agent or proxy is one that learns.
func (l *LearnRouter) asks(conn *rpcConn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.agent == conn || l.journalOwner == conn
}

// slowAgentAfter is how long askAgent waits before it asks whether the addresses are in force without the agent.
const slowAgentAfter = 50 * time.Millisecond

// askAgent has an agent learn. When that takes long, as the agent starts or hangs, it returns errInForce for an answer whose addresses are in the datapath already.
func askAgent(ctx context.Context, agent *rpcConn, local *offline.Writer, body learnRequest) error {
	if local == nil {
		_, err := agent.call(ctx, methodLearn, body, nil)
		return err
	}
	soon, cancel := context.WithTimeout(ctx, slowAgentAfter)
	defer cancel()
	_, err := agent.call(soon, methodLearn, body, nil)
	if soon.Err() == nil || ctx.Err() != nil || errors.Is(err, errConnClosed) {
		return err
	}
	if local.InForce(body.Name, body.Addresses) {
		return errInForce
	}
	_, err = agent.call(ctx, methodLearn, body, nil)
	return err
}

// handleLearn learns for another proxy, which has given up by then.
func (l *LearnRouter) handleLearn(ctx context.Context, m *message) error {
	var body learnRequest
	if err := json.Unmarshal(m.Body, &body); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, learnerTimeout)
	defer cancel()
	return l.learnOrNotify(ctx, body)
}

// dropConn forgets an agent, or another proxy, that is gone. It does nothing when another one has come.
func (l *LearnRouter) dropConn(gone *rpcConn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.agent == gone {
		l.agent = nil
	}
	if l.journalOwner == gone {
		l.journalOwner = nil
	}
	l.broadcast()
}
