package store

import (
	"context"
	"sync"
)

// lifecycle lets calls and goroutines run between begin and end, and waits for them.
type lifecycle struct {
	mu      sync.Mutex // guards the fields below
	running bool
	ctx     context.Context
	cancel  context.CancelFunc
	calls   sync.WaitGroup
}

func (l *lifecycle) begin() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ctx, l.cancel = context.WithCancel(context.Background())
	l.running = true
}

// end cancels the calls and waits for them. It reports whether the lifecycle had begun.
func (l *lifecycle) end() bool {
	l.mu.Lock()
	if !l.running {
		l.mu.Unlock()
		return false
	}
	l.running = false
	l.cancel()
	l.mu.Unlock()
	l.calls.Wait()
	return true
}

// enter begins a call, which calls leave when it is done. The returned context ends with ctx and with the lifecycle.
func (l *lifecycle) enter(ctx context.Context) (_ context.Context, leave func(), err error) {
	if ctx.Err() != nil {
		return nil, nil, context.Cause(ctx)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.running {
		return nil, nil, errNotRunning
	}
	l.calls.Add(1)
	ctx, cancel := context.WithCancelCause(ctx)
	unhook := context.AfterFunc(l.ctx, func() { cancel(errNotRunning) })
	return ctx, func() { unhook(); cancel(nil); l.calls.Done() }, nil
}
