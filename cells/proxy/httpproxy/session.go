package httpproxy

import (
	"bytes"
	"context"
	"errors"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"porin.dev/porin/cells/proxy/bufconn"
)

// Session serves one connection of a client, and the one to its server.
type Session struct {
	Client net.Conn
	// Dial connects to the server. It is called once, when the first request is allowed.
	Dial func(context.Context) (net.Conn, error)
	// Decide is asked once about each request, when its head was read. It allows the request if it returns no reason. It
	// must not keep the request.
	Decide func(*Request) Reason
	// Record is told of each request when its status is known, one at a time. It may be nil.
	Record func(Record)
	// HTTP2 serves a client that begins with the preface of HTTP/2, which is still to be read, and closes the connection.
	// If it is nil such a client is refused.
	HTTP2  func(ctx context.Context, client *bufconn.Conn) error
	Limits Limits // as they are when Serve begins
	// Memory bounds what the connections hold. If it is nil, there is no bound.
	Memory bufconn.Memory

	client, server *bufconn.Conn // server is nil until it was dialled
	served         sync.WaitGroup
	progress       atomic.Uint32
	lastHost       knownHost
	asked          bool // a request was read
	isHTTP2        bool // HTTP2 serves the client
	readsServer    bool // serveServer runs, or has ended

	mu       sync.Mutex // guards the fields below
	changed  sync.Cond
	exchange exchange
	waiting  bool  // for the first byte of a request
	begun    bool  // the first byte of the first one has come
	draining bool  // the current request is the last
	tunnel   bool  // the protocol was switched
	ending   bool  // no further request is read
	err      error // why it ended
}

// Serve forwards until one of the connections ends or ctx does, and closes both. The error says why if it was not the
// end of a stream between two requests. It is called once.
func (s *Session) Serve(ctx context.Context) error {
	if s.Memory == nil {
		s.Memory = bufconn.Unlimited{}
	}
	s.client = bufconn.New(s.Client, &s.progress, s.Memory)
	s.mu.Lock()
	s.Limits = s.Limits.withDefaults()
	s.changed.L = &s.mu
	s.mu.Unlock()
	stop := context.AfterFunc(ctx, func() {
		s.abandon(ReasonStopped, context.Cause(ctx))
		s.abort(context.Cause(ctx)) // also if it is being ended in order
	})
	w := s.startStallCheck()
	s.serveClient(ctx)
	s.served.Wait()
	w.Stop()
	stop()
	if s.isHTTP2 {
		return s.HTTP2(ctx, s.client)
	}
	s.client.Close()
	if s.server != nil {
		s.server.Close()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// Drain lets the current request be the last one, or the next one if there is none: its response tells the client so if
// its head was not sent yet. A connection between two requests is closed after [Limits.DrainIdle], for its client may
// be about to send one; a new one waits for its first. A switched protocol goes on, until the context of Serve ends.
func (s *Session) Drain() {
	s.mu.Lock()
	s.draining = true
	s.mu.Unlock()
	s.endWhenIdle()
}

// endWhenIdle ends the session after a while if the client has sent nothing then.
func (s *Session) endWhenIdle() {
	s.mu.Lock()
	idle := s.Limits.withDefaults().DrainIdle
	s.mu.Unlock()
	time.AfterFunc(idle, func() {
		s.endIf(nil, func() bool { return s.begun && s.waiting && !s.exchange.active })
	})
}

// serveClient reads requests until there is no further one to read.
func (s *Session) serveClient(ctx context.Context) {
	s.setReadDeadline(s.client, time.Now().Add(s.Limits.FirstByte))
	for s.awaitRequest() && s.serveRequest(ctx) {
	}
	s.mu.Lock()
	tunnel := s.tunnel
	s.mu.Unlock()
	if tunnel {
		s.forwardTunnel(s.server, s.client)
		return
	}
	if s.isHTTP2 {
		return
	}
	s.end(nil)
	s.client.Linger(lingerBytes)
}

// lingerBytes bounds what is dropped at the end.
const lingerBytes = 1 << 20

// awaitRequest waits until something of a request was read and the one before is done with. It reports whether there
// may be a request.
func (s *Session) awaitRequest() bool {
	if len(s.client.Data()) == 0 {
		if !s.setWaiting(true) {
			return false
		}
		err := s.client.Fill(0)
		if !s.setWaiting(false) {
			return false
		}
		if err != nil {
			s.clientFailed(err)
			return false
		}
	}
	return s.awaitResponse()
}

// setWaiting reports whether the session goes on.
func (s *Session) setWaiting(waiting bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting, s.begun = waiting, s.begun || !waiting
	return !s.ending && !s.tunnel
}

// awaitResponse waits until the current request is done with. It reports whether the session goes on.
func (s *Session) awaitResponse() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.exchange.active && !s.ending && !s.tunnel {
		s.changed.Wait()
	}
	return !s.ending && !s.tunnel
}

// clientFailed handles the end of the client's stream, or of its connection, where a request could begin.
func (s *Session) clientFailed(err error) {
	switch {
	case isEOF(err):
		s.halfClose()
	case errors.Is(err, os.ErrDeadlineExceeded) && !s.asked:
		s.refuse(&Request{}, ReasonSilent)
	case errors.Is(err, bufconn.ErrMemory):
		s.refuse(&Request{}, ReasonMemory)
	default:
		s.abandon(ReasonClientGone, err)
	}
}

// halfClose passes the end of the client's stream on, and waits for the response that the client may still want.
func (s *Session) halfClose() {
	s.mu.Lock()
	active := s.exchange.active
	s.mu.Unlock()
	if active {
		s.server.CloseWrite()
		s.awaitResponse()
	}
}

// serveRequest reads one request, decides about it and forwards it. It reports whether another one may follow.
func (s *Session) serveRequest(ctx context.Context) bool {
	if s.refuseOtherProtocol() {
		return false
	}
	first := !s.asked
	if first {
		s.asked = true
		s.setReadDeadline(s.client, time.Time{})
	}
	n, reason := s.readHead(s.client)
	if reason != "" {
		s.refuse(&Request{}, reason)
		return false
	}
	if first && isHTTP2Preface(s.client.Data()[:n]) {
		if s.isHTTP2 = s.HTTP2 != nil; !s.isHTTP2 {
			s.refuseHTTP2()
		}
		return false
	}
	r := requests.Get().(*Request)
	defer r.release()
	if reason := r.parse(s.client.Data()[:n], s.Limits.Headers, &s.lastHost); reason != "" {
		s.refuse(r, reason)
		return false
	}
	if reason := s.Decide(r); reason != "" {
		return s.deny(r, reason, n)
	}
	return s.connect(ctx, r) && s.forwardRequest(r, n)
}

// connect dials the server at the first request.
func (s *Session) connect(ctx context.Context, r *Request) bool {
	if s.server != nil {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, s.Limits.Dial)
	server, err := s.Dial(ctx)
	cancel()
	if err != nil {
		s.record(r, Failed, ReasonDial)
		s.reply(r, ReasonDial, true)
		s.end(err)
		return false
	}
	s.mu.Lock()
	ending := s.ending
	if !ending {
		s.server = bufconn.New(server, &s.progress, s.Memory)
	}
	s.mu.Unlock()
	if ending {
		server.Close()
	}
	return !ending
}

// forwardRequest sends the request whose head, of n bytes, is in the client's buffer.
func (s *Session) forwardRequest(r *Request, n int) bool {
	last, ok := s.begin(r)
	if !ok {
		return false
	}
	if !s.readsServer { // from the first request on, so that what the server says, HTTP or not, or its end, answers it
		s.readsServer = true
		s.served.Go(func() {
			for s.serveResponse() {
			}
		})
	}
	w := writer{to: s.server}
	body, expect := r.framing, r.expect
	r.writeTo(&w, last) // its error shows again below
	s.client.Discard(n)
	var err error
	if expect {
		err = s.awaitBody(&w)
	}
	if err == nil {
		err = body.forward(&w, s.client, &s.Limits)
	}
	if err != nil {
		return s.requestFailed(err)
	}
	s.requestDone()
	return true
}

// awaitBody sends the head, and waits for the beginning of a body that the client may not send.
func (s *Session) awaitBody(w *writer) error {
	if err := w.flush(); err != nil {
		return err
	}
	if len(s.client.Data()) == 0 {
		if err := s.client.Fill(0); err != nil {
			return readError{err}
		}
	}
	s.mu.Lock()
	s.exchange.awaits = false // nothing else can follow the head
	s.mu.Unlock()
	return nil
}

// requestFailed handles a request that could not be forwarded to its end.
func (s *Session) requestFailed(err error) bool {
	var broken *brokenBody
	var read readError
	switch {
	case errors.Is(err, bufconn.ErrMemory):
		s.fail(ReasonMemory, err)
	case errors.As(err, &broken):
		s.fail(broken.reason, err)
	case errors.As(err, &read):
		reason := ReasonClientGone
		if isEOF(err) {
			reason = ReasonIncompleteBody
		}
		s.abandon(reason, err)
	default:
		// The server does not take the request. It may have answered before.
		s.mu.Lock()
		s.exchange.last = true
		s.mu.Unlock()
		s.awaitResponse()
	}
	return false
}

// refuseOtherProtocol recognises what cannot begin a request, and refuses it without waiting for more.
func (s *Session) refuseOtherProtocol() bool {
	const handshake = 0x16 // the first byte of TLS
	first := s.client.Data()[0]
	reason := ReasonRequestLine
	switch {
	case class[first]&inToken != 0:
		return false
	case first == handshake && !s.asked:
		reason = ReasonTLS
	}
	s.refuse(&Request{}, reason)
	return true
}

// isHTTP2Preface recognises the first line of HTTP/2's connection preface, and the empty one behind it (RFC 9113, 3.4).
func isHTTP2Preface(head []byte) bool { return bytes.Equal(head, []byte("PRI * HTTP/2.0\r\n\r\n")) }

// refuseHTTP2 tells a client that speaks HTTP/2 in its own protocol that it is not served: by an empty SETTINGS and a
// GOAWAY whose code is HTTP_1_1_REQUIRED.
func (s *Session) refuseHTTP2() {
	const text = "the network policy's proxy speaks HTTP/1.1 only"
	frames := []byte{
		0, 0, 0, 4, 0, 0, 0, 0, 0,
		0, 0, byte(8 + len(text)), 7, 0, 0, 0, 0, 0,
		0, 0, 0, 0, 0, 0, 0, 0x0d,
	}
	s.recordExchange(&exchange{}, Refused, ReasonHTTP2, 0)
	s.client.SetWriteDeadline(time.Now().Add(s.Limits.Linger))
	s.client.Write(append(frames, text...)) // if the client is gone, the next read says so
	s.end(refusedError(ReasonHTTP2))
}
