package control

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"time"

	"porin.dev/porin/cells/policy"
	"porin.dev/porin/cells/policy/policymap"
	"porin.dev/porin/cells/proxy/dnsname"
	"porin.dev/porin/cells/proxy/offline"
	"porin.dev/porin/internal/fault"
)

// ErrNoAgent is why an answer is not passed on: nobody could put its addresses into the policy.
var ErrNoAgent = fault.New(fault.Unavailable, "no agent is connected that would put the addresses into the policy")

// Learner is the [policy.Learner] of a proxy in a process of its own: it asks the agent, and without one it does what it can.
type Learner struct {
	dir     string
	classes offline.ClassFiles
	log     *slog.Logger

	mu      sync.Mutex // guards the fields below
	agent   *peer      // nil while none is connected
	journal *offline.Journal
	offline *offline.Learner // nil until open
	maps    policymap.Maps
}

var _ policy.Learner = (*Learner)(nil)

// NewLearner returns one without an agent, whose journal is not open.
func NewLearner(cfg Config, log *slog.Logger) *Learner {
	return &Learner{dir: cfg.StateDir, classes: classFiles(cfg.Socket, log), log: log}
}

// open opens the journal, which one process may have: a proxy that takes over does so when the former one has closed it.
func (l *Learner) open() {
	l.mu.Lock()
	defer l.mu.Unlock()
	journal, err := offline.OpenJournal(filepath.Join(l.dir, "proxy-names"), offline.DefaultLimits(), l.log)
	if err != nil {
		l.log.Warn("names cannot be learned while no agent is connected", "error", err)
		return
	}
	l.journal, l.offline = journal, offline.New(l.maps, journal, l.classes.Read)
	if l.agent == nil {
		l.offline.Resume()
	}
}

// close returns when nothing is written any more.
func (l *Learner) close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.offline == nil {
		return nil
	}
	l.offline.Suspend()
	l.offline = nil
	return l.journal.Close()
}

// useMaps makes the learner without agent write these maps from now on.
func (l *Learner) useMaps(m policymap.Maps) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.maps = m
	if l.offline != nil {
		l.offline.UseMaps(m)
	}
}

// setAgent makes the agent learn names from now on; with nil, the learner without agent does.
func (l *Learner) setAgent(p *peer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.agent = p
	if l.offline == nil {
		return
	}
	if p != nil {
		l.offline.Suspend()
	} else {
		l.offline.Resume()
	}
}

// learned is what the journal has, up to a mark.
func (l *Learner) learned() (all learned) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.offline != nil {
		all.Learned, all.Mark = l.journal.List()
	}
	return all
}

// forget removes from the journal what the agent has, up to a mark.
func (l *Learner) forget(mark uint64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.offline == nil {
		return nil
	}
	return l.journal.Remove(mark)
}

// Learn implements [policy.Learner]. All is done in what it returns: an agent has to be asked, or the kernel.
func (l *Learner) Learn(endpoint uint16, name string, addresses []dnsname.Address) (wait func(context.Context) error, err error) {
	return func(ctx context.Context) error { return l.learn(ctx, endpoint, name, addresses) }, nil
}

func (l *Learner) learn(ctx context.Context, endpoint uint16, name string, addresses []dnsname.Address) error {
	for {
		agent, alone := l.now()
		if agent != nil {
			err := askAgent(ctx, agent, alone, learn{endpoint, name, addresses})
			if !errors.Is(err, errPeerGone) {
				return err
			}
			l.leave(agent)
			continue
		}
		if alone == nil {
			return fmt.Errorf("learn %s: %w", name, ErrNoAgent)
		}
		switch err := alone.Learn(ctx, endpoint, name, addresses); {
		case errors.Is(err, offline.ErrSuspended): // an agent has come
		case errors.Is(err, offline.ErrProtected):
			return nil // as an agent does: what an address of the cluster is, no name changes
		default:
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
}

// askAgent has an agent learn. When that takes long, as the agent starts or hangs, an answer whose addresses are in the datapath need not wait for it: it hears of them.
func askAgent(ctx context.Context, agent *peer, alone *offline.Learner, body learn) error {
	deadline, ok := ctx.Deadline()
	if !ok || alone == nil {
		_, err := agent.call(ctx, methodLearn, body, nil)
		return err
	}
	soon, cancel := context.WithTimeout(ctx, time.Until(deadline)/2)
	defer cancel()
	_, err := agent.call(soon, methodLearn, body, nil)
	if soon.Err() == nil || ctx.Err() != nil || errors.Is(err, errPeerGone) {
		return err
	}
	if alone.InForce(body.Name, body.Addresses) {
		return nil
	}
	_, err = agent.call(ctx, methodLearn, body, nil)
	return err
}

func (l *Learner) now() (*peer, *offline.Learner) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.agent, l.offline
}

// leave lets names be learned without the agent, which is gone. It does nothing when another agent has come.
func (l *Learner) leave(agent *peer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.agent != agent {
		return
	}
	l.agent = nil
	if l.offline != nil {
		l.offline.Resume()
	}
}
