package control

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net/netip"
	"sync"
	"time"

	"porin.dev/porin/cells/policy/dnsname"
	"porin.dev/porin/cells/proxy/quota"
)

// agentNotifier has an agent learn, in the background, answers that were passed on because their addresses were in force already: for whom they are, and how long
// they are valid. An answer stays until an agent has learned it, or until it is no longer valid: the agent may hang, or be gone.
type agentNotifier struct {
	learn func(context.Context, learnRequest) error
	log   *slog.Logger
	ctx   context.Context // ends what learn does
	stop  context.CancelFunc

	running sync.WaitGroup

	mu      sync.Mutex  // guards the fields below
	order   []answerKey // without the one that an agent is asked to learn
	waiting map[answerKey]validity
	quota   quota.Quota
	busy    bool // a goroutine runs
	closed  bool
}

// answerKey is who has asked for which name.
type answerKey struct {
	endpoint uint16
	name     string
}

// validity is until when addresses are valid.
type validity map[netip.Addr]time.Time

const (
	// maxWaitingOfEndpoint and maxWaiting are how many answers wait for an agent. What is more is not passed on before.
	maxWaitingOfEndpoint = 1024
	maxWaiting           = 4096
	// notifyTimeout is how long an agent may take for one, and notifyRetry the pause after one that it has not taken.
	notifyTimeout = time.Second
	notifyRetry   = 100 * time.Millisecond
	// notifierClose is how long the end waits: the next proxy waits for the journal.
	notifierClose = 100 * time.Millisecond
)

func newAgentNotifier(learn func(context.Context, learnRequest) error, log *slog.Logger) *agentNotifier {
	n := &agentNotifier{learn: learn, log: log, waiting: map[answerKey]validity{}, quota: quota.New(maxWaitingOfEndpoint, maxWaiting)}
	n.ctx, n.stop = context.WithCancel(context.Background())
	return n
}

// enqueue reports whether an agent will learn the answer. It does not block.
func (n *agentNotifier) enqueue(body learnRequest) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return false
	}
	key := answerKey{body.Endpoint, body.Name}
	valid, ok := n.waiting[key]
	if !ok {
		if n.quota.Acquire(key.endpoint, 1) != quota.Acquired {
			return false
		}
		valid = validity{}
		n.waiting[key], n.order = valid, append(n.order, key)
	}
	now := time.Now()
	for _, a := range body.Addresses {
		if until := now.Add(a.TTL); until.After(valid[a.Addr]) {
			valid[a.Addr] = until
		}
	}
	if !n.busy {
		n.busy = true
		n.running.Go(n.run)
	}
	return true
}

// run ends when nothing waits.
func (n *agentNotifier) run() {
	for {
		key, valid, ok := n.next()
		if !ok {
			return
		}
		ctx, cancel := context.WithTimeout(n.ctx, notifyTimeout)
		err := n.learn(ctx, requestFor(key, valid))
		cancel()
		if err != nil {
			n.log.Debug("the agent has not learned how long addresses are valid", "endpoint", key.endpoint, "name", key.name, "error", err)
		}
		answered := err == nil || errors.Is(err, errRefusedByAgent)
		n.finish(key, valid, answered)
		if answered {
			continue
		}
		select {
		case <-n.ctx.Done():
		case <-time.After(notifyRetry):
		}
	}
}

func requestFor(key answerKey, valid validity) learnRequest {
	body := learnRequest{Endpoint: key.endpoint, Name: key.name}
	for addr, until := range valid {
		body.Addresses = append(body.Addresses, dnsname.Address{Addr: addr, TTL: max(0, time.Until(until))})
	}
	return body
}

// next takes what waits longest out of the order. [agentNotifier.finish] puts it back, or forgets it.
func (n *agentNotifier) next() (key answerKey, valid validity, ok bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for len(n.order) > 0 && n.ctx.Err() == nil {
		key, n.order = n.order[0], n.order[1:]
		valid := n.waiting[key]
		maps.DeleteFunc(valid, func(_ netip.Addr, until time.Time) bool { return time.Now().After(until) })
		if len(valid) > 0 {
			return key, maps.Clone(valid), true
		}
		n.drop(key)
	}
	n.busy = false
	return answerKey{}, nil, false
}

// finish forgets what an agent has answered to, unless it is valid for longer by now.
func (n *agentNotifier) finish(key answerKey, told validity, answered bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if answered && maps.Equal(n.waiting[key], told) {
		n.drop(key)
		return
	}
	n.order = append(n.order, key)
}

// drop expects the lock.
func (n *agentNotifier) drop(key answerKey) {
	delete(n.waiting, key)
	n.quota.Release(key.endpoint, 1)
}

// close returns when an agent has learned all, or after [notifierClose]. Nothing is taken any more then.
func (n *agentNotifier) close() {
	n.mu.Lock()
	n.closed = true
	n.mu.Unlock()
	timer := time.AfterFunc(notifierClose, n.stop)
	n.running.Wait()
	timer.Stop()
	n.stop()
}
