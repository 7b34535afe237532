package control

import (
	"context"
	"sync"
	"time"

	"porin.dev/porin/cells/proxy/accesslog"
	"porin.dev/porin/internal/fault"
)

const (
	requestInterval = 100 * time.Millisecond
	// requestsOfCall are at most 150 KB: a socket holds them, so an agent that does not read for a while costs no
	// connection.
	requestsOfCall = 64
	// lastRequests is how long a proxy that ends waits for the agent to take the last ones.
	lastRequests = time.Second
)

// requestSender gives the agent what clients have asked for. While no agent takes it, the log keeps what it has room
// for, for the next one.
type requestSender struct {
	requests *accesslog.Log
	agent    func() *rpcConn // nil without one
	unsent   requestBatch    // of run

	once            sync.Once // closes stopping
	stopping, ended chan struct{}
	cancel          context.CancelFunc // nil before start
}

func (s *requestSender) start(ctx context.Context) {
	ctx, s.cancel = context.WithCancel(ctx)
	s.stopping, s.ended = make(chan struct{}), make(chan struct{})
	go func() {
		defer close(s.ended)
		s.run(ctx)
	}()
}

// stop returns when the agent has the last requests, or takes too long. A call that is under way is not given up
// before: the agent would get its requests again.
func (s *requestSender) stop() {
	if s.cancel == nil {
		return
	}
	s.once.Do(func() { close(s.stopping) })
	select {
	case <-s.ended:
	case <-time.After(lastRequests):
	}
	s.cancel()
	<-s.ended
}

// run sends what there is every [requestInterval], and when stop is called.
func (s *requestSender) run(ctx context.Context) {
	tick := time.NewTicker(requestInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.stopping:
			s.send(ctx)
			return
		case <-tick.C:
			s.send(ctx)
		}
	}
}

// send keeps what the agent has not got. One that gives no answer holds it up until ctx or the connection ends.
func (s *requestSender) send(ctx context.Context) {
	agent := s.agent()
	if agent == nil {
		return
	}
	if s.unsent.isEmpty() {
		s.unsent.Requests, s.unsent.Lost = s.requests.Read()
	}
	for !s.unsent.isEmpty() {
		n := min(len(s.unsent.Requests), requestsOfCall)
		_, err := agent.call(ctx, methodRequests, requestBatch{s.unsent.Requests[:n], s.unsent.Lost}, nil)
		if err != nil && fault.KindOf(err) != fault.NotFound { // NotFound: an agent of an earlier version
			return
		}
		s.unsent = requestBatch{Requests: s.unsent.Requests[n:]}
	}
}
