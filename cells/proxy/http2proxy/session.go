package http2proxy

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"

	"porin.dev/porin/cells/proxy/bufconn"
	"porin.dev/porin/cells/proxy/httpproxy"
)

// Session serves one connection of a client that speaks HTTP/2, and the one to its server.
type Session struct {
	// Dial connects to the server. It is called once, when the first request is allowed.
	Dial func(context.Context) (net.Conn, error)
	// Decide is asked once about each request, when its head was read. It allows the request if it returns no reason. It
	// must not keep the request.
	Decide func(*httpproxy.Request) httpproxy.Reason
	// Record is told of each request when its status is known, one at a time. It must not call the session. It may be nil.
	Record func(httpproxy.Record)
	Limits Limits // as they are when Serve begins

	progress atomic.Uint32
	running  sync.WaitGroup
	done     chan struct{} // closed when the session ends

	mu                sync.Mutex // guards the fields below, and what the peers say
	changed           sync.Cond
	client            *peer // not before Serve
	server            *peer // not before it was dialled
	streams           map[uint32]*stream
	lastID            uint32          // of the client's streams
	unended           []uint32        // the last streams that are over and that the client has not ended: late frames of them may come
	deciding          uint32          // the stream of a request that is not forwarded yet, or 0
	accepted          uint32          // streams above it are not served any more
	settingsForServer []http2.Setting // of the client, for the server
	credit            int64           // for the server, from before it was dialled
	tick              uint32          // of the stallCheck
	draining          bool
	final             bool // the client was told the last stream
	ending            bool
	closed            bool             // Serve waits for what runs
	endReason         httpproxy.Reason // what is recorded of requests that had no answer when it ended
	err               error            // why it ended
}

// Serve forwards until one of the connections ends or ctx does, and closes both. The connection begins with the
// client's preface. The error says why it ended if not in order. It is called once. Serve bounds memory by c.Memory,
// for both connections, and replaces c.Progress.
func (s *Session) Serve(ctx context.Context, c *bufconn.Conn) error {
	s.Limits = s.Limits.withDefaults()
	c.Progress = &s.progress
	s.mu.Lock()
	s.changed.L = &s.mu
	s.client, s.accepted, s.streams = newPeer(c), maxStream, map[uint32]*stream{}
	s.done = make(chan struct{})
	headBytes := http2.Setting{ID: http2.SettingMaxHeaderListSize, Val: uint32(s.Limits.HeadBytes)}
	s.settingsForServer = []http2.Setting{headBytes}
	s.client.settings([]http2.Setting{{ID: http2.SettingMaxConcurrentStreams, Val: uint32(s.Limits.Streams)}, headBytes}, false)
	if s.draining {
		s.startDrain()
	}
	s.mu.Unlock()
	stop := context.AfterFunc(ctx, func() { s.abort(httpproxy.ReasonStopped, context.Cause(ctx)) })
	w := s.startStallCheck()
	s.clientEnded(s.serveClient(ctx))
	c.Linger(maxLinger)
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.running.Wait()
	w.Stop()
	stop()
	c.Close()
	if s.server != nil {
		s.server.conn.Close()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// maxLinger bounds what is dropped at the end.
const maxLinger = 1 << 20

// Drain lets the current streams end, and streams that the client begins before it knows. The session ends then.
func (s *Session) Drain() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.draining && s.client != nil && !s.ending {
		s.startDrain()
	}
	s.draining = true
}

// startDrain tells the client to begin no further stream, and after a while, in which it learns that, which stream was
// the last one. It does not wait.
func (s *Session) startDrain() {
	s.draining = true
	s.client.goAway(maxStream, http2.ErrCodeNo, nil)
	if s.closed {
		return
	}
	s.running.Go(func() {
		s.settle() // its error shows again where the client is read
		timer := time.NewTimer(s.Limits.Linger)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-s.done:
			return
		}
		s.mu.Lock()
		if !s.final && !s.ending {
			s.final, s.accepted = true, min(s.accepted, s.lastID)
			s.client.goAway(s.lastID, http2.ErrCodeNo, nil)
		}
		s.mu.Unlock()
		s.settle() // as above
	})
}

// settle sends what was gathered, and ends the session if no stream is left that may go on.
func (s *Session) settle() error {
	s.mu.Lock()
	over := s.final && len(s.streams) == 0 && s.deciding == 0 && !s.ending
	server := s.server
	s.mu.Unlock()
	if over {
		s.end(http2.ErrCodeNo, nil)
		return errEnded
	}
	if err := s.flush(s.client); err != nil {
		reason := httpproxy.ReasonClientGone
		if errors.Is(err, bufconn.ErrMemory) {
			reason = httpproxy.ReasonMemory
		}
		s.abort(reason, err)
		return errEnded
	}
	if server != nil {
		s.flush(server) // it may have answered before: its reader says how it ended
	}
	return nil
}

// serveClient handles the client's frames.
func (s *Session) serveClient(ctx context.Context) error {
	if err := s.readPreface(); err != nil {
		return err
	}
	headers := func(b *block) error { return s.clientHeaders(ctx, b) }
	for {
		f, err := s.readFrame(s.client)
		if err == nil {
			err = s.handle(s.client, s.server, f, headers)
		}
		if err != nil {
			return err
		}
		if s.isEnding() {
			return errEnded
		}
	}
}

// serveServer handles the server's frames.
func (s *Session) serveServer() {
	headers := s.serverHeaders
	for {
		f, err := s.readFrame(s.server)
		if err == nil {
			err = s.handle(s.server, s.client, f, headers)
		}
		if err != nil {
			s.serverEnded(err)
			return
		}
	}
}

// handle handles a frame of a peer; headers is called with a whole header block. to is nil while the server was not
// dialled.
func (s *Session) handle(from, to *peer, f frame, headers func(*block) error) error {
	switch f.kind {
	case http2.FrameHeaders, http2.FrameContinuation:
		b, err := s.readBlock(from, f)
		if b == nil || err != nil {
			return err
		}
		defer b.release()
		return headers(b)
	case http2.FramePushPromise: // which servers are told not to send
		return protocolError
	}
	return s.relay(from, to, f)
}

// readBlock decodes a header block. It returns nil if it is not over.
func (s *Session) readBlock(p *peer, f frame) (*block, error) {
	if f.kind == http2.FrameHeaders {
		if _, err := f.unpad(); err != nil {
			return nil, err
		}
		if f.flags.Has(http2.FlagHeadersPriority) {
			if len(f.payload) < 5 {
				return nil, protocolError
			}
			f.payload = f.payload[5:]
		}
		if f.stream%2 == 0 {
			return nil, protocolError
		}
		p.block = newBlock(f.stream, f.flags.Has(http2.FlagHeadersEndStream), &s.Limits)
		p.decoder.SetEmitEnabled(true)
	} else if len(f.payload) == 0 {
		s.mu.Lock()
		err := p.budget.spend(1)
		s.mu.Unlock()
		if err != nil {
			return nil, err
		}
	}
	b := p.block
	if b.bytes += len(f.payload); b.bytes > s.Limits.HeadBytes {
		return nil, headError
	}
	if _, err := p.decoder.Write(f.payload); err != nil {
		return nil, compressionError
	}
	if !f.flags.Has(http2.FlagHeadersEndHeaders) {
		if !p.conn.Memory.Acquire(b.size - b.held) {
			return nil, memoryError
		}
		b.held = b.size
		s.limitRead(p, s.Limits.Frame)
		return nil, nil
	}
	p.conn.Memory.Release(b.held)
	p.block = nil
	if p.decoder.Close() != nil {
		return nil, compressionError
	}
	s.clearReadLimit(p)
	return b, nil
}

func (s *Session) isEnding() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ending
}

// setReadDeadline sets the deadline of a connection, unless the session is ending, which sets its own.
func (s *Session) setReadDeadline(p *peer, t time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ending {
		p.conn.SetReadDeadline(t)
	}
}
