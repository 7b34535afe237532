package control

import (
	"context"
	"sync"
	"time"
)

// teller tells an agent of answers whose addresses were in force already: how long they are valid, and for whom.
type teller struct {
	running sync.WaitGroup
	ctx     context.Context // of what is told
	stop    context.CancelFunc

	mu      sync.Mutex // guards the fields below
	waiting []learnRequest
	busy    bool // a goroutine tells
	closed  bool
}

const (
	// maxWaiting is how many answers wait until they are told. What is more waits for the agent itself.
	maxWaiting = 1024
	// tellTimeout is how long an agent may take for one.
	tellTimeout = time.Second
)

func newTeller() *teller {
	t := &teller{}
	t.ctx, t.stop = context.WithCancel(context.Background())
	return t
}

// tellLater reports whether the answer will be told. It does not block.
func (l *LearnRouter) tellLater(body learnRequest) bool {
	t := l.tells
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed || len(t.waiting) >= maxWaiting {
		return false
	}
	t.waiting = append(t.waiting, body)
	if !t.busy {
		t.busy = true
		t.running.Go(l.tell)
	}
	return true
}

// tell tells what waits. An agent that is gone meanwhile hears of it by the journal.
func (l *LearnRouter) tell() {
	for {
		list := l.tells.next()
		if list == nil {
			return
		}
		for _, body := range list {
			ctx, cancel := context.WithTimeout(l.tells.ctx, tellTimeout)
			err := l.learn(ctx, body)
			cancel()
			if err != nil {
				l.log.Debug("the agent does not know how long addresses are valid", "endpoint", body.Endpoint, "name", body.Name, "error", err)
			}
		}
	}
}

func (t *teller) next() []learnRequest {
	t.mu.Lock()
	defer t.mu.Unlock()
	list := t.waiting
	t.waiting = nil
	if len(list) == 0 {
		t.busy = false
		return nil
	}
	return list
}

// close returns when all is told, or soon when that takes long. Nothing is told any more then.
func (t *teller) close() {
	t.mu.Lock()
	t.closed = true
	t.mu.Unlock()
	timer := time.AfterFunc(tellTimeout, t.stop)
	t.running.Wait()
	timer.Stop()
	t.stop()
}
