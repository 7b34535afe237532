package dnsproxy

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"
)

// Config is what a [Handler] needs. All functions may be called concurrently.
type Config struct {
	// Allows reports whether the pod may ask for a name, as of package dnsname. It is called for each query, and must not block.
	Allows func(q Query, name string) bool
	// Dial returns a connection to the server of the query, over UDP or TCP as the query came. Each has a source port of its own, which the
	// kernel chooses at random, and a socket for UDP is connected, so that it receives only what comes from the server.
	Dial func(context.Context, Query) (net.Conn, error)
	// Learn makes the addresses of an answer part of the policy. It is called only if there are any. The pod gets the answer when it has
	// returned, or SERVFAIL when it has failed or ctx has ended. Until it returns, the query counts as under way.
	Learn func(context.Context, Answer) error
	// Record hears of each query when its reply is known, and must not block.
	Record func(Record)
	Limits Limits
}

// Limits bounds what is under way. What is more is answered with SERVFAIL, as the pod may try again.
type Limits struct {
	Timeout        time.Duration // for an answer of a server
	Repeat         time.Duration // after which a datagram without answer is sent once more
	LearnTimeout   time.Duration
	IdleTimeout    time.Duration // of a TCP connection of a pod, for the next query
	EndpointQuery  int           // queries of an endpoint that are under way
	TotalQuery     int           // of all endpoints. Each has a socket, and less than 20 KiB of memory for one over UDP
	Pipelined      int           // of one TCP connection: no more are read until one is answered
	EndpointStream int           // TCP connections of an endpoint
	TotalStream    int           // of all endpoints
}

// DefaultLimits returns the usual limits.
func DefaultLimits() Limits {
	return Limits{
		Timeout: 4500 * time.Millisecond, Repeat: 1500 * time.Millisecond, LearnTimeout: 100 * time.Millisecond, IdleTimeout: 10 * time.Second,
		EndpointQuery: 256, TotalQuery: 2048, Pipelined: 16, EndpointStream: 64, TotalStream: 1024,
	}
}

func (l Limits) validate() error {
	if min(l.Timeout, l.Repeat, l.LearnTimeout, l.IdleTimeout) <= 0 ||
		min(l.EndpointQuery, l.TotalQuery, l.Pipelined, l.EndpointStream, l.TotalStream) <= 0 {
		return errors.New("DNS proxy: a limit is not above 0")
	}
	return nil
}

// Handler answers queries. Its methods may be called concurrently.
type Handler struct {
	config  Config
	queries *inFlight
	running sync.WaitGroup // what Go has begun, and calls of Learn

	streamsMu sync.Mutex // guards the field below
	streams   slots
}

// New returns a handler.
func New(c Config) (*Handler, error) {
	if err := c.Limits.validate(); err != nil {
		return nil, err
	}
	l := c.Limits
	return &Handler{config: c, queries: newInFlight(l.EndpointQuery, l.TotalQuery), streams: newSlots(l.EndpointStream, l.TotalStream)}, nil
}

// Handle returns the reply to a query; nil: the pod gets none. When ctx ends, so does the wait for the server.
func (h *Handler) Handle(ctx context.Context, q Query) []byte {
	f, refusal := h.admit(q)
	if f == nil {
		return refusal
	}
	return h.forward(ctx, f)
}

// Go is Handle for one who reads datagrams: it returns before the server has answered, and needs the message no longer then. A flood of queries
// has it begin no more than the limits allow. send is called at most once, and is not called for a query without reply.
func (h *Handler) Go(ctx context.Context, q Query, send func(reply []byte)) {
	f, refusal := h.admit(q)
	if f == nil {
		if refusal != nil {
			send(refusal)
		}
		return
	}
	h.running.Go(func() { send(h.forward(ctx, f)) })
}

// Wait waits for what calls of Go, Handle and ServeTCP have left under way. There must be no more of them.
func (h *Handler) Wait() { h.running.Wait() }

// flight is a query on its way to a server.
type flight struct {
	Query    // with a message of its own, and the ID of the pod
	question question
	key      flightKey
	begin    time.Time
}

// admit decides about a query. It returns a flight, or the reply to a query that is not forwarded.
func (h *Handler) admit(q Query) (*flight, []byte) {
	begin := time.Now()
	question, outcome := readQuestion(q.Message)
	if outcome == "" {
		outcome = h.decide(q, question)
	}
	var key flightKey
	if outcome == "" {
		key = newFlightKey(q, question)
		outcome = h.queries.add(key)
	}
	if outcome != "" {
		r := reply(q.Message, question, outcome)
		h.record(q, question, begin, result{outcome: outcome, reply: r})
		return nil, r
	}
	q.Message = append([]byte(nil), q.Message...)
	return &flight{Query: q, question: question, key: key, begin: begin}, nil
}

func (h *Handler) decide(q Query, question question) Outcome {
	switch {
	case !h.config.Allows(q, question.name):
		return Policy
	case !confirmQuestion(q.Message, question):
		return Ambiguous
	default:
		return ""
	}
}

// result is how a flight ended.
type result struct {
	outcome   Outcome
	reply     []byte
	addresses int
	ignored   int
}

func (h *Handler) record(q Query, question question, begin time.Time, r result) {
	code := noReply
	if r.reply != nil {
		code = int(r.reply[3] & maskCode)
	}
	h.config.Record(Record{
		Endpoint: q.Endpoint, Client: q.Client, Server: q.Server, TCP: q.TCP, Name: question.name, Type: question.kind,
		Outcome: r.outcome, Code: code, Addresses: r.addresses, Ignored: r.ignored, Duration: time.Since(begin),
	})
}

// forward returns the reply to a query that was admitted.
func (h *Handler) forward(ctx context.Context, f *flight) []byte {
	r, stillLearning := h.ask(ctx, f)
	h.queries.answered(f.key) // a client may repeat it as soon as it has the reply
	if stillLearning == nil {
		h.queries.release(f.Endpoint)
	} else {
		h.running.Go(func() {
			<-stillLearning
			h.queries.release(f.Endpoint)
		})
	}
	if r.outcome != Answered {
		r.reply = reply(f.Message, f.question, r.outcome)
	}
	h.record(f.Query, f.question, f.begin, r)
	return r.reply
}

// ask asks the server and learns what it says. It returns a channel when Learn has not returned: it is closed then.
func (h *Handler) ask(ctx context.Context, f *flight) (r result, stillLearning <-chan struct{}) {
	e := h.exchange(ctx, f)
	r = result{outcome: e.outcome, reply: e.answer, ignored: e.ignored}
	if e.outcome != Answered {
		return r, nil
	}
	answer, ok := readAnswer(e.answer, f.question)
	switch {
	case !ok && word(e.answer, 2)&bitTruncated != 0:
		r.reply = truncated(e.answer, f.question.end)
	case !ok:
		r.outcome = BadAnswer
	case len(answer.Addresses) > 0:
		answer.Endpoint = f.Endpoint
		r.addresses = len(answer.Addresses)
		r.outcome, stillLearning = h.learn(ctx, answer)
	}
	return r, stillLearning
}

func (h *Handler) learn(ctx context.Context, a Answer) (_ Outcome, stillLearning <-chan struct{}) {
	ctx, cancel := context.WithTimeout(ctx, h.config.Limits.LearnTimeout)
	var err error
	done := make(chan struct{})
	h.running.Go(func() {
		defer cancel()
		defer close(done)
		err = h.config.Learn(ctx, a)
	})
	select {
	case <-done:
	case <-ctx.Done():
		select {
		case <-done:
		default:
			return late(ctx), done
		}
	}
	switch {
	case err == nil:
		return Answered, nil
	case ctx.Err() != nil && errors.Is(err, ctx.Err()):
		return late(ctx), nil
	default:
		return LearnFailed, nil
	}
}

// late tells whose time ran out.
func late(ctx context.Context) Outcome {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return LearnLate
	}
	return Canceled
}
