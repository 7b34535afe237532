package control

import (
	"context"
	"time"

	"porin.dev/porin/cells/proxy/accesslog"
	"porin.dev/porin/internal/fault"
)

const (
	requestInterval = 100 * time.Millisecond
	// requestsOfCall are at most 80 KiB: a socket holds them, so an agent that does not read for a while costs no
	// connection.
	requestsOfCall = 64
	// lastRequests is how long a proxy that ends waits for the agent to take the last ones.
	lastRequests = time.Second
)

// requestSender gives the agent what clients have asked for. While no agent takes it, the log keeps what it has room
// for, for the next one. It is not safe for concurrent use.
type requestSender struct {
	requests *accesslog.Log
	agent    func() *rpcConn // nil without one
	unsent   requestBatch
	cancel   context.CancelFunc // nil before start
	ended    chan struct{}
}

func (s *requestSender) start(ctx context.Context) {
	ctx, s.cancel = context.WithCancel(ctx)
	s.ended = make(chan struct{})
	go func() {
		defer close(s.ended)
		s.run(ctx)
	}()
}

// stop returns when the agent has the last requests, or takes too long.
func (s *requestSender) stop() {
	if s.cancel != nil {
		s.cancel()
		<-s.ended
	}
}

// run sends what there is every [requestInterval], and when ctx ends.
func (s *requestSender) run(ctx context.Context) {
	tick := time.NewTicker(requestInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastRequests)
			defer cancel()
			s.send(last)
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
