package endpointmanagertest

import (
	"context"
	"sync"

	"porin.dev/porin/cells/endpoint"
)

// turns lets one call after the other work on an attachment.
type turns struct {
	mu  sync.Mutex // guards the field below
	all map[endpoint.Attachment]chan struct{}
}

// enter waits for the attachment's turn.
func (u *turns) enter(ctx context.Context, a endpoint.Attachment) (leave func(), err error) {
	u.mu.Lock()
	turn, ok := u.all[a]
	if !ok {
		turn = make(chan struct{}, 1)
		u.all[a] = turn
	}
	u.mu.Unlock()
	select {
	case turn <- struct{}{}:
		return func() { <-turn }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
