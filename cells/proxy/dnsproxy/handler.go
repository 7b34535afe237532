package dnsproxy

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"porin.dev/porin/cells/proxy/quota"
)

// Config is what a [Handler] needs. All functions may be called concurrently.
type Config struct {
	// Allows reports whether the pod may ask for a name, as of package dnsname. It is called for each query, again when
	// the answer is there, and must not block.
	Allows func(q Query, name string) bool
	// Open returns a socket for a query that came over UDP. It has a source port of its own, chosen at random, and
	// receives only what comes from the server of the query. receive is called for each datagram, which is valid during
	// the call; maybe once more after Close.
	Open func(q Query, receive func(datagram []byte)) (Socket, error)
	// Dial returns a connection to the server of a query that came over TCP.
	Dial func(context.Context, Query) (net.Conn, error)
	// Learn makes the addresses of an answer part of the policy. It is called only if there are any, and must not block.
	// If they are not part of it when Learn returns, wait is not nil and returns when they are, or with an error soon
	// after ctx ends: then the pod gets SERVFAIL. Until wait returns, the query counts as in flight.
	Learn func(Answer) (wait func(ctx context.Context) error, err error)
	// Record hears of each query when its reply is known, and must not block.
	Record func(Record)
	Limits Limits
	Denied Denied // the reply for a name that Allows denies
}

// Socket sends datagrams to the server of a query. Close does not wait.
type Socket interface {
	io.WriteCloser
}

// Limits bounds what is in flight: see package quota. A query above them is answered with SERVFAIL, as the pod may try
// again.
type Limits struct {
	Timeout                time.Duration // from a query to its reply, of the server and Learn together
	IdleTimeout            time.Duration // of a TCP connection of a pod, for the next query
	QueriesPerEndpoint     int           // queries of an endpoint that are in flight
	Queries                int           // of all endpoints. Each has a socket, and less than 20 KiB of memory for one over UDP
	Pipelined              int           // of one TCP connection: no more are read until one is answered
	ConnectionsPerEndpoint int           // TCP connections of an endpoint
	Connections            int           // of all endpoints
}

// DefaultLimits returns the usual limits.
func DefaultLimits() Limits {
	return Limits{
		Timeout: 4500 * time.Millisecond, IdleTimeout: 10 * time.Second,
		QueriesPerEndpoint: 256, Queries: 2048, Pipelined: 16, ConnectionsPerEndpoint: 64, Connections: 1024,
	}
}

func (l Limits) validate() error {
	if min(l.Timeout, l.IdleTimeout) <= 0 ||
		min(l.QueriesPerEndpoint, l.Queries, l.Pipelined, l.ConnectionsPerEndpoint, l.Connections) <= 0 {
		return errors.New("DNS proxy: a limit is not above 0")
	}
	return nil
}

// Handler answers queries. Its methods may be called concurrently.
type Handler struct {
	config  Config
	queries limit
	streams limit          // TCP connections
	running sync.WaitGroup // queries that have not ended
}

// limit is a quota that may be used concurrently.
type limit struct {
	mu    sync.Mutex // guards the field below
	quota quota.Quota
}

func (l *limit) acquire(endpoint uint16) quota.Result {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.quota.Acquire(endpoint, 1)
}

func (l *limit) release(endpoint uint16) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.quota.Release(endpoint, 1)
}

// New returns a handler.
func New(c Config) (*Handler, error) {
	if err := c.Limits.validate(); err != nil {
		return nil, err
	}
	l := c.Limits
	return &Handler{
		config: c, queries: limit{quota: quota.New(l.QueriesPerEndpoint, l.Queries)}, streams: limit{quota: quota.New(l.ConnectionsPerEndpoint, l.Connections)},
	}, nil
}

// HandleQuery answers a query. It returns before the server has answered, and does not keep the message. A flood of
// queries has it begin no more than the limits allow. send is called once, maybe before HandleQuery returns, with the
// reply; nil: the pod gets none. When ctx ends, so does the wait for the server.
func (h *Handler) HandleQuery(ctx context.Context, q Query, send func(reply []byte)) {
	f, refusal := h.admit(q)
	if f == nil {
		send(refusal)
		return
	}
	f.ctx, f.send = ctx, send
	h.running.Add(1)
	if f.TCP {
		go func() { h.handleResult(f, h.forwardTCP(f)) }()
		return
	}
	h.forwardUDP(f)
}

// Wait waits for what calls of HandleQuery and ServeTCP have left in flight. There must be no more of them.
func (h *Handler) Wait() { h.running.Wait() }

// pendingQuery is a query on its way to a server.
type pendingQuery struct {
	Query    // with a message of its own, and the ID of the pod
	question question
	begin    time.Time
	ctx      context.Context
	send     func(reply []byte)
}

// admit decides about a query. It returns a query on its way, or the reply to a query that is not forwarded.
func (h *Handler) admit(q Query) (*pendingQuery, []byte) {
	begin := time.Now()
	question, outcome := readQuestion(q.Message)
	switch {
	case outcome != "":
	case !h.config.Allows(q, question.name):
		outcome = Policy
	case !confirmQuestion(q.Message, question):
		outcome = Ambiguous
	default:
		switch h.queries.acquire(q.Endpoint) {
		case quota.EndpointLimit:
			outcome = EndpointLimit
		case quota.TotalLimit:
			outcome = TotalLimit
		}
	}
	if outcome != "" {
		r := makeReply(q.Message, question, outcome, h.config.Denied)
		h.record(q, question, begin, outcome, r)
		return nil, r
	}
	q.Message = append([]byte(nil), q.Message...)
	return &pendingQuery{Query: q, question: question, begin: begin}, nil
}

// withID returns the query with an ID of its own, which others cannot know.
func (f *pendingQuery) withID() []byte {
	query := append([]byte(nil), f.Message...)
	_, _ = rand.Read(query[:2]) // it never fails
	return query
}

// answered is an exchange that has brought an answer. The pod gets it with its own ID.
func (f *pendingQuery) answered(answer []byte) result {
	copy(answer, f.Message[:2])
	return result{Answered, answer}
}

// result is how a query ended.
type result struct {
	outcome Outcome
	reply   []byte
}

// record tells of a query. The reply may be empty.
func (h *Handler) record(q Query, question question, begin time.Time, outcome Outcome, reply []byte) {
	code := noReply
	if len(reply) >= headerSize {
		code = int(word(reply, 2) & maskCode)
	}
	h.config.Record(Record{
		Endpoint: q.Endpoint, Client: q.Client, Server: q.Server, TCP: q.TCP, Name: question.name, Type: question.kind, Outcome: outcome, Code: code, Duration: time.Since(begin),
	})
}

// handleResult replies to the pod when what a server has said was learned, and ends the query.
func (h *Handler) handleResult(f *pendingQuery, r result) {
	wait := h.learn(f, &r)
	if wait != nil {
		go h.await(f, r, wait)
		return
	}
	h.reply(f, r)
}

// learn learns the addresses that the server has said. It returns what waits until they are in force, nil if they are
// or there are none.
func (h *Handler) learn(f *pendingQuery, r *result) (wait func(context.Context) error) {
	if r.outcome != Answered {
		return nil
	}
	answer, ok := readAnswer(r.reply, f.question)
	switch {
	case !ok && word(r.reply, 2)&bitTruncated != 0:
		r.reply = truncated(r.reply, f.question.end)
	case !ok:
		r.outcome = BadAnswer
	case len(answer.Addresses) > 0 && !h.config.Allows(f.Query, f.question.name): // the pod is gone meanwhile, and maybe another one has its ID
		r.outcome = Policy
	case len(answer.Addresses) > 0:
		answer.Endpoint = f.Endpoint
		var err error
		if wait, err = h.config.Learn(answer); err != nil {
			r.outcome = LearnFailed
			return nil
		}
	}
	return wait
}

// await replies when wait has returned.
func (h *Handler) await(f *pendingQuery, r result, wait func(context.Context) error) {
	ctx, cancel := context.WithDeadline(f.ctx, f.begin.Add(h.config.Limits.Timeout))
	defer cancel()
	if err := wait(ctx); err != nil {
		r.outcome = LearnFailed
		switch late := ctx.Err(); {
		case late == nil || !errors.Is(err, late):
		case errors.Is(late, context.DeadlineExceeded):
			r.outcome = LearnLate
		default:
			r.outcome = Canceled
		}
	}
	h.reply(f, r)
}

// reply ends the query, and sends the reply. A client may have its next query as soon as it has that.
func (h *Handler) reply(f *pendingQuery, r result) {
	if r.outcome != Answered {
		r.reply = makeReply(f.Message, f.question, r.outcome, h.config.Denied)
	}
	h.record(f.Query, f.question, f.begin, r.outcome, r.reply)
	h.queries.release(f.Endpoint)
	f.send(r.reply)
	h.running.Done()
}
