package dnsproxy

import (
	"bufio"
	"context"
	"encoding/binary"
	"io"
	"net"
	"sync"
	"time"

	"porin.dev/porin/cells/proxy/quota"
)

// writeTimeout is how long a client may take to read an answer.
const writeTimeout = 5 * time.Second

// ServeTCP answers the queries of a connection, each as soon as its answer has come (RFC 7766), and closes it. from has
// everything but the message. It returns when the client has closed it or sends nothing more, when ctx has ended, or
// when there are too many connections. When draining ends, it answers what has come and what comes within [drainIdle],
// and no more.
func (h *Handler) ServeTCP(ctx, draining context.Context, conn net.Conn, from Query) {
	defer conn.Close()
	from.TCP = true
	if h.streams.acquire(from.Endpoint) != quota.Acquired {
		h.record(from, question{}, time.Now(), Connections, nil)
		return
	}
	defer h.streams.release(from.Endpoint)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s := &stream{handler: h, conn: conn, from: from, draining: draining, slots: make(chan struct{}, h.config.Limits.Pipelined), fail: cancel}
	defer context.AfterFunc(draining, s.setReadDeadline)()
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	s.read(ctx)
	s.queries.Wait()
}

// stream is a TCP connection of a client.
type stream struct {
	handler  *Handler
	conn     net.Conn
	from     Query
	draining context.Context
	slots    chan struct{} // one for each query that is in flight
	queries  sync.WaitGroup
	fail     func() // ends the connection

	writing sync.Mutex // is held while a reply is written, with a deadline
}

// read reads queries until there are no more.
func (s *stream) read(ctx context.Context) {
	reader := bufio.NewReaderSize(s.conn, minUDP)
	var buffer []byte
	for {
		select {
		case s.slots <- struct{}{}:
		case <-ctx.Done():
			return
		}
		m, ok := s.next(ctx, reader, buffer)
		if !ok {
			return
		}
		buffer = m
		q := s.from
		q.Message = m
		s.queries.Add(1)
		s.handler.HandleQuery(ctx, q, func(reply []byte) {
			defer s.queries.Done()
			s.write(ctx, reply)
			<-s.slots
		})
	}
}

// next reads a query. The client has the idle timeout for all of it.
func (s *stream) next(ctx context.Context, reader *bufio.Reader, buffer []byte) ([]byte, bool) {
	s.setReadDeadline()
	if ctx.Err() != nil {
		return nil, false // the deadline that its end has set may have been overwritten
	}
	var size [2]byte
	if _, err := io.ReadFull(reader, size[:]); err != nil {
		return nil, false
	}
	n := int(binary.BigEndian.Uint16(size[:]))
	if n < headerSize || n > maxQuery {
		s.handler.record(s.from, question{}, time.Now(), Malformed, nil)
		return nil, false
	}
	if n > cap(buffer) {
		buffer = make([]byte, n)
	}
	_, err := io.ReadFull(reader, buffer[:n])
	return buffer[:n], err == nil
}

// drainIdle is how long a connection that drains waits for another query.
const drainIdle = time.Second

// setReadDeadline sets the deadline for the next query.
func (s *stream) setReadDeadline() {
	if s.draining.Err() == nil {
		_ = s.conn.SetReadDeadline(time.Now().Add(s.handler.config.Limits.IdleTimeout))
	}
	if s.draining.Err() != nil { // maybe just now
		_ = s.conn.SetReadDeadline(time.Now().Add(drainIdle))
	}
}

// write writes a reply, if there is one.
func (s *stream) write(ctx context.Context, reply []byte) {
	if reply == nil {
		return
	}
	s.writing.Lock()
	defer s.writing.Unlock()
	_ = s.conn.SetWriteDeadline(time.Now().Add(writeTimeout))
	if ctx.Err() != nil || writeStream(s.conn, reply) != nil {
		s.fail()
	}
}
