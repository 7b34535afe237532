package store

import (
	"context"
	"sync"
)

// life lets calls and goroutines in between its begin and its end, and waits for them.
type life struct {
	mu      sync.Mutex // guards the fields below
	running bool
	ctx     context.Context
	cancel  context.CancelFunc
	inside  sync.WaitGroup
}

func (l *life) begin() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ctx, l.cancel = context.WithCancel(context.Background())
	l.running = true
}

// end cancels what is inside and waits for it. It tells whether there was a life.
func (l *life) end() bool {
	l.mu.Lock()
	if !l.running {
		l.mu.Unlock()
		return false
	}
	l.running = false
	l.cancel()
	l.mu.Unlock()
	l.inside.Wait()
	return true
}

// enter lets a call in: it calls leave when it is done. The context is ctx, and ends with the life, too.
func (l *life) enter(ctx context.Context) (_ context.Context, leave func(), ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.running {
		return nil, nil, false
	}
	l.inside.Add(1)
	ctx, cancel := context.WithCancelCause(ctx)
	unhook := context.AfterFunc(l.ctx, func() { cancel(errNotRunning) })
	return ctx, func() { unhook(); cancel(nil); l.inside.Done() }, true
}
